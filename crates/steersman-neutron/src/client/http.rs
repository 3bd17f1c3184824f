//! Requests to a server with bounds on time and size, and errors that say what is known when no answer comes.

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;

use crate::answer::Answer;
use crate::config::{self, Limits};
use crate::error::{Call, Cause, Detail, Error};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-openstack-request-id");

/// Idle connections are closed after this long; servers close theirs later, so requests rarely meet a closed one.
const IDLE: std::time::Duration = std::time::Duration::from_secs(20);

/// Idle connections kept to one host.
const IDLE_CONNECTIONS_MAX: usize = 8;

/// Connections and the certificate authorities that they trust.
#[derive(Debug)]
pub(crate) struct Http {
    plain: reqwest::Client,
    /// Made when first needed: reading the system's authorities takes time, which a cloud without TLS does not need.
    tls: OnceLock<reqwest::Client>,
    ca_certificates: Vec<CertificateDer<'static>>,
    limits: Limits,
}

/// A request.
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// The body, as JSON.
    pub(crate) body: Option<Vec<u8>>,
}

/// A successful answer.
pub(crate) struct Received {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Http {
    pub(crate) fn new(ca_certificates: Option<Vec<u8>>, limits: Limits) -> Result<Self, config::Error> {
        let refuse = |reason: String| config::Error::Tls { reason };
        let ca_certificates = match ca_certificates {
            Some(pem) => {
                let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
                let certificates = certificates.map_err(|error| refuse(format!("cacert: {error}")))?;
                if certificates.is_empty() {
                    return Err(refuse("cacert has no certificate in PEM form".to_owned()));
                }
                certificates
            }
            None => Vec::new(),
        };
        let plain = builder(limits).build().map_err(|error| refuse(error.to_string()))?;
        Ok(Self { plain, tls: OnceLock::new(), ca_certificates, limits })
    }

    /// Sends a request; an answer other than success is an error.
    pub(crate) async fn exchange(&self, call: &Call, outgoing: Outgoing) -> Result<Received, Error> {
        let address = address_of(&outgoing.url);
        let client = match outgoing.url.scheme() {
            "https" => {
                self.tls().map_err(|detail| call.clone().unsent(Cause::Connect { address: address.clone(), detail }))?
            }
            _ => &self.plain,
        };
        let mut request = client.request(outgoing.method, outgoing.url).header(REQUEST_ID, call.request.to_string());
        for (name, value) in outgoing.headers {
            request = request.header(name, value);
        }
        if let Some(body) = outgoing.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let response = request.send().await.map_err(|error| self.lost(call, &address, error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = self.body(call, &address, response).await?;
        if status.is_success() {
            return Ok(Received { headers, body });
        }
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let answer = Answer::parse(status.as_u16(), &body, text(RETRY_AFTER), text(REQUEST_ID), Timestamp::now());
        tracing::debug!(%call, request = %call.request, %answer, "refused");
        Err(call.clone().answered(answer))
    }

    async fn body(&self, call: &Call, address: &str, mut response: reqwest::Response) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.lost(call, address, error))? {
            if self.limits.answer_bytes_max < body.len() + chunk.len() {
                return Err(call.clone().unanswered(Cause::TooLarge(self.limits.answer_bytes_max)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// The error of a request without an answer. A connection that was never made carried no request; with any later
    /// failure the request may have arrived.
    fn lost(&self, call: &Call, address: &str, error: reqwest::Error) -> Error {
        let call = call.clone();
        let error = error.without_url();
        if error.is_connect() || error.is_builder() {
            return call.unsent(Cause::Connect { address: address.to_owned(), detail: Detail::new(error) });
        }
        if error.is_timeout() {
            return call.unanswered(Cause::Timeout(self.limits.timeout));
        }
        call.unanswered(Cause::Broken(Detail::new(error)))
    }

    fn tls(&self) -> Result<&reqwest::Client, Detail> {
        if let Some(client) = self.tls.get() {
            return Ok(client);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier::new_with_extra_roots(self.ca_certificates.iter().cloned(), provider.clone())
            .map_err(Detail::new)?;
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Detail::new)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        let client = builder(self.limits).tls_backend_preconfigured(tls).build().map_err(Detail::new)?;
        Ok(self.tls.get_or_init(|| client))
    }
}

/// The settings of every connection. The TLS of this builder trusts no authority, so that `https` without a verifier
/// fails closed.
fn builder(limits: Limits) -> reqwest::ClientBuilder {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = reqwest::Client::builder()
        .connect_timeout(limits.connect_timeout)
        .timeout(limits.timeout)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .http1_only()
        .user_agent(concat!("steersman/", env!("CARGO_PKG_VERSION")));
    match rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions() {
        Ok(tls) => builder.tls_backend_preconfigured(
            tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth(),
        ),
        Err(_) => builder,
    }
}

fn address_of(url: &Url) -> String {
    url.origin().ascii_serialization()
}
