//! Where the cloud is and how to sign in: from a URL, from `OS_*` variables, or from `clouds.yaml`.
//!
//! The process's environment is passed in, never read here, so that two clouds fit in one process and tests need no
//! process state. Variables and keys mean the same as in openstacksdk. A setting that is not supported is refused, not
//! ignored, if it would change the identity or the address.

mod clouds;
mod settings;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Url;

use crate::config::settings::Settings;

/// How to reach one Neutron.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) access: Access,
    /// More certificate authorities to trust beside the system's, PEM.
    pub(crate) ca_certificates: Option<Vec<u8>>,
    pub(crate) limits: Limits,
}

/// Bounds of the client's work. All have defaults that suit a cloud in the same building.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The longest that making a connection may take; default 5 s.
    pub connect_timeout: Duration,
    /// The longest that one request may take, answer included; default 30 s.
    pub timeout: Duration,
    /// The largest answer, in bytes; default 16 MiB.
    pub answer_bytes_max: usize,
    /// How many resources to ask for at once; default 500. The server may give fewer.
    pub page_size: usize,
    /// The most resources that one search may return; default 100 000. Beyond, it fails.
    pub found_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            answer_bytes_max: 16 << 20,
            page_size: 500,
            found_max: 100_000,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// Identity in plain headers, for a Neutron without a token check.
    Headers { endpoint: Url, identity: Identity },
    /// A token from Keystone.
    Keystone(Keystone),
    /// No identity: a Neutron with `auth_strategy = noauth`.
    Unauthenticated { endpoint: Url },
}

/// The identity in the headers of a request, for a Neutron that trusts plain headers.
///
/// That is a Neutron without the token check in its pipeline, as tests use it: no secret is involved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    /// `X-User-Id`; without one Neutron answers [`Class::Unauthorized`](crate::Class::Unauthorized).
    pub user_id: Option<String>,
    /// `X-Project-Id`.
    pub project_id: String,
    /// `X-Roles`. Roles do not imply each other here: an administrator needs `admin`, `member` and `reader`.
    pub roles: Vec<String>,
}

/// How to sign in at Keystone, version 3.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Keystone {
    /// The URL of Keystone; ends in `/v3`.
    pub(crate) auth_url: Url,
    pub(crate) credentials: Credentials,
    /// The region whose Neutron is used; without one, the catalog must have only one region.
    pub(crate) region: Option<String>,
    /// The address of the catalog to use: public, internal or admin.
    pub(crate) interface: String,
    /// The address of Neutron, in place of the catalog's.
    pub(crate) endpoint: Option<Url>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Credentials {
    /// A credential that belongs to a project, so none is named.
    ApplicationCredential {
        credential: Named,
        secret: Secret,
    },
    Password {
        user: Named,
        password: Secret,
        project: Named,
    },
}

/// A resource of Keystone, named by its id, or by a name that is unique within another resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Named {
    Id(String),
    InDomain { name: String, domain: Domain },
    OfUser { name: String, user: Box<Named> },
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Domain {
    Id(String),
    Name(String),
}

/// A text that `Debug` never prints.
#[derive(Clone, PartialEq)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Where [`Config::keystone`] finds its settings.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The environment: `OS_*` variables, `HOME` for a leading `~` in file names.
    pub vars: &'a BTreeMap<String, String>,
    /// The entry of `clouds.yaml` to use. Without one, `OS_CLOUD` names it; if that is not set either, only `OS_*`
    /// variables are used.
    pub cloud: Option<&'a str>,
    /// The directories to search for `clouds.yaml`; the first that has one wins. See [`search_dirs`].
    pub dirs: &'a [PathBuf],
}

/// Why there is no usable configuration. Nothing was sent anywhere.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file has content that cannot be used.
    #[error("{path} cannot be used: {reason}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The fault and its place.
        reason: String,
    },
    /// The file system returned an error.
    #[error("cannot read {path}")]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: io::Error,
    },
    /// A required setting is absent.
    #[error("{origin} does not say {missing}")]
    Missing {
        /// Where settings are read from: the environment or an entry of a file.
        origin: String,
        /// The setting to add, as the origin spells it.
        missing: String,
    },
    /// No `clouds.yaml` was found.
    #[error("cloud {cloud:?} is asked for, but there is no clouds.yaml in {searched}")]
    NoCloudsFile {
        /// The entry that was looked for.
        cloud: String,
        /// The directories that were searched, in order.
        searched: String,
    },
    /// Trust in the server's certificate cannot be set up.
    #[error("TLS cannot be set up: {reason}")]
    Tls {
        /// The cause.
        reason: String,
    },
    /// The file does not have the entry.
    #[error("{path} has no cloud {cloud:?}, it has {known}")]
    UnknownCloud {
        /// The path of the file.
        path: PathBuf,
        /// The entry that was looked for.
        cloud: String,
        /// The entries that the file has.
        known: String,
    },
    /// A setting asks for something that this client does not support.
    #[error("{origin}: {key} {value:?} is not supported; {remedy}")]
    Unsupported {
        /// Where the setting comes from: the environment or an entry of a file.
        origin: String,
        /// The setting.
        key: String,
        /// The value of the setting.
        value: String,
        /// The alternative.
        remedy: &'static str,
    },
    /// A text is not a URL that requests can be sent to.
    #[error("{text:?} is not a usable URL: {reason}; it should look like http://host:9696")]
    Url {
        /// The text given.
        text: String,
        /// The fault of the text.
        reason: String,
    },
}

