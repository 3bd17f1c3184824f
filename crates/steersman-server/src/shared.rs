//! The modules that every layer uses: requests and their encodings, the operation under way, failures, budgets of computing, calls to webhooks.

/// The servers behind APIServices.
pub(crate) mod aggregation {
    pub(crate) mod discovered;
    pub(crate) mod priority;
    pub(crate) mod remote;
    pub(crate) mod remotes;
}
pub(crate) mod compute;
pub(crate) mod config_file;
pub(crate) mod conversion;
pub(crate) mod follower;
/// Digests of texts, and random ids.
pub(crate) mod identity {
    pub(crate) mod digest_cache;
    pub(crate) mod uid;
}
/// Nodes: their kubelets, and what runs on them; and the nodes whose agents run in the process of the embedder.
pub(crate) mod nodes {
    pub(crate) mod agents;
    pub(crate) mod connections;
    pub(crate) mod resource_metrics;
}
pub(crate) mod operation;
/// The parts of a request: its path, query, options, media types and body.
pub(crate) mod request {
    pub(crate) mod body;
    pub(crate) mod codec;
    pub(crate) mod memory;
    pub mod negotiate;
    pub(crate) mod options;
    pub(crate) mod passed_headers;
    pub(crate) mod payer;
    pub(crate) mod payload;
    pub mod query;
    pub mod request_info;
    pub(crate) mod unread;
}
pub mod status;
pub mod webhook;
