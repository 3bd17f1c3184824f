//! Calls to webhooks: endpoints, connections and responses.
//!
//! A [`Client`] posts JSON to one [`Endpoint`] and returns the JSON of the response. It has the CA, the client
//! certificate and the credentials of its endpoint. An endpoint is read from a file in the kubeconfig format
//! (`kubeconfig`), which configures the webhooks of authentication, authorization and audit.
//!
//! `Clients` calls the webhooks that objects define with a `clientConfig` (`ClientConfig`): admission and conversion
//! webhooks. A Service is called at its mapped address ([`Services`]), or else at one of its own (`addresses`).
//!
//! Both keep a few connections open, and bound time and size (`transport`). Callers interpret the JSON.

pub(in crate::shared) mod addresses;
mod client;
mod client_config;
mod clients;
mod kubeconfig;
pub(in crate::shared) mod places;
pub(in crate::shared) mod services;
#[cfg(test)]
mod tests;
pub(in crate::shared) mod tls;
pub(in crate::shared) mod transport;
mod trust;

pub use self::client::{CallError, Client};
pub(crate) use self::client_config::ClientConfig;
pub(crate) use self::clients::Clients;
#[cfg(feature = "fuzzing")]
pub(crate) use self::kubeconfig::parse as parse_kubeconfig;
pub use self::kubeconfig::read as read_kubeconfig;
pub use self::services::{Mapping, MappingError, Route, Services};

use std::fmt;
use std::path::PathBuf;

/// The address of a webhook, and the credentials for it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// An `https` URL.
    pub url: String,
    /// The PEM certificates of the authorities for its certificate. Empty: the system's authorities.
    pub ca: Vec<u8>,
    /// The name that its certificate must have, if it differs from the URL's.
    pub server_name: Option<String>,
    /// The caller's certificate.
    pub identity: Option<Identity>,
    /// The credentials in the header `Authorization`.
    pub credentials: Credentials,
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

/// The credentials in the header `Authorization`.
#[derive(Clone, Default)]
pub enum Credentials {
    Basic {
        user: String,
        password: String,
    },
    #[default]
    None,
    Token(String),
    /// A token in a file, which is read for every call, since another process renews it.
    TokenFile(PathBuf),
}

/// Why an endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// A required file cannot be read.
    #[error("the file {path} cannot be read", path = .path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The text is malformed.
    #[error("{0}")]
    Malformed(String),
    /// The certificates or the key cannot be used.
    #[error("{what} cannot be used: {why}")]
    Tls { what: &'static str, why: String },
    /// The URL cannot be used.
    #[error("the URL {url:?} cannot be used: want https://HOST/PATH")]
    Url { url: String },
}

// The secrets are left out, because they must not be logged.

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Credentials::Basic { .. } => "Basic",
            Credentials::None => "None",
            Credentials::Token(_) => "Token",
            Credentials::TokenFile(_) => "TokenFile",
        })
    }
}
