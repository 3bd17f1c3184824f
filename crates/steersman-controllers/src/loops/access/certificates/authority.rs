//! A certificate authority: its certificate and key, and the certificates that it issues for requests.
//!
//! The subject and the key of a request are copied byte by byte: a subject may have several organizations, and each of
//! them is a group of the user.

use crate::loops::access::certificates::der;
use crate::loops::access::certificates::signer::{self, Signer};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use rcgen::{KeyPair, SigningKey as _};
use std::fmt;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

/// A request that asks for less gets this, as in kube-controller-manager.
const LIFETIME_MIN: SignedDuration = SignedDuration::from_mins(10);
/// Certificates of at least this lifetime are valid from a little earlier on, for peers whose clocks are slow, and
/// expire that much earlier. Shorter ones are not shortened.
const SHORT: SignedDuration = SignedDuration::from_hours(8);
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
const SERIAL_BYTES: usize = 16;

// Object identifiers, in DER.
const KEY_USAGE: &[u8] = &[0x06, 3, 0x55, 0x1d, 0x0f];
const ALTERNATIVE_NAMES: &[u8] = &[0x06, 3, 0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x06, 3, 0x55, 0x1d, 0x13];
const AUTHORITY_KEY: &[u8] = &[0x06, 3, 0x55, 0x1d, 0x23];
const EXTENDED_KEY_USAGE: &[u8] = &[0x06, 3, 0x55, 0x1d, 0x25];
const SERVER_AUTH: &[u8] = &[0x06, 8, 0x2b, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTH: &[u8] = &[0x06, 8, 0x2b, 6, 1, 5, 5, 7, 3, 2];
const TRUE: &[u8] = &[0x01, 1, 0xff];

/// Signs certificates.
pub struct Authority {
    key: KeyPair,
    /// The subject of its certificate, which is the issuer of the certificates that it signs.
    name: Vec<u8>,
    /// The identifier of its key, if its certificate has one.
    key_id: Option<Vec<u8>>,
    not_after: Timestamp,
    /// The signature algorithm, in DER.
    algorithm: Vec<u8>,
    /// The lifetime of a certificate if the request does not name one, and the longest one.
    lifetime: SignedDuration,
}

/// Why a certificate and a key cannot be used as an authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The certificate cannot be read.
    #[error("the certificate of the authority cannot be read")]
    Certificate,
    /// The key cannot be read.
    #[error("the key of the authority cannot be read")]
    Key(#[source] rcgen::Error),
    /// The key is of a kind that is not supported.
    #[error("the key of the authority is neither ECDSA (P-256, P-384), Ed25519 nor RSA")]
    KeyKind,
}

/// Why a request is not signed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignError {
    #[error("the key of the authority cannot sign")]
    Key(#[source] rcgen::Error),
    /// The request breaks the signer's rules; the text is for its author.
    #[error("{0}")]
    Refused(String),
}

impl Authority {
    /// The lifetime of certificates unless another is set, as in kube-controller-manager: a year.
    pub const LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);

    /// An authority from its certificate and key, both PEM.
    ///
    /// # Errors
    /// When either cannot be used.
    pub fn new(certificate: &str, key: &str) -> Result<Authority, AuthorityError> {
        let key = KeyPair::from_pem(key).map_err(AuthorityError::Key)?;
        let block = Pem::iter_from_buffer(certificate.as_bytes()).next().and_then(Result::ok);
        let block = block.ok_or(AuthorityError::Certificate)?;
        let certificate = block.parse_x509().map_err(|_| AuthorityError::Certificate)?;
        let key_id = certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        let not_after = certificate.validity().not_after.timestamp();
        Ok(Authority {
            name: certificate.subject().as_raw().to_vec(),
            key_id,
            not_after: Timestamp::from_second(not_after).map_err(|_| AuthorityError::Certificate)?,
            algorithm: algorithm(&key).ok_or(AuthorityError::KeyKind)?,
            key,
            lifetime: Authority::LIFETIME,
        })
    }

    /// Sets the lifetime of a certificate whose request does not name one. It is also the longest one.
    #[must_use]
    pub fn with_lifetime(mut self, lifetime: SignedDuration) -> Authority {
        self.lifetime = lifetime;
        self
    }

    /// The certificate for a request, as PEM.
    pub(crate) fn sign(
        &self,
        signer: Signer,
        spec: &CertificateSigningRequestSpec,
        now: Timestamp,
    ) -> Result<String, SignError> {
        let refused = |why: &str| SignError::Refused(why.to_owned());
        let block = Pem::iter_from_buffer(&spec.request.0).next().and_then(Result::ok);
        let block = block.ok_or_else(|| refused("PEM block type must be CERTIFICATE REQUEST"))?;
        let (_, request) = X509CertificationRequest::from_der(&block.contents)
            .map_err(|_| refused("unable to parse certificate request"))?;
        request.verify_signature().map_err(|_| refused("unable to verify certificate request signature"))?;
        let usages = spec.usages.as_deref().unwrap_or_default();
        if let Some(fault) = signer.fault(&request, usages) {
            return Err(SignError::Refused(fault));
        }
        let (from, to) = self.validity(spec.expiration_seconds, now);
        if to <= now {
            return Err(refused("the certificate of the authority has ended"));
        }
        let body = self.body(&request, usages, from, to);
        let signature = self.key.sign(&body).map_err(SignError::Key)?;
        let certificate = der::sequence(&[&body, &self.algorithm, &der::bits(&signature)]);
        Ok(pem(&certificate))
    }

    /// The start and the end of a certificate's validity.
    fn validity(&self, seconds: Option<i32>, now: Timestamp) -> (Timestamp, Timestamp) {
        let lifetime = match seconds.map(|seconds| SignedDuration::from_secs(seconds.into())) {
            Some(asked) if asked <= self.lifetime => asked.max(LIFETIME_MIN),
            Some(_) | None => self.lifetime,
        };
        let from = now - BACKDATE;
        let to = if lifetime < SHORT { now } else { from }.checked_add(lifetime);
        (from, to.map_or(self.not_after, |to| to.min(self.not_after)))
    }

    /// The signed part of a certificate: the TBSCertificate of RFC 5280.
    fn body(
        &self,
        request: &X509CertificationRequest<'_>,
        usages: &[String],
        from: Timestamp,
        to: Timestamp,
    ) -> Vec<u8> {
        let mut serial = rand::random::<[u8; SERIAL_BYTES]>();
        // Positive, and of fixed length.
        serial[0] = serial[0] & 0x7f | 0x40;
        let version = der::value(0xa0, &[0x02, 1, 2]);
        let validity = der::sequence(&[&der::time(from), &der::time(to)]);
        let info = &request.certification_request_info;
        let extensions = der::value(0xa3, &der::value(0x30, &self.extensions(request, usages)));
        der::sequence(&[
            &version,
            &der::integer(&serial),
            &self.algorithm,
            &self.name,
            &validity,
            info.subject.as_raw(),
            info.subject_pki.raw,
            &extensions,
        ])
    }

    fn extensions(&self, request: &X509CertificationRequest<'_>, usages: &[String]) -> Vec<u8> {
        let has = |usage: &str| usages.iter().any(|one| one == usage);
        let mut key_usage = 0;
        for (usage, bit) in [("digital signature", 0x80), ("key encipherment", 0x20)] {
            key_usage |= if has(usage) { bit } else { 0 };
        }
        let purposes = [("server auth", SERVER_AUTH), ("client auth", CLIENT_AUTH)];
        let purposes: Vec<&[u8]> = purposes.into_iter().filter(|(usage, _)| has(usage)).map(|(_, id)| id).collect();
        let mut extensions = Vec::new();
        if key_usage != 0 {
            extensions.push(der::sequence(&[KEY_USAGE, TRUE, &der::octets(&der::flags(key_usage))]));
        }
        if !purposes.is_empty() {
            extensions.push(der::sequence(&[EXTENDED_KEY_USAGE, &der::octets(&der::sequence(&purposes))]));
        }
        extensions.push(der::sequence(&[BASIC_CONSTRAINTS, TRUE, &der::octets(&der::sequence(&[]))]));
        if let Some(id) = &self.key_id {
            let id = der::sequence(&[&der::value(0x80, id)]);
            extensions.push(der::sequence(&[AUTHORITY_KEY, &der::octets(&id)]));
        }
        if let Some(names) = alternative_names(request) {
            extensions.push(der::sequence(&[ALTERNATIVE_NAMES, &der::octets(&names)]));
        }
        extensions.concat()
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

/// The alternative names of a certificate, in DER: the request's names of the kinds that the signers know.
fn alternative_names(request: &X509CertificationRequest<'_>) -> Option<Vec<u8>> {
    let names = signer::alternative_names(request)?.general_names.iter().filter_map(|name| match name {
        GeneralName::RFC822Name(name) => Some(der::value(0x81, name.as_bytes())),
        GeneralName::DNSName(name) => Some(der::value(0x82, name.as_bytes())),
        GeneralName::URI(name) => Some(der::value(0x86, name.as_bytes())),
        GeneralName::IPAddress(address) => Some(der::value(0x87, address)),
        _ => None,
    });
    let names = names.collect::<Vec<_>>().concat();
    (!names.is_empty()).then(|| der::sequence(&[&names]))
}

/// The signature algorithm of a key, as an AlgorithmIdentifier.
fn algorithm(key: &KeyPair) -> Option<Vec<u8>> {
    const ECDSA_SHA256: &[u8] = &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    const ECDSA_SHA384: &[u8] = &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3];
    const ED25519: &[u8] = &[0x06, 3, 0x2b, 0x65, 0x70];
    const RSA_SHA256: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11];
    const NULL: &[u8] = &[0x05, 0];
    let of = key.algorithm();
    if *of == rcgen::PKCS_ECDSA_P256_SHA256 {
        Some(der::sequence(&[ECDSA_SHA256]))
    } else if *of == rcgen::PKCS_ECDSA_P384_SHA384 {
        Some(der::sequence(&[ECDSA_SHA384]))
    } else if *of == rcgen::PKCS_ED25519 {
        Some(der::sequence(&[ED25519]))
    } else if *of == rcgen::PKCS_RSA_SHA256 {
        Some(der::sequence(&[RSA_SHA256, NULL]))
    } else {
        None
    }
}

