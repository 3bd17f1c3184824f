//! Metrics of the encryption of stored values.
//!
//! This crate does not encrypt: the embedder, which has put the encryption below the store, passes in something that can be
//! asked ([`crate::Server::report_encryption`]).

use crate::metrics::text::{Text, Type};
use std::fmt::Debug;

/// The encryption of stored values, asked at each scrape and health check.
pub trait StorageEncryption: Debug + Send + Sync {
    /// Whether the key management services are well, or what is wrong with them; `None` if there is nothing to check.
    fn health(&self) -> Option<Result<(), String>>;

    /// The changes of its configuration; `None` if that is read at the start only.
    fn reloads(&self) -> Option<Reloads>;
}

/// The changes of a configuration that is read again when it changes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reloads {
    /// Changed files that could not be used, so that the configuration before stayed in force. A file counts each time it is tried.
    pub failed: u64,
    /// Changed files that were put in force.
    pub succeeded: u64,
}

pub(super) fn reloads(text: &mut Text, reloads: &Reloads) {
    let name = "apiserver_encryption_config_controller_automatic_reloads_total";
    text.family(name, Type::Counter, "Reloads of the encryption configuration by outcome.");
    text.value(name, &[("status", "failure")], reloads.failed);
    text.value(name, &[("status", "success")], reloads.succeeded);
}
