//! `tlsConfig` and `enableHTTPS`: how an extender's certificate is checked, and the certificate shown to it.

use crate::scheduler::configuration::field::{ConfigurationError, Path};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::uri::Scheme;
use kube::Config;
use kube::client::ClientBuilder;
use kube::config::AuthInfo;
use serde::Deserialize;
use serde_json::json;
use std::fs;
use x509_parser::pem::Pem;

/// Whether the document wants encryption besides what the URL says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Encryption {
    OfUrl,
    /// `enableHTTPS`: without a CA, certificates are not checked.
    Wanted,
}

/// `tlsConfig`. The data of a field take precedence over its file.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TlsDocument {
    ca_data: Option<String>,
    ca_file: Option<String>,
    cert_data: Option<String>,
    cert_file: Option<String>,
    insecure: Option<bool>,
    key_data: Option<String>,
    key_file: Option<String>,
    server_name: Option<String>,
}

/// Sets how a connection is encrypted. `extender` is the path of the entry.
pub(super) fn configure(
    connection: &mut Config,
    document: Option<TlsDocument>,
    encryption: Encryption,
    extender: &Path,
) -> Result<(), ConfigurationError> {
    let path = extender.field("tlsConfig");
    let document = document.unwrap_or_default();
    let authority = content(document.ca_data, document.ca_file, ("caData", "caFile"), &path)?;
    let certificate = content(document.cert_data, document.cert_file, ("certData", "certFile"), &path)?;
    let key = content(document.key_data, document.key_file, ("keyData", "keyFile"), &path)?;
    let is_insecure = document.insecure.unwrap_or_default();
    if is_insecure && authority.is_some() {
        return Err(path.field("insecure").wrong("it cannot be true with a CA, which would have nothing to check"));
    }
    connection.accept_invalid_certs = is_insecure || (encryption == Encryption::Wanted && authority.is_none());
    connection.tls_server_name = document.server_name.filter(|name| !name.is_empty());
    let is_checked = !connection.accept_invalid_certs && connection.cluster_url.scheme() == Some(&Scheme::HTTPS);
    connection.root_cert = match authority {
        Some((pem, path)) => Some(certificates(&pem, &path)?),
        None if is_checked => None,
        // The system's certificates are read only if the extender's certificate is checked.
        None => Some(Vec::new()),
    };
    match (certificate, key) {
        (None, None) => {}
        (Some((certificate, _)), Some((key, _))) => connection.auth_info = identity(&certificate, &key, &path)?,
        (Some((_, path)), None) => return Err(path.wrong("a certificate needs its key: keyData or keyFile")),
        (None, Some((_, path))) => return Err(path.wrong("a key needs its certificate: certData or certFile")),
    }
    // Shows what only comes out when all is put together, such as a key of another certificate.
    match ClientBuilder::try_from(connection.clone()) {
        Ok(_) => Ok(()),
        Err(error) => Err(path.wrong(format!("no connection can be made with it: {error}"))),
    }
}

/// The content of a field that is in the document or in a file, with the path of the field that it is from.
fn content(
    data: Option<String>,
    file: Option<String>,
    (data_field, file_field): (&str, &str),
    path: &Path,
) -> Result<Option<(Vec<u8>, Path)>, ConfigurationError> {
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        let path = path.field(data_field);
        return match STANDARD.decode(&data) {
            Ok(bytes) => Ok(Some((bytes, path))),
            Err(error) => Err(path.wrong(format!("it is not in base64: {error}"))),
        };
    }
    let Some(file) = file.filter(|file| !file.is_empty()) else { return Ok(None) };
    let path = path.field(file_field);
    match fs::read(&file) {
        Ok(bytes) => Ok(Some((bytes, path))),
        Err(error) => Err(path.wrong(format!("cannot read {file}: {error}"))),
    }
}

/// The certificates of a PEM text. One that is damaged is not left out, since the extender's may depend on it.
fn certificates(pem: &[u8], path: &Path) -> Result<Vec<Vec<u8>>, ConfigurationError> {
    let blocks = Pem::iter_from_buffer(pem).collect::<Result<Vec<Pem>, _>>();
    let blocks = blocks.map_err(|error| path.wrong(format!("a block of the PEM is damaged: {error}")))?;
    let certificates = blocks.into_iter().filter(|block| block.label == "CERTIFICATE");
    let certificates: Vec<Vec<u8>> = certificates.map(|block| block.contents).collect();
    match certificates.is_empty() {
        false => Ok(certificates),
        true => Err(path.wrong("there is no certificate in PEM")),
    }
}

fn identity(certificate: &[u8], key: &[u8], path: &Path) -> Result<AuthInfo, ConfigurationError> {
    let fields = json!({
        "client-certificate-data": STANDARD.encode(certificate),
        "client-key-data": STANDARD.encode(key),
    });
    serde_json::from_value(fields).map_err(|error| path.wrong(error.to_string()))
}
