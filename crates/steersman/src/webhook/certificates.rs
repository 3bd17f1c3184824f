//! The certificate that webhooks are served with: from files, or self-signed and kept in a Secret.
//!
//! A keeper runs for as long as the server does and publishes each new certificate to the resolver of TLS handshakes.

mod configurations;
mod files;
mod issue;
mod plan;
mod secret;
mod self_signed;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use crate::webhook::certificates::files::Files;
use crate::webhook::stats::Stats;

pub use crate::webhook::certificates::self_signed::{SelfSigned, SelfSignedError};

/// The source of a server's certificate.
#[derive(Debug)]
pub struct Certificates {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Files(Files),
    SelfSigned(Box<SelfSigned>),
}

/// A certificate that cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The certificate cannot be parsed.
    #[error("{what} is no certificate that can be read: {message}")]
    Certificate {
        /// The file or Secret that has it.
        what: String,
        /// The fault.
        message: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The key cannot be used, or does not belong to the certificate.
    #[error("the key of {what} cannot be used: {message}")]
    Key {
        /// The file or Secret that has it.
        what: String,
        /// The fault.
        message: String,
    },
}

/// The certificate and key for TLS handshakes.
#[derive(Debug)]
pub(crate) struct Served {
    key: Arc<CertifiedKey>,
    /// When the certificate expires, in seconds since 1970.
    not_after: i64,
}

/// Publishes the certificate that a keeper has made or read, and its problem.
pub(crate) struct Publisher {
    served: watch::Sender<Option<Arc<Served>>>,
    /// The problem that keeps calls from being answered, or soon will.
    problem: Mutex<Option<String>>,
    stats: Arc<Stats>,
}

// === impl Certificates ===

impl Certificates {
    /// A chain of certificates and its key, both PEM, usually from a mounted Secret of type `kubernetes.io/tls`.
    ///
    /// They are read again every ten seconds. A changed pair is served from the next handshake on; if key and
    /// certificate do not match, the log says so, and the earlier pair is still served.
    pub fn files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { source: Source::Files(Files { certificate: certificate.into(), key: key.into() }) }
    }

    /// Publishes certificates for as long as it is polled; ends if no certificate can be had at the start.
    pub(crate) async fn keep(self, publisher: &Publisher) -> CertificateError {
        match self.source {
            Source::Files(files) => files.keep(publisher).await,
            Source::SelfSigned(own) => own.keep(publisher).await,
        }
    }
}

impl From<SelfSigned> for Certificates {
    fn from(own: SelfSigned) -> Self {
        Self { source: Source::SelfSigned(Box::new(own)) }
    }
}

// === impl Served ===

impl Served {
    /// Reads a chain and its key, both PEM; `what` names them in errors.
    pub(crate) fn of_pem(chain: &[u8], key: &[u8], what: &str) -> Result<Self, CertificateError> {
        let unreadable = |message: String| CertificateError::Certificate { what: what.to_owned(), message };
        let unusable = |message: String| CertificateError::Key { what: what.to_owned(), message };
        let certificates: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let certificates = certificates.map_err(|error| unreadable(error.to_string()))?;
        let Some(leaf) = certificates.first() else {
            return Err(unreadable("it has no certificate in PEM".to_owned()));
        };
        let (_, parsed) = x509_parser::parse_x509_certificate(leaf).map_err(|error| unreadable(error.to_string()))?;
        let not_after = parsed.validity().not_after.timestamp();
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable(error.to_string()))?;
        let key = provider().key_provider.load_private_key(key).map_err(|error| unusable(error.to_string()))?;
        let key = CertifiedKey::new(certificates, key);
        key.keys_match().map_err(|error| unusable(error.to_string()))?;
        Ok(Self { key: Arc::new(key), not_after })
    }
}

impl Served {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.key.cert == other.key.cert
    }
}

// === impl Publisher ===

impl Publisher {
    pub(crate) fn new(stats: Arc<Stats>) -> Self {
        Self { served: watch::Sender::new(None), problem: Mutex::default(), stats }
    }

    pub(crate) fn served(&self) -> watch::Receiver<Option<Arc<Served>>> {
        self.served.subscribe()
    }

    pub(crate) fn publish(&self, served: Served) {
        self.stats.serve_until(served.not_after);
        self.served.send_replace(Some(Arc::new(served)));
    }

    pub(crate) fn set_problem(&self, problem: Option<String>) {
        *self.problem.lock() = problem;
    }

    /// Passes while a valid certificate is served and no problem exists.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(problem) = &*self.problem.lock() {
            return Err(problem.clone());
        }
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        match &*self.served.borrow() {
            None => Err("no certificate yet".to_owned()),
            Some(served) if served.not_after <= since_1970.as_secs().cast_signed() => {
                Err("the certificate has expired".to_owned())
            }
            Some(_) => Ok(()),
        }
    }
}

// === handshakes ===

/// The cryptography of webhooks. It is not installed as the default of the process.
pub(crate) fn provider() -> CryptoProvider {
    #[cfg(feature = "ring")]
    return rustls::crypto::ring::default_provider();
    #[cfg(not(feature = "ring"))]
    return rustls::crypto::aws_lc_rs::default_provider();
}

/// Answers each handshake with the certificate that is served at that moment.
struct Resolver(watch::Receiver<Option<Arc<Served>>>);

pub(crate) fn resolver(served: watch::Receiver<Option<Arc<Served>>>) -> Arc<dyn ResolvesServerCert> {
    Arc::new(Resolver(served))
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.borrow().as_ref().map(|served| Arc::clone(&served.key))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Resolver").finish_non_exhaustive()
    }
}
