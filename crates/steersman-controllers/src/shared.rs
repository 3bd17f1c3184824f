//! The modules that several loops use.

pub(crate) mod clock;
pub(crate) mod dependents;
pub(crate) mod discovery;
pub(crate) mod host_port;
pub(crate) mod labels;
pub(crate) mod namespaces;
pub(crate) mod note;
pub(crate) mod pods;
pub(crate) mod refusal;
pub(crate) mod selectors;
pub(crate) mod served;
pub(crate) mod sparse;
pub(crate) mod stale;
pub(crate) mod tolerations;
