//! The server's certificate, which can be replaced between handshakes.

use crate::data_dir::pki::Pair;
use anyhow::Context as _;
use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::Arc;

/// The certificate for new handshakes.
#[derive(Debug)]
pub(crate) struct ServingCertificate {
    current: ArcSwap<CertifiedKey>,
    provider: Arc<CryptoProvider>,
}

impl ServingCertificate {
    pub(crate) fn new(pair: &Pair, provider: Arc<CryptoProvider>) -> anyhow::Result<ServingCertificate> {
        Ok(ServingCertificate { current: ArcSwap::from_pointee(certified(pair, &provider)?), provider })
    }

    /// Uses this certificate in every new handshake. Open connections are not affected.
    pub(crate) fn replace(&self, pair: &Pair) -> anyhow::Result<()> {
        self.current.store(Arc::new(certified(pair, &self.provider)?));
        Ok(())
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

fn certified(pair: &Pair, provider: &CryptoProvider) -> anyhow::Result<CertifiedKey> {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    anyhow::ensure!(!chain.is_empty(), "there is no certificate in the server's certificate file");
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
    CertifiedKey::from_der(chain, key, provider).context("the server's certificate cannot be used")
}