impl Config {
    /// A Neutron without sign-in (`auth_strategy = noauth`), at this URL, for example `http://127.0.0.1:9696`.
    ///
    /// # Errors
    ///
    /// The URL is not one of http or https.
    pub fn unauthenticated(url: &str) -> Result<Self, Error> {
        Ok(Self::new(Access::Unauthenticated { endpoint: service_url(url)? }))
    }

    /// A Neutron that trusts plain headers, at this URL. For tests: anybody can claim any identity there.
    ///
    /// # Errors
    ///
    /// The URL is not one of http or https.
    pub fn headers(url: &str, identity: Identity) -> Result<Self, Error> {
        Ok(Self::new(Access::Headers { endpoint: service_url(url)?, identity }))
    }

    /// A Neutron behind Keystone, described by variables or `clouds.yaml`.
    ///
    /// Reads files (small, blocking). Supports passwords and application credentials, and entries with `auth_type:
    /// none`.
    ///
    /// # Errors
    ///
    /// A file cannot be read or used, a setting is missing, or a setting asks for something that this client does not
    /// support.
    pub fn keystone(source: &Source<'_>) -> Result<Self, Error> {
        let named = source.cloud.map(str::to_owned);
        let cloud = named.or_else(|| source.vars.get("OS_CLOUD").filter(|cloud| !cloud.is_empty()).cloned());
        match cloud {
            Some(cloud) => clouds::load(&cloud, source)?.into_config(source.vars),
            None => Settings::from_vars(source.vars).into_config(source.vars),
        }
    }

    /// Sets the URL of Neutron, in place of the one in the catalog.
    ///
    /// # Errors
    ///
    /// The URL is not one of http or https.
    pub fn with_endpoint(mut self, url: &str) -> Result<Self, Error> {
        let url = service_url(url)?;
        match &mut self.access {
            Access::Headers { endpoint, .. } | Access::Unauthenticated { endpoint } => *endpoint = url,
            Access::Keystone(keystone) => keystone.endpoint = Some(url),
        }
        Ok(self)
    }

    /// Sets the bounds of the client's work.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    pub(crate) fn new(access: Access) -> Self {
        Self { access, ca_certificates: None, limits: Limits::default() }
    }
}

/// The directories to search for `clouds.yaml`: the working directory, the user's configuration, the machine's.
pub fn search_dirs(vars: &BTreeMap<String, String>) -> Vec<PathBuf> {
    let user = match (vars.get("XDG_CONFIG_HOME"), vars.get("HOME")) {
        (Some(config), _) if !config.is_empty() => Some(Path::new(config).join("openstack")),
        (_, Some(home)) if !home.is_empty() => Some(Path::new(home).join(".config/openstack")),
        (_, _) => None,
    };
    [Some(PathBuf::from(".")), user, Some(PathBuf::from("/etc/openstack"))].into_iter().flatten().collect()
}

/// The URL of a service's root: http or https, without query, without a slash or `/v2.0` at the end.
pub(crate) fn service_url(text: &str) -> Result<Url, Error> {
    let mut url = base_url(text)?;
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/v2.0").unwrap_or(path).to_owned();
    url.set_path(&path);
    Ok(url)
}

/// The URL of Keystone's version 3, whichever version of it was given.
pub(crate) fn keystone_url(text: &str) -> Result<Url, Error> {
    let mut url = base_url(text)?;
    let path = url.path().trim_end_matches('/');
    let path = ["/v3", "/v2.0"].iter().find_map(|version| path.strip_suffix(version)).unwrap_or(path);
    let path = format!("{path}/v3");
    url.set_path(&path);
    Ok(url)
}

fn base_url(text: &str) -> Result<Url, Error> {
    let refuse = |reason: String| Error::Url { text: text.to_owned(), reason };
    let mut url = Url::parse(text.trim()).map_err(|error| refuse(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse(format!("its scheme is {}", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::Url {
            text: format!("{}://...@{}", url.scheme(), url.host_str().unwrap_or_default()),
            reason: "credentials do not belong in it".to_owned(),
        });
    }
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

#[cfg(test)]
mod tests;