fn pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa};
    use x509_parser::certificate::X509Certificate;

    fn now() -> Timestamp {
        "2026-06-01T00:00:00Z".parse().unwrap()
    }

    fn authority(kind: &'static rcgen::SignatureAlgorithm) -> (Authority, String) {
        let key = KeyPair::generate_for(kind).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.distinguished_name.push(DnType::CommonName, "test-ca");
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let certificate = params.self_signed(&key).unwrap().pem();
        (Authority::new(&certificate, &key.serialize_pem()).unwrap(), certificate)
    }

    fn spec(usages: &[&str], seconds: Option<i32>) -> CertificateSigningRequestSpec {
        let mut params = CertificateParams::new(vec!["a.example.com".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "carol");
        params.distinguished_name.push(DnType::OrganizationName, "developers");
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        CertificateSigningRequestSpec {
            request: k8s_openapi::ByteString(request.into_bytes()),
            usages: Some(usages.iter().map(|usage| (*usage).to_owned()).collect()),
            expiration_seconds: seconds,
            ..CertificateSigningRequestSpec::default()
        }
    }

    #[test]
    fn a_certificate_is_of_who_asked_and_signed_by_the_authority() {
        for kind in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
            let (authority, ca) = authority(kind);
            let spec = spec(&["client auth", "digital signature"], Some(3600));
            let made = authority.sign(Signer::Client, &spec, now()).unwrap();
            let made = Pem::iter_from_buffer(made.as_bytes()).next().unwrap().unwrap();
            let ca = Pem::iter_from_buffer(ca.as_bytes()).next().unwrap().unwrap();
            let (made, ca): (X509Certificate<'_>, _) = (made.parse_x509().unwrap(), ca.parse_x509().unwrap());
            made.verify_signature(Some(ca.public_key())).unwrap();
            assert_eq!(made.issuer(), ca.subject());
            assert_eq!(made.subject().to_string(), "CN=carol, O=developers");
            assert_eq!(made.validity().not_before.timestamp(), now().as_second() - 300);
            assert_eq!(made.validity().not_after.timestamp(), now().as_second() + 3600);
            assert!(!made.is_ca());
            let purposes = made.extended_key_usage().unwrap().unwrap().value;
            assert!(purposes.client_auth && !purposes.server_auth);
            let usage = made.key_usage().unwrap().unwrap().value;
            assert!(usage.digital_signature() && !usage.key_encipherment());
            assert_eq!(made.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 1);
        }
    }

    #[test]
    fn no_certificate_outlives_its_authority() {
        let (authority, _) = authority(&rcgen::PKCS_ECDSA_P256_SHA256);
        let end = |seconds, now: &str| authority.validity(seconds, now.parse().unwrap()).1.to_string();
        assert_eq!(end(None, "2026-06-01T00:00:00Z"), "2027-05-31T23:55:00Z");
        assert_eq!(end(Some(60), "2026-06-01T00:00:00Z"), "2026-06-01T00:10:00Z");
        assert_eq!(end(Some(i32::MAX), "2029-06-01T00:00:00Z"), "2030-01-01T00:00:00Z");
        let short = authority.with_lifetime(SignedDuration::from_mins(3));
        let end = |seconds| short.validity(seconds, now()).1.to_string();
        assert_eq!(end(None), "2026-06-01T00:03:00Z");
        assert_eq!(end(Some(3600)), "2026-06-01T00:03:00Z");
        assert_eq!(end(Some(60)), "2026-06-01T00:10:00Z");
        let long = short.with_lifetime(SignedDuration::MAX);
        assert_eq!(long.validity(None, now()).1.to_string(), "2030-01-01T00:00:00Z");
    }

    #[test]
    fn what_breaks_the_rules_of_its_signer_is_refused() {
        let (authority, _) = authority(&rcgen::PKCS_ECDSA_P256_SHA256);
        let error = authority.sign(Signer::Client, &spec(&["server auth"], None), now()).unwrap_err();
        assert_eq!(error.to_string(), "invalid usage for client certificate: server auth");
        let mut spec = spec(&["client auth"], None);
        spec.request.0.truncate(10);
        assert!(matches!(authority.sign(Signer::Client, &spec, now()), Err(SignError::Refused(_))));
    }
}
