//! A route by itself, before it is known which Services exist: both kinds are read into this form.

use std::time::Duration;

use jiff::Timestamp;

use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::http_route::ParentRef;
use crate::pilot::world::names::RouteName;
use crate::pilot::world::route::{HeaderChanges, Match, Redirect, Retry, Rewrite};
use crate::pilot::world::verdict::Problem;

/// A route by itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Draft {
    pub(crate) name: RouteName,
    pub(crate) generation: Option<i64>,
    /// The older route counts if two rules are otherwise equal.
    pub(crate) created: Option<Timestamp>,
    pub(crate) parents: Vec<ParentRef>,
    pub(crate) rules: Vec<DraftRule>,
    /// Remarks on fields that are accepted and have no effect.
    pub(crate) remarks: Vec<String>,
}

/// A rule by itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DraftRule {
    pub(crate) name: Option<String>,
    /// Which requests, or why that cannot be told: then the rule is dropped.
    pub(crate) matches: Result<Vec<(Match, Rank)>, Problem>,
    /// The effect, or why there is none: then the requests are answered with an error.
    pub(crate) effect: Result<Effect, Problem>,
}

/// The effect of a rule.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Effect {
    pub(crate) filters: DraftFilters,
    pub(crate) backends: Vec<DraftBackend>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Retry,
}

/// The filters of a rule or of a backend.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct DraftFilters {
    pub(crate) request: HeaderChanges,
    pub(crate) response: HeaderChanges,
    pub(crate) rewrite: Option<Rewrite>,
    pub(crate) redirect: Option<Redirect>,
    pub(crate) mirrors: Vec<DraftMirror>,
}

/// Copies of requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DraftMirror {
    pub(crate) to: Reference,
    pub(crate) parts_per_million: u32,
}

/// A share of the requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DraftBackend {
    pub(crate) to: Reference,
    pub(crate) weight: u32,
    pub(crate) filters: DraftFilters,
}

/// A reference to an object that gets requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Reference {
    pub(crate) group: String,
    pub(crate) kind: String,
    /// The namespace; none is that of the route.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) port: Option<i32>,
}

/// How specific a match is: of two that a request satisfies, the lesser one counts. The fields are compared in this order, which
/// is that of the Gateway API; expressions, whose place it leaves open, stand between exact paths and prefixes.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Rank {
    /// 0 for an exact path, 1 for an expression, 2 for a prefix; always 0 for GRPCRoutes, whose lengths decide.
    pub(crate) class: u8,
    /// Counted down: the characters of the path; for GRPCRoutes of the service, then of the method.
    pub(crate) length: Most,
    pub(crate) second_length: Most,
    /// Counted down: 1 with a method of HTTP.
    pub(crate) method: Most,
    pub(crate) n_headers: Most,
    pub(crate) n_query: Most,
}

/// A number of which more comes first.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Most(std::cmp::Reverse<usize>);

impl Most {
    pub(crate) fn of(number: usize) -> Most {
        Most(std::cmp::Reverse(number))
    }
}
