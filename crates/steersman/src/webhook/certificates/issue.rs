//! Makes authorities and the certificates that they sign. ECDSA on P-256: every client supports it, and making a key
//! takes microseconds.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate and its key, both PEM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The start and end of validity, in seconds since 1970.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Validity {
    pub(crate) not_before: i64,
    pub(crate) not_after: i64,
}

impl Validity {
    /// Starts a little before `now`, for peers whose clocks are slow.
    pub(crate) fn from(now: i64, lasts: Duration) -> Self {
        let lasts = i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX / 2);
        Self { not_before: now - (lasts / 10).min(3_600), not_after: now.saturating_add(lasts) }
    }

    /// The time when two thirds are over.
    pub(crate) fn renewal(self) -> i64 {
        self.not_before + (self.not_after - self.not_before) / 3 * 2
    }
}

/// A new authority. Its name is unique, so that a certificate's issuer identifies it.
pub(crate) fn authority(name: &str, validity: Validity) -> Result<Pair, rcgen::Error> {
    let name: String = name.chars().take(40).collect();
    let name = format!("{name} {}-{:08x}", validity.not_before, rand::random::<u32>());
    let mut params = params(&name, validity);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// A certificate of `authority` for a server with these names, DNS names or addresses.
pub(crate) fn certificate(authority: &Pair, names: &[String], validity: Validity) -> Result<Pair, rcgen::Error> {
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key)?)?;
    let mut params = params(names.first().map_or("webhooks", String::as_str), validity);
    params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn params(common_name: &str, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    // X.509 allows at most 64 characters.
    let common_name: String = common_name.chars().take(64).collect();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let at = |seconds: i64| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds.max(0).cast_unsigned());
    params.not_before = at(validity.not_before);
    params.not_after = at(validity.not_after);
    params
}
