//! A transaction of the contract as one of etcd, made at most once.
//!
//! ```text
//! send -> made | a compare failed -> answer
//!      -> the fence has moved      -> nothing was done: send again with the new fence
//!      -> nothing was done         -> send again, to another member
//!      -> the answer is lost       -> move the fence, then read: made -> answer, not made -> send again
//! ```
//!
//! Reading shows a put by its bytes, in what the key holds or has held since: the bytes of an object have a uid and times, and
//! whoever else writes the same bytes over the same revision has done the same. A deletion leaves nothing that says whose it
//! was, so if the key was deleted meanwhile, the outcome stays unknown.

use crate::client::failure::{Failure, NO_SPACE_REMEDY, Refusal};
use crate::client::{Client, Lane, undone};
use crate::engine::leases::Leases;
use crate::feed::history;
use crate::fence::Fence;
use crate::layout::{Layout, Span};
use crate::options::Options;
use crate::proto::{
    Compare, DeleteRangeRequest, RangeRequest, Request, RequestOp, Response, TxnRequest, TxnResponse, answered_at,
    number_of, revision_of,
};
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;
use steersman_machinery::Revision;
use steersman_storage::kv::{self, Error, Expect, Limits, Op, Outcome, TXN_OPS_MAX, Txn, hold};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The bytes of a transaction besides its values: etcd's own fields, and each key up to three times.
const OVERHEAD_BYTES: usize = 32 * 1024;
/// Searches for what became of transactions that run at a time. Each is a watch.
const SEARCHES_MAX: usize = 4;
/// How errors name what is too large.
const VALUE: &str =
    "a value's number of bytes (raise etcd's --max-request-bytes and --etcd-max-request-bytes here alike for more)";
const TRANSACTION: &str = "a transaction's number of bytes (raise etcd's --max-request-bytes and --etcd-max-request-bytes here alike for more)";

/// Makes transactions.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) fence: Fence,
    leases: Leases,
    limits: Limits,
    searches: Semaphore,
}

/// The answer of etcd.
enum Answer {
    FenceMoved,
    Outcome(Outcome),
}

/// The outcome of a transaction whose answer was lost, once its fence has moved.
enum Fate {
    Made(Revision),
    NeverMade,
    Unknown,
}

