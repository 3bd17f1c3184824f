//! Makes the store below a prefix out of entries, at a revision that is later than theirs and without history before it.
//!
//! While the restore goes on, the key that says what is below the prefix says so, and no server uses it. Every write requires that this key
//! is as it was written, so that of two restores one goes on. A write that is repeated does no harm: it writes the same.

use crate::client::failure::Failure;
use crate::client::failure::Refusal;
use crate::client::{Client, Lane, undone};
use crate::connect::{self, ConnectError, Found, first_key, first_of, format};
use crate::engine::leases::Leases;
use crate::layout::{Format, Layout, Span};
use crate::options::Options;
use crate::proto::{
    CompactionRequest, Compare, DeleteRangeRequest, Request, RequestOp, TxnRequest, number_of, revision_of,
};
use bytes::Bytes;
use futures::future::try_join_all;
use prost::Message;
use std::mem;
use std::sync::Arc;
use steersman_machinery::Revision;
use steersman_storage::backup::RESTORED_REVISION_MAX;
use steersman_storage::kv::{self, Entry, TXN_OPS_MAX};
use uuid::Uuid;

/// The most revisions by which etcd is advanced, where those of the store are etcd's. It takes a quarter of an hour at 5,000 writes a second.
const ADVANCE_MAX: u64 = 5_000_000;
/// After so many writes their history is removed, since it fills etcd.
const ADVANCES_BETWEEN_COMPACTIONS: usize = 400 * ADVANCES_AT_ONCE;
/// The writes under way while etcd is advanced.
const ADVANCES_AT_ONCE: usize = 256;
/// The bytes of a transaction of a restore. Less than etcd takes in one by default.
const TXN_BYTES: usize = 512 * 1024;

/// The error of a restore.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// etcd cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// There is something below the prefix.
    #[error(
        "etcd has keys below {prefix:?}, of which {key:?} is one: restore into an empty prefix (--etcd-prefix), or delete all keys below this one"
    )]
    NotEmpty {
        /// The prefix.
        prefix: String,
        /// The first key.
        key: String,
    },
    /// etcd is at an earlier revision than the store would have to be.
    #[error(
        "etcd is at revision {found}, and the store must go on after revision {revision}, which is too far for the layout of Kubernetes: choose a \
         smaller jump (--bump-revision), restore in the layout of Steersman (--etcd-layout steersman), or start etcd from a snapshot with a later \
         revision (`etcdutl snapshot restore --bump-revision`)"
    )]
    Behind {
        /// The revision of etcd.
        found: Revision,
        /// The revision of the store.
        revision: Revision,
    },
    /// Another restore goes on.
    #[error("another restore into {prefix:?} has begun: wait for its end")]
    Overtaken {
        /// The prefix.
        prefix: String,
    },
    /// The revision leaves no room for later ones.
    #[error("a store at revision {revision} has no room for later ones: choose a smaller jump (--bump-revision)")]
    TooLate {
        /// The revision.
        revision: Revision,
    },
    /// An entry is larger than etcd takes.
    #[error(
        "{key:?} has {bytes} bytes, which is more than etcd takes in one request: restore into a data directory, or make the object smaller first"
    )]
    TooLarge {
        /// The key.
        key: String,
        /// The size of the key and the value.
        bytes: usize,
    },
    /// A write failed.
    #[error("etcd does not take the restored objects")]
    Write(#[source] kv::Error),
}

/// A store that is being made.
#[derive(Debug)]
pub struct Restore {
    client: Arc<Client>,
    layout: Layout,
    leases: Leases,
    /// The revision at which the key that marks the restore was written.
    marked_at: i64,
    pending: Vec<RequestOp>,
    pending_bytes: usize,
    /// The revision after which the store goes on.
    revision: Revision,
    shift: u64,
}

