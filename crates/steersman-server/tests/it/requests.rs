//! Requests and answers: bodies, formats, lists, watches, limits.

pub(crate) mod aggregation;
pub(crate) mod bodies;
pub(crate) mod embedding;
pub(crate) mod interrupted;
pub(crate) mod limits;
pub(crate) mod lists;
pub(crate) mod metrics;
pub(crate) mod nodes;
pub(crate) mod protobuf;
pub(crate) mod watches;
pub(crate) mod writes;
