//! The certificates of authorities in the `caBundle` of a webhook.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use steersman_machinery::Value;
use steersman_machinery::value::str_at;

/// The PEM text in the `caBundle` of a `clientConfig`; empty if there is none.
///
/// # Errors
/// When it is not base64; the text says so.
pub fn of(config: &Value) -> Result<Vec<u8>, String> {
    let Some(text) = str_at(config, &["caBundle"]) else { return Ok(Vec::new()) };
    // As Go reads it: in lines, if it was written so.
    let decoded = STANDARD.decode(text.split_ascii_whitespace().collect::<String>());
    decoded.map_err(|error| format!("its caBundle is no base64: {error}"))
}

/// The authorities in a PEM text, as certificates and as roots of trust.
///
/// # Errors
/// When there is none, or one that cannot be read; the text says which.
pub fn roots(pem: &[u8]) -> Result<(Vec<CertificateDer<'static>>, RootCertStore), String> {
    let bundle = certificates(pem)?;
    let mut roots = RootCertStore::empty();
    for certificate in &bundle {
        roots.add(certificate.clone()).map_err(|error| error.to_string())?;
    }
    Ok((bundle, roots))
}

/// The certificates in a PEM text, of which there is at least one.
///
/// # Errors
/// When there is none, or one that cannot be read.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| error.to_string())?;
    if certificates.is_empty() { Err("it has no certificate in PEM form".to_owned()) } else { Ok(certificates) }
}

/// The reason why the `caBundle` of a `clientConfig` cannot be used; `None` if it can, or there is none.
pub fn fault(config: &Value) -> Option<String> {
    match of(config) {
        Ok(pem) if pem.is_empty() => None,
        Ok(pem) => roots(&pem).err().map(|why| format!("the certificate of the authority cannot be used: {why}")),
        Err(why) => Some(why),
    }
}
