//! The certificates of clients: those of users, and those of proxies that authenticate users, each with a CA of its
//! own.
//!
//! The handshake accepts any certificate whose key the client proves to have, as Go's servers do, and
//! [`ClientCertificates::peer`] verifies it. A client with an expired certificate, or one of another CA, gets an
//! answer: 401, unless it also has a valid token.

use anyhow::Context as _;
use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use std::sync::Arc;
use steersman_server::authn::{Peer, certificate_end, certificate_user};

/// Verifies clients' certificates, and identifies their holders.
#[derive(Debug)]
pub(crate) struct ClientCertificates {
    /// `None` if users cannot have certificates.
    users: Option<Arc<dyn ClientCertVerifier>>,
    /// `None` if no proxy is trusted.
    proxies: Option<Arc<dyn ClientCertVerifier>>,
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertificates {
    /// Verifies against these CAs, given as PEM.
    pub(crate) fn new(
        users: Option<&str>,
        proxies: Option<&str>,
        provider: &Arc<CryptoProvider>,
    ) -> anyhow::Result<ClientCertificates> {
        let users = users.map(|pem| verifier(pem, provider)).transpose().context("the CA is no CA")?;
        let proxies = proxies.map(|pem| verifier(pem, provider)).transpose().context("the CA of proxies is no CA")?;
        let hints = users.iter().chain(&proxies).flat_map(|ca| ca.root_hint_subjects()).cloned().collect();
        Ok(ClientCertificates { users, proxies, hints, provider: provider.clone() })
    }

    /// The holder of a connection that has shown these certificates in its handshake, verified now: a connection may
    /// resume a session that was opened when the certificate was still valid. It is valid until the first of the
    /// chain's currently valid certificates expires, since an expired one certifies nothing. `None` if a valid
    /// certificate names nobody.
    pub(crate) fn peer(&self, chain: &[CertificateDer<'_>]) -> Option<Peer> {
        let (leaf, intermediates) = chain.split_first()?;
        let now = UnixTime::now();
        let is_of = |ca: &Option<Arc<dyn ClientCertVerifier>>| {
            ca.as_ref().is_some_and(|ca| ca.verify_client_cert(leaf, intermediates, now).is_ok())
        };
        let peer = match (is_of(&self.users), is_of(&self.proxies), certificate_user(leaf)) {
            (false, false, _) => Some(Peer::refused()),
            (true, false, named) => named.map(Peer::new),
            (is_users, true, Some(named)) => Some(Peer::proxy(&named.name.clone(), is_users.then_some(named))),
            (_, true, None) => None,
        };
        let is_to_come = |end: &Timestamp| i64::try_from(now.as_secs()).is_ok_and(|now| now <= end.as_second());
        let ends = chain.iter().filter_map(|certificate| certificate_end(certificate)).filter(is_to_come).min();
        peer.map(|peer| peer.until(ends))
    }
}

impl ClientCertVerifier for ClientCertificates {
    fn offer_client_auth(&self) -> bool {
        self.users.is_some() || self.proxies.is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        // `peer` verifies it.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, leaf, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, leaf, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn verifier(pem: &str, provider: &Arc<CryptoProvider>) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

    /// A CA, and a client certificate that it has signed.
    fn ca_and_leaf(name: &str) -> (String, CertificateDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let leaf = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        (ca.pem(), leaf.der().clone())
    }

    #[test]
    fn a_certificate_of_the_proxies_ca_is_no_users() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (users, alice) = ca_and_leaf("alice");
        let (proxies, proxy) = ca_and_leaf("proxy");
        let (_, stranger) = ca_and_leaf("stranger");
        let peer = |certificates: &ClientCertificates, leaf: &CertificateDer<'static>| {
            assert!(certificates.verify_client_cert(leaf, &[], UnixTime::now()).is_ok(), "the handshake takes any");
            let peer = certificates.peer(std::slice::from_ref(leaf)).filter(Peer::is_known);
            peer.map(|peer| (peer.user_name().map(str::to_owned), peer.proxy_name().map(str::to_owned)))
        };
        let alone = ClientCertificates::new(Some(&users), None, &provider).unwrap();
        let (alice_name, proxy_name) = (Some("alice".to_owned()), Some("proxy".to_owned()));
        assert_eq!(peer(&alone, &alice), Some((alice_name.clone(), None)));
        assert_eq!(peer(&alone, &proxy), None);
        let both = ClientCertificates::new(Some(&users), Some(&proxies), &provider).unwrap();
        assert_eq!(peer(&both, &alice), Some((alice_name.clone(), None)));
        assert_eq!(peer(&both, &proxy), Some((None, proxy_name)));
        assert_eq!(peer(&both, &stranger), None);
        let same = ClientCertificates::new(Some(&users), Some(&users), &provider).unwrap();
        assert_eq!(peer(&same, &alice), Some((alice_name.clone(), alice_name)));
    }
}
