//! Verdicts on routes: what becomes of each parent that is a Service.

use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::http_route::ParentRef;
use crate::pilot::world::names::PortName;

/// Why a route is taken over as it is, or not; a condition of its status.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// Whether the condition is true.
    pub holds: Holds,
    /// Its reason, from the Gateway API.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Holds {
    /// `False`
    No,
    /// `True`
    Yes,
}

/// The verdict on a route.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteVerdict {
    /// The generation of the route that was read.
    pub generation: Option<i64>,
    /// Its parents that are Services, in the order of the route.
    pub parents: Vec<Verdict>,
}

/// The verdict on a route at one of its parents.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The parent, as the route writes it.
    pub parent: ParentRef,
    /// The condition `Accepted`.
    pub accepted: Finding,
    /// The condition `ResolvedRefs`.
    pub resolved: Finding,
    /// The condition `PartiallyInvalid`, which is absent unless it is true.
    pub partially_invalid: Option<Finding>,
    /// Where the rules count.
    pub attachment: Attachment,
}

/// Where the rules of a route count.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Attachment {
    /// The ports of the Service.
    pub ports: Vec<PortName>,
    /// The namespace of the clients of a consumer route; none for a producer route, which counts for all of them that have no
    /// consumer route.
    pub consumer: Option<String>,
}

/// Something in a rule that cannot be carried out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Problem {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

pub(crate) const ACCEPTED: &str = "Accepted";
pub(crate) const RESOLVED_REFS: &str = "ResolvedRefs";
pub(crate) const PARTIALLY_INVALID: &str = "PartiallyInvalid";

pub(crate) const BACKEND_NOT_FOUND: &str = "BackendNotFound";
pub(crate) const CONFLICTED: &str = "Conflicted";
pub(crate) const INCOMPATIBLE_FILTERS: &str = "IncompatibleFilters";
pub(crate) const INVALID_KIND: &str = "InvalidKind";
pub(crate) const NO_MATCHING_PARENT: &str = "NoMatchingParent";
pub(crate) const REF_NOT_PERMITTED: &str = "RefNotPermitted";
pub(crate) const UNSUPPORTED_PROTOCOL: &str = "UnsupportedProtocol";
pub(crate) const UNSUPPORTED_VALUE: &str = "UnsupportedValue";

impl Finding {
    pub(crate) fn yes(reason: &'static str, message: impl Into<String>) -> Finding {
        Finding { holds: Holds::Yes, reason, message: message.into() }
    }

    pub(crate) fn no(reason: &'static str, message: impl Into<String>) -> Finding {
        Finding { holds: Holds::No, reason, message: message.into() }
    }
}

impl Problem {
    pub(crate) fn unsupported(message: impl Into<String>) -> Problem {
        Problem { reason: UNSUPPORTED_VALUE, message: message.into() }
    }
}
