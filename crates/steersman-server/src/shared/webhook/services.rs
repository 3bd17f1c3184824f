//! Where Services are called, as configured at the start of the server.

use http::Uri;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The URLs of Services that are called elsewhere, and the kind of address at which the others are called.
#[derive(Clone, Debug, Default)]
pub struct Services {
    mapped: BTreeMap<(String, String), BTreeMap<Option<u16>, Base>>,
    pub(super) route: Route,
}

/// The address of a Service to which calls go.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Route {
    /// One of its ready endpoints, or the cluster IP of a Service that has no Endpoints object.
    #[default]
    Endpoints,
    /// Its cluster IP, to which something on this machine must route.
    ClusterIp,
}

/// The mapping of a Service to a URL: `NAMESPACE/NAME[:PORT]=URL`.
///
/// The URL is `https://HOST[:PORT]`, or `http://` with a loopback address: reviews contain Secrets, which must not be
/// sent unencrypted. The path is that of the configuration. Over TLS the certificate must be valid for
/// `NAME.NAMESPACE.svc`, as in a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mapping {
    namespace: String,
    name: String,
    /// The port of the Service; `None`: all ports.
    port: Option<u16>,
    base: Base,
}

/// Scheme, host and port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::shared) struct Base {
    pub(in crate::shared) is_tls: bool,
    pub(in crate::shared) authority: String,
}

/// Why mappings are invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MappingError {
    /// The text does not have the form of a mapping.
    #[error("want NAMESPACE/NAME[:PORT]=URL, such as default/hook=https://127.0.0.1:8443")]
    Form,
    /// One Service and port is mapped twice.
    #[error("the service {service} is mapped twice: leave one out")]
    Twice { service: String },
    /// The URL cannot be used.
    #[error("the URL {url:?} {why}")]
    Url { url: String, why: &'static str },
}

impl Services {
    /// # Errors
    /// When a Service is mapped twice.
    pub fn new(mappings: impl IntoIterator<Item = Mapping>) -> Result<Services, MappingError> {
        let mut services = Services::default();
        for mapping in mappings {
            let service = mapping.to_string();
            let Mapping { namespace, name, port, base } = mapping;
            let ports = services.mapped.entry((namespace, name)).or_default();
            if ports.insert(port, base).is_some() {
                return Err(MappingError::Twice { service });
            }
        }
        Ok(services)
    }

    /// The addresses to which calls to the other Services go; endpoints, unless this says something else.
    #[must_use]
    pub fn with_route(self, route: Route) -> Services {
        Services { route, ..self }
    }

    /// The mapped address of a Service's port. A mapping of the port takes precedence over one of all ports.
    pub(super) fn find(&self, namespace: &str, name: &str, port: u16) -> Option<&Base> {
        let ports = self.mapped.get(&(namespace.to_owned(), name.to_owned()))?;
        ports.get(&Some(port)).or_else(|| ports.get(&None))
    }
}

impl FromStr for Mapping {
    type Err = MappingError;

    fn from_str(text: &str) -> Result<Mapping, MappingError> {
        let (service, url) = text.split_once('=').ok_or(MappingError::Form)?;
        let (namespace, rest) = service.split_once('/').ok_or(MappingError::Form)?;
        let (name, port) = match rest.split_once(':') {
            None => (rest, None),
            Some((name, port)) => {
                let port = port.parse().ok().filter(|port| *port > 0).ok_or(MappingError::Form)?;
                (name, Some(port))
            }
        };
        let is_name = |text: &str| steersman_machinery::name::dns1123_subdomain(text).is_empty();
        if !is_name(namespace) || !is_name(name) {
            return Err(MappingError::Form);
        }
        Ok(Mapping { namespace: namespace.to_owned(), name: name.to_owned(), port, base: base(url)? })
    }
}

fn base(url: &str) -> Result<Base, MappingError> {
    let wrong = |why| MappingError::Url { url: url.to_owned(), why };
    let uri: Uri = url.parse().map_err(|_| wrong("cannot be read: want https://HOST[:PORT]"))?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(wrong("has no scheme or no host: want https://HOST[:PORT]"));
    };
    if authority.as_str().contains('@') || authority.host().is_empty() {
        return Err(wrong("has a user or no host: want https://HOST[:PORT]"));
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(wrong("has a path: leave it out, since the configuration of the webhook says which"));
    }
    let is_tls = match scheme {
        "https" => true,
        "http" if is_loopback(authority.host()) => false,
        "http" => {
            return Err(wrong("is without TLS and leaves this machine: want https, or http with a loopback address"));
        }
        _ => return Err(wrong("is not of HTTP: want https://HOST[:PORT]")),
    };
    Ok(Base { is_tls, authority: authority.as_str().to_owned() })
}

fn is_loopback(host: &str) -> bool {
    let address: Option<IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mapping { namespace, name, port, .. } = self;
        match port {
            None => write!(f, "{namespace}/{name}"),
            Some(port) => write!(f, "{namespace}/{name}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(text: &str, want: &str) {
        let error = text.parse::<Mapping>().unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }

    #[test]
    fn a_port_of_its_own_counts_before_all_ports() {
        let mappings = ["a/b=https://h", "a/b:8443=http://127.0.0.1:9/", "a/c:1=http://[::1]:9"];
        let services = Services::new(mappings.map(|text| text.parse().unwrap())).unwrap();
        let find = |name: &str, port| services.find("a", name, port).map(|base| (base.is_tls, base.authority.as_str()));
        assert_eq!(find("b", 443), Some((true, "h")));
        assert_eq!(find("b", 8443), Some((false, "127.0.0.1:9")));
        assert_eq!((find("c", 1), find("c", 443)), (Some((false, "[::1]:9")), None));
        let twice = ["a/b:1=https://h", "a/b:1=https://i"].map(|text| text.parse().unwrap());
        assert_eq!(Services::new(twice).unwrap_err().to_string(), "the service a/b:1 is mapped twice: leave one out");
    }

    #[test]
    fn what_is_no_mapping_is_refused() {
        for text in ["", "a/b", "b=https://h", "a/b:0=https://h", "a/b:x=https://h", "a/=https://h", "A/b=https://h"] {
            check_refused(text, "want NAMESPACE/NAME[:PORT]=URL");
        }
        check_refused("a/b=h", "has no scheme or no host");
        check_refused("a/b=https://u@h", "has a user");
        check_refused("a/b=https://h/path", "has a path");
        check_refused("a/b=ftp://h", "is not of HTTP");
        check_refused("a/b=http://h", "is without TLS and leaves this machine");
        check_refused("a/b=http://10.0.0.1:80", "is without TLS and leaves this machine");
    }
}