impl Writer {
    pub(crate) fn new(layout: &Layout, options: &Options) -> Writer {
        let limits = Limits {
            // The fence takes one.
            txn_ops: TXN_OPS_MAX - 1,
            value_bytes: options.request_bytes_max.saturating_sub(OVERHEAD_BYTES).min(Limits::MAX.value_bytes),
            ..Limits::MAX
        };
        let leases = Leases::new(&options.expiring);
        Writer { fence: Fence::new(layout), leases, limits, searches: Semaphore::new(SEARCHES_MAX) }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Checks the sizes.
    pub(crate) fn validate(&self, txn: &Txn) -> Result<(), Error> {
        txn.validate(&self.limits).map_err(|error| match error {
            Error::TooLarge { actual, max, .. } if max == self.limits.value_bytes => {
                Error::TooLarge { what: VALUE, actual, max }
            }
            error => error,
        })
    }

    /// Makes a transaction that was validated.
    pub(crate) async fn run(&self, client: &Arc<Client>, layout: &Layout, txn: &Txn) -> Result<Outcome, Error> {
        let give_up = client.deadline();
        // Every revision that was seen so far is older than the transaction.
        let before = client.seen();
        let mut n_failures = 0;
        loop {
            let fence = self.fence.stands_at(client, give_up).await?;
            let request = self.encode(client, layout, txn, fence, give_up).await?;
            let (actual, max) = (request.encoded_len(), client.options.request_bytes_max);
            if max < actual {
                return Err(Error::TooLarge { what: TRANSACTION, actual, max });
            }
            match client.write(&request, give_up).await {
                Ok(answer) => match read(&answer, txn) {
                    Answer::Outcome(outcome) => return Ok(outcome),
                    Answer::FenceMoved => self.fence.leave(fence),
                },
                // A pause of this process may have been longer than the lease lasts. Nothing was done.
                Err(Failure::Refused(Refusal::NoLease)) if Instant::now() < give_up => {
                    self.leases.renew(txn.ops.iter().map(Op::key)).await;
                }
                Err(Failure::Refused(Refusal::RequestTooLarge)) => {
                    // etcd does not say what its limit is; it is lower.
                    return Err(Error::TooLarge { what: TRANSACTION, actual, max: actual.saturating_sub(1) });
                }
                // etcd has answered, so nothing is under way, but it may have made the transaction.
                Err(failure @ Failure::Refused(Refusal::NoSpace)) => {
                    let held = self.held(client, layout, txn, None, give_up).await;
                    return match held.map(|held| self.is_made(txn, before, held.as_ref())) {
                        Ok(Some(revision)) => Ok(Outcome::Committed { revision }),
                        Ok(None) => Err(Error::Full { remedy: NO_SPACE_REMEDY }),
                        Err(_) => Err(Error::Unknown { source: failure.cause() }),
                    };
                }
                Err(Failure::Unknown(cause)) => {
                    tracing::debug!("the answer to a transaction is lost: {cause}");
                    match self.find_fate(client, layout, txn, before, fence, give_up).await {
                        Ok(Fate::Made(revision)) => return Ok(Outcome::Committed { revision }),
                        Ok(Fate::NeverMade) => {}
                        Ok(Fate::Unknown) | Err(_) => return Err(Error::Unknown { source: cause }),
                    }
                }
                Err(failure @ Failure::NotDone(_)) => {
                    n_failures += 1;
                    client.pause_after(n_failures).await;
                    if give_up <= Instant::now() {
                        return Err(undone(&failure));
                    }
                }
                Err(failure) => return Err(undone(&failure)),
            }
        }
    }

    async fn encode(
        &self,
        client: &Client,
        layout: &Layout,
        txn: &Txn,
        fence: Revision,
        give_up: Instant,
    ) -> Result<TxnRequest, Error> {
        let range = |key: Bytes| RequestOp {
            request: Some(Request::Range(RangeRequest { key, keys_only: true, ..RangeRequest::default() })),
        };
        let expected = |expect: Expect| match expect {
            Expect::Absent => 0,
            Expect::At(revision) => number_of(revision),
        };
        let mut success = Vec::with_capacity(txn.ops.len());
        for op in &txn.ops {
            success.push(match op {
                Op::Delete { key } => {
                    let delete = DeleteRangeRequest { key: layout.stored(key), range_end: Bytes::new() };
                    RequestOp { request: Some(Request::DeleteRange(delete)) }
                }
                Op::Put { key, value } => {
                    let lease = self.leases.of(client, key, give_up).await?;
                    RequestOp::put(layout.stored(key), value.clone(), lease)
                }
            });
        }
        let fence_key = self.fence.key();
        let compare = |given: &kv::Compare| Compare::written_at(&layout.stored(&given.key), expected(given.expect));
        let mut compares: Vec<Compare> = txn.compares.iter().map(compare).collect();
        compares.push(Compare::written_at(fence_key, number_of(fence)));
        let mut failure: Vec<RequestOp> = txn.compares.iter().map(|given| range(layout.stored(&given.key))).collect();
        failure.push(range(fence_key.clone()));
        Ok(TxnRequest { compare: compares, success, failure })
    }

    /// Finds out what became of a transaction whose answer was lost.
    async fn find_fate(
        &self,
        client: &Arc<Client>,
        layout: &Layout,
        txn: &Txn,
        before: Revision,
        fence: Revision,
        give_up: Instant,
    ) -> Result<Fate, Error> {
        self.fence.leave(fence);
        let moved = self.fence.stands_at(client, give_up).await?;
        // The fence stands at `moved`, so the transaction was made before that or never will be.
        let Some(key) = first_changed(txn) else { return Ok(Fate::NeverMade) };
        let held = self.held(client, layout, txn, Some(moved), give_up).await?;
        if let Some(revision) = self.is_made(txn, before, held.as_ref()) {
            return Ok(Fate::Made(revision));
        }
        let expected = txn.compares.iter().find(|compare| compare.key == *key).map(|compare| compare.expect);
        match (expected, held) {
            // The key would be at another revision, or gone.
            (Some(Expect::At(expected)), Some(held)) if held.revision == expected => Ok(Fate::NeverMade),
            _ => self.search(client, Span::key(layout.stored(key)), txn, before, moved, give_up).await,
        }
    }

    /// Looks through the changes of the first key that the transaction changes.
    async fn search(
        &self,
        client: &Arc<Client>,
        key: Span,
        txn: &Txn,
        before: Revision,
        moved: Revision,
        give_up: Instant,
    ) -> Result<Fate, Error> {
        // Only a semaphore that is closed fails, and this one never is.
        let _turn = self.searches.acquire().await.map_err(|_| Error::Closed)?;
        for change in history(client, key, before, moved, usize::MAX, give_up).await?.changes {
            let event = change.event;
            let held = event.value.as_ref().map(|value| Held { revision: event.revision, value: value.clone() });
            if let Some(revision) = self.is_made(txn, before, held.as_ref()) {
                return Ok(Fate::Made(revision));
            }
            let is_deletion = event.value.is_none() && !txn.ops.iter().any(|op| matches!(op, Op::Put { .. }));
            if is_deletion {
                return Ok(Fate::Unknown);
            }
        }
        Ok(Fate::NeverMade)
    }

    /// The value of the first key that a transaction changes, at a revision or now.
    async fn held(
        &self,
        client: &Arc<Client>,
        layout: &Layout,
        txn: &Txn,
        at: Option<Revision>,
        give_up: Instant,
    ) -> Result<Option<Held>, Error> {
        let Some(key) = first_changed(txn) else { return Ok(None) };
        let revision = at.map_or(0, number_of);
        let request = RangeRequest { key: layout.stored(key), revision, ..RangeRequest::default() };
        let answer = client.read(Lane::Requests, &request, give_up).await.map_err(|failure| undone(&failure))?;
        Ok(answer
            .kvs
            .into_iter()
            .next()
            .map(|found| Held { revision: revision_of(found.mod_revision), value: found.value }))
    }

    /// The revision of a transaction if this is what it wrote.
    fn is_made(&self, txn: &Txn, before: Revision, held: Option<&Held>) -> Option<Revision> {
        let held = held.filter(|held| before < held.revision)?;
        let first_put = txn.ops.iter().find_map(|op| match op {
            Op::Put { value, .. } => Some(value),
            Op::Delete { .. } => None,
        });
        first_put.filter(|value| **value == held.value).map(|_| held.revision)
    }
}

/// A value and the revision that wrote it.
#[derive(Clone, Debug)]
struct Held {
    revision: Revision,
    value: Bytes,
}

/// The key of the first put, else of the first deletion.
fn first_changed(txn: &Txn) -> Option<&Bytes> {
    let put = txn.ops.iter().find(|op| matches!(op, Op::Put { .. }));
    put.or(txn.ops.first()).map(Op::key)
}

/// The outcome in an answer to the transaction.
fn read(answer: &TxnResponse, txn: &Txn) -> Answer {
    let revision = answered_at(answer.header);
    if answer.succeeded {
        return Answer::Outcome(Outcome::Committed { revision });
    }
    let written_at = |op: &crate::proto::ResponseOp| match &op.response {
        Some(Response::Range(range)) => range.kvs.first().map(|found| revision_of(found.mod_revision)),
        None => None,
    };
    let mut found: Vec<Option<Revision>> = answer.responses.iter().map(written_at).collect();
    // The last one is the fence's.
    found.pop();
    let keys = txn.compares.iter().zip(&found);
    let found_at = |key: &[u8]| keys.clone().find(|(compare, _)| compare.key == key).and_then(|(_, found)| *found);
    match hold(&txn.compares, found_at) {
        Err(found) => Answer::Outcome(Outcome::Failed { revision, found }),
        Ok(()) => Answer::FenceMoved,
    }
}
