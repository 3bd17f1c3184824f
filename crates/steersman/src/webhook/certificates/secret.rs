//! The Secret in which replicas share authorities and certificates, read and written.
//!
//! Other tools expect `tls.crt`, `tls.key` and `ca.crt`. `ca.crt` is the bundle that clients must trust: the current
//! authority, the next one, former ones. `ca.key` is the key of the current authority; `next-ca.crt` and `next-ca.key`
//! are the next one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use crate::webhook::certificates::issue::{self, Pair, Validity};
use crate::webhook::certificates::plan::{Facts, Next, Step};

/// The annotation with the time since which all configurations are known to have the next authority, in seconds since
/// 1970.
const PUBLISHED: &str = "steersman.dev/next-ca-published-at";

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const BUNDLE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const NEXT: &str = "next-ca.crt";
const NEXT_KEY: &str = "next-ca.key";

/// The content of a Secret that this module writes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Stored {
    /// The authority that signs.
    authority: Pair,
    next: Option<(Pair, Option<i64>)>,
    /// Former authorities that clients still trust, PEM.
    former: Vec<String>,
    certificate: Pair,
}

/// The properties of new certificates.
#[derive(Clone, Debug)]
pub(crate) struct CertificateSpec {
    /// The name of the Secret, for the names of authorities.
    pub(crate) name: String,
    pub(crate) names: Vec<String>,
    pub(crate) certificate_lasts: Duration,
    pub(crate) authority_lasts: Duration,
}

/// The Secret has content of another origin, or lacks a part.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Foreign(String);

// === impl Stored ===

impl Stored {
    /// Reads the content of a Secret; `None` if it is empty.
    pub(crate) fn read(secret: &Secret) -> Result<Option<Self>, Foreign> {
        let Some(data) = secret.data.as_ref().filter(|data| data.values().any(|value| !value.0.is_empty())) else {
            return Ok(None);
        };
        let text = |key: &str| -> Result<String, Foreign> {
            let bytes = data.get(key).ok_or_else(|| Foreign(format!("it has no {key}")))?;
            String::from_utf8(bytes.0.clone()).map_err(|_| Foreign(format!("its {key} is no text")))
        };
        let next = match data.contains_key(NEXT) {
            false => None,
            true => {
                let published = secret.metadata.annotations.as_ref().and_then(|annotations| annotations.get(PUBLISHED));
                let next = Pair { certificate: text(NEXT)?, key: text(NEXT_KEY)? };
                Some((next, published.and_then(|published| published.parse().ok())))
            }
        };
        let mut bundle = blocks(&text(BUNDLE)?).into_iter();
        let first = bundle.next().ok_or_else(|| Foreign(format!("its {BUNDLE} has no certificate")))?;
        let former = bundle.filter(|block| next.as_ref().is_none_or(|(next, _)| next.certificate != *block)).collect();
        let certificate = Pair { certificate: text(CERTIFICATE)?, key: text(KEY)? };
        Ok(Some(Self { authority: Pair { certificate: first, key: text(AUTHORITY_KEY)? }, next, former, certificate }))
    }

    /// Puts the content into a Secret and leaves everything else in it unchanged.
    pub(crate) fn write(&self, secret: &mut Secret) {
        let data = secret.data.get_or_insert_default();
        let mut put = |key: &str, value: Option<&str>| match value {
            Some(value) => drop(data.insert(key.to_owned(), ByteString(value.as_bytes().to_vec()))),
            None => drop(data.remove(key)),
        };
        put(CERTIFICATE, Some(&self.certificate.certificate));
        put(KEY, Some(&self.certificate.key));
        put(BUNDLE, Some(&self.bundle()));
        put(AUTHORITY_KEY, Some(&self.authority.key));
        let next = self.next.as_ref();
        put(NEXT, next.map(|(next, _)| &*next.certificate));
        put(NEXT_KEY, next.map(|(next, _)| &*next.key));
        let annotations = secret.metadata.annotations.get_or_insert_with(BTreeMap::new);
        match next.and_then(|(_, published)| *published) {
            Some(published) => drop(annotations.insert(PUBLISHED.to_owned(), published.to_string())),
            None => drop(annotations.remove(PUBLISHED)),
        }
    }