impl Restore {
    /// Begins a store that will be at a revision or later. What an interrupted restore has left below the prefix is removed.
    ///
    /// # Errors
    /// When there is something else below the prefix.
    pub async fn begin(options: Options, revision: Revision) -> Result<Restore, RestoreError> {
        if RESTORED_REVISION_MAX < revision {
            return Err(RestoreError::TooLate { revision });
        }
        let prefix = options.prefix.clone();
        let layout = Layout::of(&options);
        let client = connect::reach(options).await?;
        if layout.is_registry() {
            connect::find_registry(&client, &layout).await.or_else(|error| match error {
                // One that was interrupted is begun again.
                ConnectError::Incomplete { .. } => Ok(Found { shift: 0, since: 0 }),
                error => Err(error),
            })?;
            let found = client.seen();
            if found.0 + ADVANCE_MAX < revision.0 {
                return Err(RestoreError::Behind { found, revision });
            }
        }
        let marked = format(&client, &layout).await?;
        let before = match &marked {
            Some(found) if Format::parse(&found.value) == Format::Restoring => found.mod_revision,
            Some(found) => return Err(not_empty(prefix, &found.key)),
            None => match first_key(&client, &layout).await? {
                Some(found) => return Err(not_empty(prefix, &found.key)),
                None => 0,
            },
        };
        let mark = Format::restoring(&Uuid::new_v4().simple().to_string());
        let begin = TxnRequest {
            compare: vec![Compare::written_at(&layout.format_key(), before)],
            success: vec![RequestOp::put(layout.format_key(), mark.clone(), 0)],
            failure: Vec::new(),
        };
        client.read(Lane::Bulk, &begin, client.deadline()).await.map_err(write)?;
        let marked = format(&client, &layout).await?.filter(|found| found.value == mark);
        let Some(marked) = marked else { return Err(RestoreError::Overtaken { prefix }) };
        let restore = Restore {
            leases: Leases::new(&client.options.expiring),
            client,
            layout,
            marked_at: marked.mod_revision,
            pending: Vec::new(),
            pending_bytes: 0,
            revision,
            shift: shift(revision, marked.mod_revision),
        };
        if before != 0
            && let Err(error) = restore.remove_objects().await
        {
            restore.discard().await?;
            return Err(error);
        }
        if restore.layout.is_registry() {
            if let Err(error) = restore.check_alone().await {
                // The objects of whoever has begun meanwhile stay.
                restore.remove_mark().await?;
                return Err(error);
            }
            if let Err(error) = restore.count_up().await {
                restore.discard().await?;
                return Err(error);
            }
        }
        Ok(restore)
    }

    /// The revision from which on the store gives new ones. In the layout of kube-apiserver etcd may have been beyond the one that was asked for.
    pub fn revision(&self) -> Revision {
        if self.layout.is_registry() { self.revision.max(self.client.seen()) } else { self.revision }
    }

    /// Adds entries. No key may come twice.
    ///
    /// # Errors
    /// When etcd does not take them, or another restore has begun.
    pub async fn put(&mut self, entries: Vec<Entry>) -> Result<(), RestoreError> {
        for Entry { key, value, .. } in entries {
            let lease =
                self.leases.of(&self.client, &key, self.client.deadline()).await.map_err(RestoreError::Write)?;
            let op = RequestOp::put(self.layout.stored(&key), value, lease);
            let bytes = op.encoded_len();
            if self.client.options.request_bytes_max < bytes + TXN_OVERHEAD {
                return Err(too_large(&key, bytes));
            }
            if TXN_BYTES < self.pending_bytes + bytes || self.pending.len() == TXN_OPS_MAX {
                self.flush().await?;
            }
            self.pending_bytes += bytes;
            self.pending.push(op);
        }
        Ok(())
    }

    /// Completes the store. Until this returns, no server can use it.
    ///
    /// # Errors
    /// When etcd does not take it, or another restore has begun. Discard it then.
    pub async fn finish(&mut self) -> Result<(), RestoreError> {
        self.flush().await?;
        if self.layout.is_registry() {
            self.remove_history().await?;
            return match self.remove_mark().await {
                // It was deleted, and the answer was lost.
                Err(RestoreError::Overtaken { .. }) if format(&self.client, &self.layout).await?.is_none() => Ok(()),
                ended => ended,
            };
        }
        let last = Format::shifted(self.shift);
        let written = self.write(vec![RequestOp::put(self.layout.format_key(), last.clone(), 0)]).await;
        if matches!(written, Err(RestoreError::Overtaken { .. }))
            && format(&self.client, &self.layout).await?.is_some_and(|found| found.value == last)
        {
            // It was written, and the answer was lost.
            return Ok(());
        }
        written
    }

    /// Removes what was made.
    ///
    /// # Errors
    /// When that cannot be done. Then no server uses what is left, and another restore removes it.
    pub async fn discard(self) -> Result<(), RestoreError> {
        if self.layout.is_registry() {
            self.remove_objects().await?;
            return self.remove_mark().await;
        }
        self.write(vec![delete(self.layout.all())]).await
    }

    /// Lets servers use what is below the prefix.
    async fn remove_mark(&self) -> Result<(), RestoreError> {
        self.write(vec![delete(Span::key(self.layout.format_key()))]).await
    }

    /// Removes all but the mark.
    async fn remove_objects(&self) -> Result<(), RestoreError> {
        let mark = self.layout.format_key();
        let all = self.layout.span(b"");
        if !(all.start <= mark && mark < all.end) {
            return self.write(vec![delete(all)]).await;
        }
        let before = Span { start: all.start.clone(), end: mark.clone() };
        self.write(vec![delete(before), delete(all.after(&mark))]).await
    }

