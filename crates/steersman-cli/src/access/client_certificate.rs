//! The certificates that this server shows to others, from the files that the options name.

use crate::Failure;
use crate::data_dir::pki::Pair;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use steersman_server::webhook::Identity;

/// A file, and the flag that names it.
pub(crate) type FromFlag<'a> = (&'static str, Option<&'a PathBuf>);

/// Reads a certificate and its key, if the flags name them.
///
/// # Errors
/// When a file cannot be read, or has no certificate or no key.
pub(crate) fn read(certificate: FromFlag<'_>, key: FromFlag<'_>) -> Result<Option<Identity>, Failure> {
    let ((certificate_flag, Some(certificate)), (key_flag, Some(key))) = (certificate, key) else { return Ok(None) };
    let pem = authority(certificate_flag, certificate)?;
    let secret = file(key_flag, key)?;
    PrivateKeyDer::from_pem_slice(&secret)
        .map_err(|error| Failure::Refused(format!("{key_flag}: {} has no key: {error}", key.display())))?;
    Ok(Some(Identity { certificate: pem, key: secret }))
}

/// Reads certificates alone.
///
/// # Errors
/// When the file cannot be read, or has none.
pub(crate) fn authority(flag: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    let pem = file(flag, path)?;
    CertificateDer::from_pem_slice(&pem)
        .map_err(|error| Failure::Refused(format!("{flag}: {} has no certificate: {error}", path.display())))?;
    Ok(pem)
}

/// A certificate that was made where none is given.
pub(crate) fn made(pair: &Pair) -> Identity {
    Identity { certificate: pair.certificate.clone().into_bytes(), key: pair.key.clone().into_bytes() }
}

fn file(flag: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::Refused(format!("{flag}: {} cannot be read: {error}", path.display())))
}
