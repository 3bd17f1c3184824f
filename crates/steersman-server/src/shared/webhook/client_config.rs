//! The `clientConfig` of an object: the address of its webhook, and the authorities for its certificate.

use crate::shared::identity::digest_cache::{Digest, digest};
use http::Uri;
use std::fmt;
use std::sync::Arc;
use steersman_kinds::crd::ca_bundle;
use steersman_machinery::Value;
use steersman_machinery::value::str_at;

/// The port of a Service unless its `clientConfig` names another.
const PORT: u16 = 443;

/// The `clientConfig` of a webhook. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ClientConfig(Arc<Parts>);

struct Parts {
    target: Target,
    /// The URL in messages; calls to a Service do not go there.
    url: String,
    /// The PEM of the authorities; empty: the system's authorities.
    ca: Vec<u8>,
    ca_digest: Digest,
}

pub(super) enum Target {
    Service { namespace: String, name: String, port: u16 },
    Url(Uri),
}

/// Why a `clientConfig` cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(String);

impl ClientConfig {
    /// Parses the JSON of a `clientConfig`: `url` or `service`, and `caBundle`.
    ///
    /// # Errors
    /// When it has no address, or its bundle is not base64. The certificates in the bundle are only parsed at the first
    /// call.
    pub(crate) fn read(config: &Value) -> Result<ClientConfig, ConfigError> {
        let ca = ca_bundle::of(config).map_err(ConfigError)?;
        let (target, url) = match config.get("service").filter(|service| !service.is_null()) {
            Some(service) => of_service(service)?,
            None => {
                let url = str_at(config, &["url"]).unwrap_or_default();
                let is_usable = |uri: &Uri| uri.scheme_str() == Some("https") && uri.host().is_some();
                let uri = url.parse::<Uri>().ok().filter(is_usable);
                let uri =
                    uri.ok_or_else(|| ConfigError(format!("its URL {url:?} cannot be used: want https://HOST/PATH")))?;
                let authority = uri.authority().map_or("", |authority| authority.as_str());
                let url = format!("https://{authority}{}", clean(uri.path()));
                (Target::Url(uri), url)
            }
        };
        Ok(ClientConfig(Arc::new(Parts { target, url, ca_digest: digest(&ca), ca })))
    }

    pub(super) fn target(&self) -> &Target {
        &self.0.target
    }

    /// The URL of the webhook, without a query.
    pub(crate) fn url(&self) -> &str {
        &self.0.url
    }

    pub(super) fn path(&self) -> &str {
        let (_, rest) = self.0.url.split_once("://").unwrap_or_default();
        rest.find('/').map_or("/", |at| &rest[at..])
    }

    pub(super) fn ca(&self) -> &[u8] {
        &self.0.ca
    }

    pub(super) fn ca_digest(&self) -> Digest {
        self.0.ca_digest
    }
}

fn of_service(service: &Value) -> Result<(Target, String), ConfigError> {
    let text = |key| str_at(service, &[key]).unwrap_or_default();
    let (namespace, name, path) = (text("namespace"), text("name"), text("path"));
    let port = service.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok()).unwrap_or(PORT);
    let url = format!("https://{name}.{namespace}.svc:{port}{}", clean(path));
    if url.parse::<Uri>().is_err() {
        return Err(ConfigError(format!("the URL {url:?} of its service cannot be used")));
    }
    Ok((Target::Service { namespace: namespace.to_owned(), name: name.to_owned(), port }, url))
}

/// A path as upstream's client sends it, without empty and dotted parts and without a trailing slash. envtest makes
/// URLs with two slashes, which a Go server answers with a redirect.
fn clean(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientConfig").field(&self.url()).finish()
    }
}
