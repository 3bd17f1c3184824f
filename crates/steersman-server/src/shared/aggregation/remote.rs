//! An APIService that leads to another server.

use crate::shared::conversion;
use crate::shared::identity::digest_cache::{Digest, digest};
use serde_json::json;
use std::fmt;
use steersman_kinds::crd::ca_bundle;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{Object, Value};

/// The port of a Service unless the APIService names another.
const PORT: u16 = 443;

/// A version of a group that another server serves, as its APIService says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Remote {
    /// The name of the APIService.
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) service: ServiceReference,
    pub(crate) verification: Verification,
    /// The priority of the group, and that of the version.
    pub(crate) priority: (i64, i64),
    /// Whether the condition `Available` is true.
    pub(crate) is_available: bool,
    /// The digest of what its owner writes: the spec, the labels and the annotations.
    pub(crate) written: Digest,
}

/// The Service that an APIService leads to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ServiceReference {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// How the certificate of the other server is verified.
#[derive(Clone, Eq, PartialEq)]
pub(crate) enum Verification {
    /// By these authorities, in PEM; empty: the system's authorities.
    Authorities(Vec<u8>),
    /// Not at all.
    Skipped,
    /// The bundle of authorities cannot be read.
    Unreadable(String),
}

impl Remote {
    /// Reads an APIService; `None` if this server itself answers for its version, or it cannot be read.
    pub(crate) fn read(object: &Object) -> Option<Remote> {
        let tree = conversion::parse(object).ok()?;
        let spec = at(&tree, &["spec"])?;
        let service = at(spec, &["service"]).filter(|service| !service.is_null())?;
        let text = |value: &Value, field: &str| str_at(value, &[field]).unwrap_or_default().to_owned();
        let number = |field: &str| at(spec, &[field]).and_then(Value::as_i64).unwrap_or(0);
        let port = at(service, &["port"]).and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let skips = at(spec, &["insecureSkipTLSVerify"]).and_then(Value::as_bool).unwrap_or(false);
        let verification = match ca_bundle::of(spec) {
            _ if skips => Verification::Skipped,
            Ok(pem) => Verification::Authorities(pem),
            Err(why) => Verification::Unreadable(why),
        };
        let mut conditions = at(&tree, &["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
        let is_available =
            conditions.any(|condition| condition["type"] == "Available" && condition["status"] == "True");
        Some(Remote {
            name: object.key.name.to_string(),
            group: text(spec, "group"),
            version: text(spec, "version"),
            service: ServiceReference {
                namespace: text(service, "namespace"),
                name: text(service, "name"),
                port: port.unwrap_or(PORT),
            },
            verification,
            priority: (number("groupPriorityMinimum"), number("versionPriority")),
            is_available,
            written: digest(json!([spec, tree["metadata"]["labels"], tree["metadata"]["annotations"]]).to_string()),
        })
    }

    /// The path of its discovery document.
    pub(crate) fn path(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }
}

impl ServiceReference {
    /// The name that the certificate of the Service must have.
    pub(crate) fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

impl fmt::Debug for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verification::Authorities(_) => "Authorities",
            Verification::Skipped => "Skipped",
            Verification::Unreadable(_) => "Unreadable",
        })
    }
}
