//! Calls to webhooks: what is sent to whom, over which connection, and what comes back.
//!
//! A [`Client`] posts JSON to one [`Endpoint`] and returns the JSON of the answer. It knows the CA, the client certificate and the
//! credentials of its endpoint. An endpoint is read from a file in the format of a kubeconfig (`kubeconfig`): so are the webhooks
//! of authentication, authorization and audit.
//!
//! `Clients` calls those that objects name by a `clientConfig` (`ClientConfig`): admission and conversion webhooks. A Service is
//! called where it is mapped to ([`Services`]), else where its address leads.
//!
//! Both keep a few connections open, and bound time and size (`transport`). What the JSON means is their callers'.

mod client;
mod client_config;
mod clients;
mod kubeconfig;
mod services;
#[cfg(test)]
mod tests;
mod tls;
mod transport;
mod trust;

pub use self::client::{CallError, Client};
pub(crate) use self::client_config::ClientConfig;
pub(crate) use self::clients::Clients;
#[cfg(feature = "fuzzing")]
pub(crate) use self::kubeconfig::parse as parse_kubeconfig;
pub use self::kubeconfig::read as read_kubeconfig;
pub use self::services::{Mapping, MappingError, Services};

use std::fmt;
use std::path::PathBuf;

/// Where a webhook is, and how its callers prove who they are.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// An `https` URL.
    pub url: String,
    /// PEM certificates of the authorities that its certificate may be from. Empty: those of the system.
    pub ca: Vec<u8>,
    /// The name that its certificate must have, if not that of the URL.
    pub server_name: Option<String>,
    /// The caller's certificate.
    pub identity: Option<Identity>,
    /// What is sent along in the header `Authorization`.
    pub credentials: Credentials,
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

/// What a caller shows in the header `Authorization`.
#[derive(Clone, Default)]
pub enum Credentials {
    Basic {
        user: String,
        password: String,
    },
    #[default]
    None,
    Token(String),
    /// A token in a file, which is read for every call, since somebody else renews it.
    TokenFile(PathBuf),
}

/// Why an endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// A file that it needs.
    #[error("the file {path} cannot be read", path = .path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The text is not what it should be.
    #[error("{0}")]
    Malformed(String),
    /// The certificates or the key cannot be used.
    #[error("{what} cannot be used: {why}")]
    Tls { what: &'static str, why: String },
    /// The URL cannot be used.
    #[error("the URL {url:?} cannot be used: want https://HOST/PATH")]
    Url { url: String },
}

// Without the secrets: they are not for logs.

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