    /// Fails if somebody has written below the prefix before the mark was there: a server that had read that there is none, or a kube-apiserver,
    /// which knows no mark.
    async fn check_alone(&self) -> Result<(), RestoreError> {
        let all = self.layout.all();
        let mark = self.layout.format_key();
        let others = [Span { start: all.start.clone(), end: mark.clone() }, all.after(&mark)];
        for span in others {
            if let Some(found) = first_of(&self.client, span).await? {
                return Err(not_empty(self.client.options.prefix.clone(), &found.key));
            }
        }
        Ok(())
    }

    /// Lets etcd count up to the revision of the store, by writes that change nothing: each object gets a revision that was not given before.
    async fn count_up(&self) -> Result<(), RestoreError> {
        let key = self.layout.fence_key("restore");
        let put = || self.write(vec![RequestOp::put(key.clone(), Bytes::new(), 0)]);
        let mut n_writes = 0;
        loop {
            let left = self.revision.0.saturating_sub(self.client.seen().0);
            if left == 0 {
                break;
            }
            if n_writes % ADVANCES_BETWEEN_COMPACTIONS == 0 {
                tracing::info!("etcd counts up to revision {} of the new store: {left} writes are left", self.revision);
                if 0 < n_writes {
                    self.remove_history().await?;
                }
            }
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(ADVANCES_AT_ONCE);
            try_join_all((0..now).map(|_| put())).await?;
            n_writes += ADVANCES_AT_ONCE;
        }
        self.write(vec![delete(Span::key(key))]).await
    }

    /// Removes the history of etcd: the writes by which it counts would fill it, and a client that knows an earlier revision must list again, since it
    /// would miss deletions.
    async fn remove_history(&self) -> Result<(), RestoreError> {
        let revision = number_of(self.client.seen());
        match self.client.read(Lane::Bulk, &CompactionRequest { revision }, self.client.deadline()).await {
            Ok(_) | Err(Failure::Refused(Refusal::Compacted)) => Ok(()),
            Err(failure) => Err(write(failure)),
        }
    }

    async fn flush(&mut self) -> Result<(), RestoreError> {
        self.pending_bytes = 0;
        match mem::take(&mut self.pending) {
            ops if ops.is_empty() => Ok(()),
            ops => self.write(ops).await,
        }
    }

    /// Writes, if this restore is still the one that goes on.
    async fn write(&self, ops: Vec<RequestOp>) -> Result<(), RestoreError> {
        let compare = vec![Compare::written_at(&self.layout.format_key(), self.marked_at)];
        let txn = TxnRequest { compare, success: ops, failure: Vec::new() };
        match self.client.read(Lane::Bulk, &txn, self.client.deadline()).await {
            Ok(done) if done.succeeded => Ok(()),
            Ok(_) => Err(RestoreError::Overtaken { prefix: self.client.options.prefix.clone() }),
            Err(Failure::Refused(Refusal::RequestTooLarge)) => match txn.success.first() {
                Some(RequestOp { request: Some(Request::Put(put)) }) => {
                    Err(too_large(&put.key, put.key.len() + put.value.len()))
                }
                _ => Err(write(Failure::Refused(Refusal::RequestTooLarge))),
            },
            Err(failure) => Err(write(failure)),
        }
    }
}

/// The number that leads from etcd's revisions, of which one is now, to those of a store that begins at `revision`. Never zero,
/// which would say that the store was not restored.
fn shift(revision: Revision, now: i64) -> u64 {
    revision.0.saturating_sub(revision_of(now).0).max(1)
}

/// The bytes of a transaction beside those of its changes.
const TXN_OVERHEAD: usize = 4 * 1024;

fn too_large(key: &Bytes, bytes: usize) -> RestoreError {
    RestoreError::TooLarge { key: String::from_utf8_lossy(key).into_owned(), bytes }
}

fn not_empty(prefix: String, key: &Bytes) -> RestoreError {
    RestoreError::NotEmpty { prefix, key: String::from_utf8_lossy(key).into_owned() }
}

#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn write(failure: Failure) -> RestoreError {
    RestoreError::Write(undone(&failure))
}

fn delete(Span { start, end }: Span) -> RequestOp {
    RequestOp { request: Some(Request::DeleteRange(DeleteRangeRequest { key: start, range_end: end })) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_store_begins_at_its_revision_whatever_that_of_etcd_is() {
        assert_eq!((shift(Revision(1_000), 7), shift(Revision(1_000), 999)), (993, 1));
        assert_eq!(shift(Revision(1_000), 5_000), 1);
    }
}
