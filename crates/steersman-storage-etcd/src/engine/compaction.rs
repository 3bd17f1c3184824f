//! The protocol by which servers on one etcd agree on who removes history: that of kube-apiserver
//! (`storage/etcd3/compact.go`), so that both may be there at the same time.
//!
//! A key holds the revision up to which history was removed last. A server that wants to remove more writes it, if it is as the server
//! has seen it last. If it is not, another server has removed history since, and this one waits for its next turn.

use crate::client::failure::Failure;
use crate::client::{Client, Lane, undone};
use crate::proto::{Compare, RangeRequest, Request, RequestOp, Response, TxnRequest, answered_at, number_of};
use bytes::Bytes;
use parking_lot::Mutex;
use std::time::Duration;
use steersman_machinery::Revision;
use steersman_storage::kv::Error;
use tokio::time::Instant;

/// The key of kube-apiserver. It is beside the prefix, since history is that of all keys.
const KEY: &[u8] = b"compact_rev_key";
/// The pause between two turns of a server. kube-apiserver takes five minutes; history is longer than this anyway.
const PAUSE: Duration = Duration::from_secs(60);

/// The part of one server in the protocol.
#[derive(Debug, Default)]
pub(crate) struct Compaction(Mutex<Seen>);

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The revision at which the key was written; zero if it was not there.
    written_at: i64,
    /// The time of the last turn that succeeded.
    turn: Option<Instant>,
}

impl Compaction {
    /// Claims the next turn. If true, this server must remove history up to a revision; the key says already that it is removed.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub(crate) async fn claim_turn(&self, client: &Client, through: Revision) -> Result<bool, Error> {
        let seen = *self.0.lock();
        if seen.turn.is_some_and(|turn| turn.elapsed() < PAUSE) {
            return Ok(false);
        }
        let key = Bytes::from_static(KEY);
        let read = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let claim = TxnRequest {
            compare: vec![Compare::written_at(&key, seen.written_at)],
            success: vec![RequestOp::put(key, through.to_string().into(), 0)],
            failure: vec![RequestOp { request: Some(Request::Range(read)) }],
        };
        // A claim whose answer is lost looks like that of another server, and the next turn is this one's again.
        let answer = client.read(Lane::Bulk, &claim, client.deadline()).await;
        let answer = answer.map_err(|failure: Failure| undone(&failure))?;
        if answer.succeeded {
            let written_at = number_of(answered_at(answer.header));
            *self.0.lock() = Seen { written_at, turn: Some(Instant::now()) };
            return Ok(true);
        }
        let found = answer.responses.into_iter().find_map(|op| match op.response {
            Some(Response::Range(range)) => range.kvs.into_iter().next(),
            None => None,
        });
        self.0.lock().written_at = found.as_ref().map_or(0, |found| found.mod_revision);
        let removed = found.and_then(|found| std::str::from_utf8(&found.value).ok()?.parse().ok().map(Revision));
        let newest = answered_at(answer.header);
        match removed {
            Some(removed) if newest < removed => tracing::warn!(
                "etcd's key {} says that history is gone up to revision {removed}, and etcd is at {newest}: it is not believed, and the next \
                 removal of history writes it again",
                String::from_utf8_lossy(KEY)
            ),
            removed => client.note_oldest(removed.unwrap_or(Revision::ZERO)),
        }
        Ok(false)
    }
}
