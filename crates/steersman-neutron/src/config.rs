//! Where the cloud is and how to sign in: from a URL, from `OS_*` variables, or from `clouds.yaml`.
//!
//! The process's environment is passed in, never read here, so that two clouds fit in one process and tests need no
//! process state. What a variable or key means is as in openstacksdk; what is not supported is refused, not ignored, if
//! it would change whom we sign in as or where we go.

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
    /// Identity in plain headers, for a Neutron whose token check is taken out.
    Headers { endpoint: Url, identity: Identity },
    /// A token of Keystone.
    Keystone(Keystone),
    /// None: a Neutron with `auth_strategy = noauth`.
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
    /// `X-Roles`. Roles imply nothing here: an administrator needs `admin`, `member` and `reader`.
    pub roles: Vec<String>,
}

/// How to sign in at Keystone, version 3.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Keystone {
    /// Ends in `/v3`.
    pub(crate) auth_url: Url,
    pub(crate) credentials: Credentials,
    /// Which region's Neutron; if none, there must be only one region.
    pub(crate) region: Option<String>,
    /// Which of its addresses: public, internal or admin.
    pub(crate) interface: String,
    /// Instead of the catalog's.
    pub(crate) endpoint: Option<Url>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Credentials {
    /// Knows its own project.
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

/// Something that Keystone knows by its id, or by a name that is unique within something else.
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

/// A text that is never printed.
#[derive(Clone, PartialEq)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Where [`Config::keystone`] looks.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The environment: `OS_*` variables, `HOME` for a leading `~` in file names.
    pub vars: &'a BTreeMap<String, String>,
    /// The entry of `clouds.yaml` to use. If none, `OS_CLOUD` names it; if that is not set either, `OS_*` variables are all.
    pub cloud: Option<&'a str>,
    /// The directories of `clouds.yaml`, the first that has one wins; see [`search_dirs`].
    pub dirs: &'a [PathBuf],
}

/// Why there is no usable configuration. Nothing was sent anywhere.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is not what it should be.
    #[error("{path} cannot be used: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong in it, and where.
        reason: String,
    },
    /// The file system refused.
    #[error("cannot read {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Something that must be said is not.
    #[error("{origin} does not say {missing}")]
    Missing {
        /// The environment or an entry of a file.
        origin: String,
        /// What to add, in the origin's words.
        missing: String,
    },
    /// No `clouds.yaml` was found.
    #[error("cloud {cloud:?} is asked for, but there is no clouds.yaml in {searched}")]
    NoCloudsFile {
        /// The entry that was looked for.
        cloud: String,
        /// The directories, in order.
        searched: String,
    },
    /// Trust in the server's certificate cannot be set up.
    #[error("TLS cannot be set up: {reason}")]
    Tls {
        /// What stands against it.
        reason: String,
    },
    /// The file has no such entry.
    #[error("{path} has no cloud {cloud:?}, it has {known}")]
    UnknownCloud {
        /// The file.
        path: PathBuf,
        /// The entry that was looked for.
        cloud: String,
        /// The entries there are.
        known: String,
    },
    /// A setting asks for something this client does not do.
    #[error("{origin}: {key} {value:?} is not supported; {remedy}")]
    Unsupported {
        /// The environment or an entry of a file.
        origin: String,
        /// The setting.
        key: String,
        /// Its value.
        value: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// Not a URL to send requests to.
    #[error("{text:?} is not a usable URL: {reason}; it should look like http://host:9696")]
    Url {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Config {
    /// A Neutron that asks for no sign-in (`auth_strategy = noauth`), at this URL, for example `http://127.0.0.1:9696`.
    ///
    /// # Errors
    ///
    /// The URL is not one of http or https.
    pub fn unauthenticated(url: &str) -> Result<Self, Error> {
        Ok(Self::new(Access::Unauthenticated { endpoint: service_url(url)? }))
    }

    /// A Neutron that believes plain headers, at this URL. For tests: anybody can be anybody there.
    ///
    /// # Errors
    ///
    /// The URL is not one of http or https.
    pub fn headers(url: &str, identity: Identity) -> Result<Self, Error> {
        Ok(Self::new(Access::Headers { endpoint: service_url(url)?, identity }))
    }

    /// A Neutron behind Keystone, described by variables or `clouds.yaml`.
    ///
    /// Reads files (small, blocking). Understood are passwords and application credentials, and entries with
    /// `auth_type: none`.
    ///
    /// # Errors
    ///
    /// A file cannot be read or used, something is missing, or asks for what this client does not do.
    pub fn keystone(source: &Source<'_>) -> Result<Self, Error> {
        let named = source.cloud.map(str::to_owned);
        let cloud = named.or_else(|| source.vars.get("OS_CLOUD").filter(|cloud| !cloud.is_empty()).cloned());
        match cloud {
            Some(cloud) => clouds::load(&cloud, source)?.into_config(source.vars),
            None => Settings::from_vars(source.vars).into_config(source.vars),
        }
    }

    /// The same, with Neutron at this URL instead of where the catalog says.
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

    /// The same, with other bounds.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    pub(crate) fn new(access: Access) -> Self {
        Self { access, ca_certificates: None, limits: Limits::default() }
    }
}

/// Where `clouds.yaml` is looked for: the working directory, the user's configuration, the machine's.
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
