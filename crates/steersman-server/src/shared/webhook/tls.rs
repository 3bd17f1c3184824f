//! The client side of TLS connections: the trusted authorities, and the client certificate.

use crate::shared::webhook::trust::{Trust, Unverified};
use crate::shared::webhook::{EndpointError, Identity};
use rustls::client::{WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ConfigBuilder, WantsVerifier};
use rustls_platform_verifier::Verifier;
use std::sync::Arc;
use steersman_kinds::crd::ca_bundle;

/// Trusts the authorities in a PEM text, or the system's if it is empty. Presents the client certificate, if there is
/// one.
pub(in crate::shared) fn config(ca: &[u8], identity: Option<Identity>) -> Result<ClientConfig, EndpointError> {
    identified(trusting(ca)?, identity)
}

/// Trusts any certificate. The peer must hold its key.
pub(in crate::shared) fn unverified(identity: Option<Identity>) -> Result<ClientConfig, EndpointError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(Unverified(provider.signature_verification_algorithms));
    identified(builder(provider)?.dangerous().with_custom_certificate_verifier(verifier), identity)
}

fn identified(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: Option<Identity>,
) -> Result<ClientConfig, EndpointError> {
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    let certificates =
        ca_bundle::certificates(&identity.certificate).map_err(|why| unusable("the client certificate", why))?;
    let key = PrivateKeyDer::from_pem_slice(&identity.key)
        .map_err(|error| unusable("the key of the client certificate", error.to_string()))?;
    builder
        .with_client_auth_cert(certificates, key)
        .map_err(|error| unusable("the client certificate with its key", error.to_string()))
}

fn trusting(ca: &[u8]) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, EndpointError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = builder(provider.clone())?;
    if ca.is_empty() {
        let verifier = Verifier::new(provider);
        let verifier = verifier.map_err(|error| unusable("the authorities of this system", error.to_string()))?;
        return Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)));
    }
    let what = "the certificate of the authority";
    let (bundle, roots) = ca_bundle::roots(ca).map_err(|why| unusable(what, why))?;
    let by_authority = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let by_authority = by_authority.map_err(|error| unusable(what, error.to_string()))?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(Trust { by_authority, bundle })))
}

fn builder(provider: Arc<CryptoProvider>) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, EndpointError> {
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("TLS", error.to_string()))
}

pub(super) fn unusable(what: &'static str, why: String) -> EndpointError {
    EndpointError::Tls { what, why }
}
