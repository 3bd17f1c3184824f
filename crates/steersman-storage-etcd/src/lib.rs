//! The key-value contract of `steersman-storage` over etcd: several servers, on several machines, on one store.
//!
//! [`Etcd`] implements [`steersman_storage::kv::Kv`]. A transaction is one etcd transaction, a watch is one etcd watch, and a
//! read is linearizable. Layers from below: `proto` (messages), `client` (one call to one member: which one, how long, as
//! whom, and what a failure means), `fence` and `feed` (what an operation of the contract is in calls), `engine` with `engine::txn`, and over it
//! `engine::shifted`: the revisions of a store that was restored are etcd's and a number.
//!
//! # Versions of etcd
//! At least 3.5.28 or 3.6.9, and 3.7. Earlier ones may answer a linearizable read with old data after a pause of the member,
//! or lose events of a watch. [`Etcd::connect`] asks every member that answers, and refuses older ones.
//!
//! # Why tonic with messages of our own
//! `etcd-client`, the crate that others use, runs a protobuf compiler in its build script, which a machine that builds
//! Steersman need not have. It also balances requests over members with tonic's balancer, which keeps sending to members that
//! do not answer, and it neither repeats a request nor resumes a watch. The part of etcd's API that is used here is eight
//! calls, so `proto` has their messages and tonic does the rest: HTTP/2, TLS, keep-alive.
//!
//! # A transaction is made at most once
//! Each transaction also requires that a key of this process, its *fence*, was not written since. If an answer is lost, the
//! fence is written: from then on the transaction was made earlier or never will be, so that reading shows which. See
//! `fence` and `engine::txn`.
//!
//! # Bounds
//! At most [`WRITES_MAX`] transactions are under way. A page of a list aims at 4 MiB, a message has at most 64 MiB. A watch
//! keeps at most one message and the rest of one revision. Deadlines are in [`Options`].
//!
//! The server is not known here, nor what keys and values mean.

mod client;
mod connect;
mod engine;
mod feed;
mod fence;
mod layout;
mod options;
mod proto;
mod snapshot;

pub use crate::connect::ConnectError;
pub use crate::connect::restore::{Restore, RestoreError};
pub use crate::engine::WRITES_MAX;
pub use crate::engine::shifted::Etcd;
pub use crate::options::{Certificates, Expiry, Keys, Login, Options, REGISTRY_PREFIX, STEERSMAN_PREFIX};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use crate::snapshot::fuzz_snapshot;
pub use crate::snapshot::state::{Objects as StateObjects, State};
pub use crate::snapshot::{BoltError, Snapshot, SnapshotEntries, SnapshotError};