    /// The certificates that clients must trust, PEM.
    pub(crate) fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|(next, _)| &next.certificate);
        let all = [&self.authority.certificate].into_iter().chain(next).chain(&self.former);
        all.map(String::as_str).collect()
    }

    pub(crate) fn certificate(&self) -> &Pair {
        &self.certificate
    }

    pub(crate) fn facts(&self, names: &[String]) -> Result<Facts, Foreign> {
        let authority = Parsed::of(&self.authority.certificate, BUNDLE)?;
        let certificate = Parsed::of(&self.certificate.certificate, CERTIFICATE)?;
        let next = match &self.next {
            None => None,
            Some((next, published)) => {
                Some(Next { validity: Parsed::of(&next.certificate, NEXT)?.validity, published: *published })
            }
        };
        let is_named = names.iter().all(|name| certificate.names.contains(name));
        Ok(Facts {
            authority: authority.validity,
            next,
            certificate: certificate.validity,
            is_certificate_fit: is_named && certificate.issuer == authority.subject,
        })
    }

    /// The content to store after `step`.
    pub(crate) fn after(
        stored: Option<&Self>,
        step: Step,
        wanted: &CertificateSpec,
        now: i64,
    ) -> Result<Option<Self>, rcgen::Error> {
        let authority = || issue::authority(&wanted.name, Validity::from(now, wanted.authority_lasts));
        let new = match (step, stored) {
            (Step::Wait { .. }, _) => return Ok(None),
            (Step::Begin, _) | (_, None) => {
                let authority = authority()?;
                let certificate = certificate(&authority, wanted, now)?;
                Self { authority, next: None, former: Vec::new(), certificate }
            }
            (Step::Introduce, Some(stored)) => Self { next: Some((authority()?, None)), ..stored.clone() },
            (Step::Renew, Some(stored)) => {
                Self { certificate: certificate(&stored.authority, wanted, now)?, ..stored.clone() }
            }
            (Step::Promote, Some(stored)) => {
                let Some((next, _)) = &stored.next else { return Ok(None) };
                let former = [&stored.authority.certificate].into_iter().chain(&stored.former);
                let is_trusted = |pem: &&String| Parsed::of(pem, BUNDLE).is_ok_and(|of| now < of.validity.not_after);
                Self {
                    certificate: certificate(next, wanted, now)?,
                    former: former.filter(is_trusted).cloned().collect(),
                    authority: next.clone(),
                    next: None,
                }
            }
        };
        Ok(Some(new))
    }

    /// The content after all configurations are known to have the next authority, since `now`; `None` where that is
    /// recorded already, or no next authority exists.
    pub(crate) fn published(&self, now: i64) -> Option<Self> {
        match &self.next {
            Some((next, None)) => Some(Self { next: Some((next.clone(), Some(now))), ..self.clone() }),
            _ => None,
        }
    }
}

fn certificate(authority: &Pair, wanted: &CertificateSpec, now: i64) -> Result<Pair, rcgen::Error> {
    let mut validity = Validity::from(now, wanted.certificate_lasts);
    // A certificate must not outlive its authority, which clients check too.
    if let Ok(authority) = Parsed::of(&authority.certificate, BUNDLE) {
        validity.not_after = validity.not_after.min(authority.validity.not_after);
    }
    issue::certificate(authority, &wanted.names, validity)
}

/// The certificates of a PEM text, each with its frame and a line end.
fn blocks(text: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let parts = text.split_inclusive(END).filter(|part| part.trim_end().ends_with(END));
    parts.map(|part| part.trim_start().to_owned() + "\n").collect()
}

/// The parts of a certificate that are used here.
struct Parsed {
    validity: Validity,
    subject: Vec<u8>,
    issuer: Vec<u8>,
    names: Vec<String>,
}

impl Parsed {
    fn of(pem: &str, key: &str) -> Result<Self, Foreign> {
        let unreadable = |error: String| Foreign(format!("its {key} is no certificate: {error}"));
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| unreadable(error.to_string()))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|error| unreadable(error.to_string()))?;
        let validity = parsed.validity();
        Ok(Self {
            validity: Validity {
                not_before: validity.not_before.timestamp(),
                not_after: validity.not_after.timestamp(),
            },
            subject: parsed.subject().as_raw().to_vec(),
            issuer: parsed.issuer().as_raw().to_vec(),
            names: names(&parsed),
        })
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|extension| &*extension.value.general_names).unwrap_or_default();
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(octets) => match octets.len() {
            4 => <[u8; 4]>::try_from(*octets).ok().map(|octets| IpAddr::from(octets).to_string()),
            _ => <[u8; 16]>::try_from(*octets).ok().map(|octets| IpAddr::from(octets).to_string()),
        },
        _ => None,
    };
    names.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests;
