//! The server at its boundary: requests in, answers out, through its service. Tests assert what a client can see, and
//! where it matters the content of the store.
//!
//! Recorded answers of a real server are compared elsewhere; these tests cover cases that recordings show badly:
//! concurrency, compacted history, slow clients, failures.
#![expect(clippy::unwrap_used, reason = "everything here is a test; clippy recognises only the functions marked so")]

mod access;
mod addresses;
mod admission_webhooks;
mod api_services;
mod audit;
mod bodies;
mod broken_store;
mod budgets;
mod certificates;
mod classes;
mod concurrency;
mod conversion;
mod damage;
mod definitions;
mod embedding;
mod engine;
mod flow;
mod flowcontrol;
mod heavy;
mod in_force;
mod initializers;
mod interrupted;
mod limits;
mod lists;
mod made_at_start;
mod metrics;
mod plugins;
mod pod_parts;
mod pod_security;
mod pods;
mod policies;
mod protobuf;
mod quotas;
mod resource_metrics;
mod reviews;
mod rewriting;
mod roles;
mod rules;
mod served;
mod services;
mod support;
mod tokens;
mod watch_permission;
mod watches;
mod webhooks;
mod writes;
