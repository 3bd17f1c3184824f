//! etcd processes, and what tests say shortly.

pub(crate) mod cluster;
pub(crate) mod proxy;

use crate::support::cluster::Cluster;
use bytes::Bytes;
use http::uri::PathAndQuery;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::Revision;
use steersman_storage::kv::{Error, Event, Expect, Kv, Op, Outcome, Txn, Watch};
use steersman_storage_etcd::{Etcd, Options};
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

/// The program, or `None`, with a message, if this machine has none.
pub(crate) fn etcd_program() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("STEERSMAN_ETCD") {
        return Some(program.into());
    }
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "0" && value != "false");
    assert!(!ci, "STEERSMAN_ETCD names no program, and CI is set");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let words = format!("!!! SKIPPED {test}: STEERSMAN_ETCD names no etcd (cargo xtask test sets it up)\n");
    // Not `eprintln!`, whose output is hidden if the test passes; in one write, because tests run concurrently.
    std::io::stderr().write_all(words.as_bytes()).unwrap();
    None
}

/// Deadlines for tests in which etcd does not answer.
pub(crate) fn hurried(options: Options) -> Options {
    options.timeouts(Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(30))
}

pub(crate) async fn connect(options: Options) -> Arc<Etcd> {
    Arc::new(Etcd::connect(options).await.unwrap())
}

pub(crate) fn put_op(key: &str, value: impl Into<Bytes>) -> Op {
    Op::Put { key: Bytes::copy_from_slice(key.as_bytes()), value: value.into() }
}

pub(crate) fn create(key: &str, value: &str) -> Txn {
    Txn::single(Expect::Absent, put_op(key, value.to_owned()))
}

pub(crate) fn update(key: &str, at: Revision, value: &str) -> Txn {
    Txn::single(Expect::At(at), put_op(key, value.to_owned()))
}

pub(crate) fn delete(key: &str, at: Revision) -> Txn {
    Txn::single(Expect::At(at), Op::Delete { key: Bytes::copy_from_slice(key.as_bytes()) })
}

#[track_caller]
pub(crate) fn committed(outcome: Result<Outcome, Error>) -> Revision {
    match outcome {
        Ok(Outcome::Committed { revision }) => revision,
        other => panic!("not committed: {other:?}"),
    }
}

/// The next changes of a watch, at least one.
pub(crate) async fn events(watch: &mut dyn Watch) -> Vec<Event> {
    loop {
        let batch = watch.next().await.unwrap();
        if !batch.events.is_empty() {
            return batch.events;
        }
    }
}

/// Waits until a watch has handed out a change of a key, and returns its revision.
pub(crate) async fn seen(watch: &mut dyn Watch, key: &str) -> Revision {
    loop {
        if let Some(event) = events(watch).await.into_iter().find(|event| event.key == key.as_bytes()) {
            return event.revision;
        }
    }
}

pub(crate) async fn value(kv: &dyn Kv, key: &str) -> Option<Bytes> {
    let entries = kv.read().await.unwrap().entries;
    entries.into_iter().find(|entry| entry.key == key.as_bytes()).map(|entry| entry.value)
}

/// Puts a key as any client of etcd does.
pub(crate) async fn put(cluster: &Cluster, key: &str, value: &[u8]) {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Put {
        #[prost(string, tag = "1")]
        key: String,
        #[prost(bytes = "vec", tag = "2")]
        value: Vec<u8>,
    }
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    struct Done {}
    let channel = Endpoint::from_shared(cluster.members[0].url.clone()).unwrap().connect().await.unwrap();
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    let request = Request::new(Put { key: key.to_owned(), value: value.to_vec() });
    let path = PathAndQuery::from_static("/etcdserverpb.KV/Put");
    client.unary(request, path, ProstCodec::<Put, Done>::default()).await.unwrap();
}
