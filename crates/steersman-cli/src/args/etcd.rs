//! The options of a server that keeps its objects in etcd. The flags are those of kube-apiserver, which has none for a password.

use crate::Failure;
use clap::{Args as ClapArgs, ValueEnum};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steersman_storage_etcd::{Certificates, Keys, Login, Options, REGISTRY_PREFIX, STEERSMAN_PREFIX};
use steersman_storage_kubernetes as kubernetes;

/// How etcd is reached; the objects are in the data directory if no member is named.
#[derive(ClapArgs, Clone, Debug)]
pub(crate) struct EtcdOptions {
    /// Keep the objects in etcd, and not in the data directory: the URLs of its members, such as
    /// http://127.0.0.1:2379. Any number of servers may use the same --etcd-prefix; one of them runs the controllers.
    #[arg(long, value_delimiter = ',', value_parser = url, value_name = "URL")]
    pub(crate) etcd_servers: Vec<String>,
    /// The CA certificates by which etcd is known, in PEM.
    #[arg(long, requires = "etcd_servers", value_name = "FILE")]
    pub(crate) etcd_cafile: Option<PathBuf>,
    /// The certificate that the server shows to etcd, in PEM.
    #[arg(long, requires = "etcd_servers", requires = "etcd_keyfile", value_name = "FILE")]
    pub(crate) etcd_certfile: Option<PathBuf>,
    /// The key of --etcd-certfile, in PEM.
    #[arg(long, requires = "etcd_servers", requires = "etcd_certfile", value_name = "FILE")]
    pub(crate) etcd_keyfile: Option<PathBuf>,
    /// The form of keys and values in etcd: kubernetes for that of kube-apiserver, which may use the same etcd before, after and at the same
    /// time; steersman for one that is read faster.
    #[arg(long, requires = "etcd_servers", default_value = "kubernetes", value_enum, value_name = "LAYOUT")]
    pub(crate) etcd_layout: Layout,
    /// The prefix of the keys in etcd. Nothing else may have keys below it, but for a kube-apiserver in the layout kubernetes.
    #[arg(long, requires = "etcd_servers", value_parser = prefix, value_name = "PREFIX", long_help = "The prefix of the keys in etcd. Nothing else may have keys below it, but for a kube-apiserver in the layout kubernetes [default: /registry, or /steersman in the layout steersman]")]
    pub(crate) etcd_prefix: Option<String>,
    /// The user of etcd, if it asks for a password.
    #[arg(long, requires = "etcd_servers", requires = "etcd_password_file", value_name = "NAME")]
    pub(crate) etcd_username: Option<String>,
    /// A file with the password of --etcd-username, without a line end or with one.
    #[arg(long, requires = "etcd_servers", requires = "etcd_username", value_name = "FILE")]
    pub(crate) etcd_password_file: Option<PathBuf>,
    /// The value of etcd's own flag --max-request-bytes, where it was raised for larger objects.
    #[arg(long, requires = "etcd_servers", default_value_t = 1_536 * 1_024, value_parser = clap::value_parser!(u32).range(64 * 1_024..=32 * 1_024 * 1_024), value_name = "BYTES")]
    pub(crate) etcd_max_request_bytes: u32,
}

/// The form of keys and values in etcd.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Layout {
    Kubernetes,
    Steersman,
}

/// The place of objects in etcd.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct InEtcd {
    pub(crate) servers: Vec<String>,
    pub(crate) prefix: String,
}

impl EtcdOptions {
    /// Where the objects are.
    pub(crate) fn place(&self) -> InEtcd {
        InEtcd { servers: self.etcd_servers.clone(), prefix: self.prefix().to_owned() }
    }

    fn prefix(&self) -> &str {
        let default = match self.etcd_layout {
            Layout::Kubernetes => REGISTRY_PREFIX,
            Layout::Steersman => STEERSMAN_PREFIX,
        };
        self.etcd_prefix.as_deref().unwrap_or(default)
    }

    /// The form of values.
    pub(crate) fn layout(&self) -> kubernetes::Layout {
        match self.etcd_layout {
            Layout::Kubernetes if !self.etcd_servers.is_empty() => kubernetes::Layout::Kubernetes,
            Layout::Kubernetes | Layout::Steersman => kubernetes::Layout::Steersman,
        }
    }

    /// The prefix of the keys that encrypted values are bound to: those of kube-apiserver, so that it can decrypt them. The keys of the embedded
    /// store and of the layout steersman are taken for those of its default prefix.
    pub(crate) fn authenticated_prefix(&self) -> &str {
        match self.layout() {
            kubernetes::Layout::Kubernetes => self.prefix(),
            kubernetes::Layout::Steersman => REGISTRY_PREFIX,
        }
    }

    /// The options of the engine; `None` if the objects are not in etcd.
    ///
    /// # Errors
    /// When a file cannot be read; the message names it and its flag.
    pub(crate) fn read(&self) -> Result<Option<Options>, Failure> {
        if self.etcd_servers.is_empty() {
            return Ok(None);
        }
        let file = |flag: &str, path: &Path| {
            fs::read(path).map_err(|error| Failure::Refused(format!("cannot read {path:?} of {flag}: {error}")))
        };
        let authorities = self.etcd_cafile.as_deref().map(|path| file("--etcd-cafile", path)).transpose()?;
        let client = match (&self.etcd_certfile, &self.etcd_keyfile) {
            (Some(certificate), Some(key)) => {
                Some((file("--etcd-certfile", certificate)?, file("--etcd-keyfile", key)?))
            }
            _ => None,
        };
        let certificates = Certificates { authorities: authorities.unwrap_or_default(), client };
        let keys = match self.etcd_layout {
            Layout::Kubernetes => Keys::Registry(Arc::new(kubernetes::keys())),
            Layout::Steersman => Keys::Steersman,
        };
        let options = Options::new(self.etcd_servers.clone()).prefix(self.prefix()).keys(keys);
        let options = options.certificates(certificates).request_bytes_max(self.etcd_max_request_bytes as usize);
        let (Some(user), Some(path)) = (&self.etcd_username, &self.etcd_password_file) else {
            return Ok(Some(options));
        };
        let password = String::from_utf8(file("--etcd-password-file", path)?)
            .map_err(|_| Failure::Refused(format!("the password in {path:?} of --etcd-password-file is not UTF-8")))?;
        let password = password.trim_end_matches(['\r', '\n']).to_owned();
        Ok(Some(options.login(Login { user: user.clone(), password })))
    }
}

fn url(text: &str) -> Result<String, String> {
    let uri: Option<http::Uri> = text.parse().ok();
    match uri.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some()) {
        Some(_) => Ok(text.to_owned()),
        None => Err("want a URL such as http://127.0.0.1:2379".to_owned()),
    }
}

pub(super) fn prefix(text: &str) -> Result<String, String> {
    let trimmed = text.trim_end_matches('/');
    if trimmed.starts_with('/') && trimmed.len() > 1 {
        Ok(trimmed.to_owned())
    } else {
        Err("want a path such as /steersman".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_a_url() {
        for right in ["http://127.0.0.1:2379", "https://etcd-0.example", "http://[::1]:2379"] {
            assert_eq!(url(right).as_deref(), Ok(right));
        }
        for wrong in ["", "foo", "127.0.0.1:2379", "ftp://127.0.0.1", "http://", "unix:///run/etcd"] {
            assert!(url(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_prefix_is_a_path_below_the_root() {
        assert_eq!(prefix("/a/b/").as_deref(), Ok("/a/b"));
        for wrong in ["", "/", "a", "//"] {
            assert!(prefix(wrong).is_err(), "{wrong:?}");
        }
    }
}
