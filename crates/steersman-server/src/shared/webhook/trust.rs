//! The certificates that a bundle makes trusted: those signed by its authorities, and those in the bundle itself.
//!
//! Other TLS clients do not trust the latter, but Go's do, and so does kube-apiserver: bundles that contain only the
//! webhook's own certificate are common, for example envtest's.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{self, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::Arc;
use x509_parser::certificate::X509Certificate;

/// Verifies with the bundle's authorities, and with the certificates in the bundle itself.
#[derive(Debug)]
pub(super) struct Trust {
    pub(super) by_authority: Arc<WebPkiServerVerifier>,
    pub(super) bundle: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.bundle.iter().any(|own| own == end_entity) {
            return verify_itself(end_entity, server_name, now);
        }
        self.by_authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authority.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

/// Trusts every certificate, as an APIService with `insecureSkipTLSVerify` asks for.
#[derive(Debug)]
pub(super) struct Unverified(pub(super) WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// A certificate from the bundle must still be valid for this name, time and usage.
fn verify_itself(
    certificate: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    verify_server_name(&ParsedCertificate::try_from(certificate)?, server_name)?;
    let parsed = x509_parser::parse_x509_certificate(certificate);
    let (_, parsed) = parsed.map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < parsed.validity().not_before.timestamp() {
        return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
    }
    if parsed.validity().not_after.timestamp() < now {
        return Err(Error::InvalidCertificate(CertificateError::Expired));
    }
    if !is_for_servers(&parsed) {
        return Err(Error::InvalidCertificate(CertificateError::InvalidPurpose));
    }
    Ok(ServerCertVerified::assertion())
}

fn is_for_servers(certificate: &X509Certificate<'_>) -> bool {
    match certificate.extended_key_usage() {
        Ok(None) => true,
        Ok(Some(usage)) => usage.value.server_auth || usage.value.any,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair};
    use rustls::RootCertStore;
    use std::time::Duration;

    const YEAR_2026: u64 = 1_770_000_000;

    #[track_caller]
    fn check(usage: ExtendedKeyUsagePurpose, name: &str, seconds: u64, expected: Result<(), &str>) {
        let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2027, 1, 1);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(crypto::ring::default_provider());
        let by_authority = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let trust = Trust { by_authority, bundle: vec![certificate.clone()] };
        let name = ServerName::try_from(name).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let verified = trust.verify_server_cert(&certificate, &[], &name, &[], now);
        let refusal = verified.map(drop).map_err(|error| error.to_string());
        match expected {
            Ok(()) => assert_eq!(refusal, Ok(())),
            Err(part) => assert!(refusal.as_ref().is_err_and(|text| text.contains(part)), "{refusal:?}"),
        }
    }

    #[test]
    fn a_certificate_in_the_bundle_is_trusted_for_its_names_its_time_and_its_use() {
        let server = || ExtendedKeyUsagePurpose::ServerAuth;
        check(server(), "127.0.0.1", YEAR_2026, Ok(()));
        check(server(), "localhost", YEAR_2026, Ok(()));
        check(server(), "127.0.0.2", YEAR_2026, Err("not valid for name"));
        check(server(), "localhost", 1_700_000_000, Err("NotValidYet"));
        check(server(), "localhost", 1_900_000_000, Err("Expired"));
        check(ExtendedKeyUsagePurpose::ClientAuth, "localhost", YEAR_2026, Err("InvalidPurpose"));
    }
}
