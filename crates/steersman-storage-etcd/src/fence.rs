//! The fence of this process: a key that every transaction compares, so that an old transaction can be ruled out.
//!
//! A transaction requires that the fence is still at the revision at which it was written last. Once the fence is written
//! again, a transaction that requires the earlier revision was made before, or will never be made, however late it
//! arrives. Only this process writes its fence, and only after an answer was lost, so this costs a transaction one
//! comparison and etcd nothing else.
//!
//! The fence hangs on a lease that is not renewed, so that those of processes that crashed go away. When it has expired, the
//! next transaction fails on it, and it is written anew.

use crate::client::failure::{Failure, NoTurn};
use crate::client::{Client, Lane, undone};
use crate::layout::Layout;
use crate::proto::{DeleteRangeRequest, LeaseGrantRequest, RequestOp, TxnRequest, answered_at};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::Revision;
use steersman_storage::kv::Error;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

/// How long a fence stays after it was written.
const TTL_SECONDS: i64 = 24 * 3_600;
/// How long the removal of the fence may take when the engine is closed.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Fence {
    key: Bytes,
    /// The revision that transactions require; `None` if the fence must be written first.
    stands_at: parking_lot::Mutex<Option<Revision>>,
    /// Held while the fence is written.
    writing: Mutex<()>,
}

impl Fence {
    pub(crate) fn new(layout: &Layout) -> Fence {
        let key = layout.fence_key(&Uuid::new_v4().simple().to_string());
        Fence { key, stands_at: parking_lot::Mutex::new(None), writing: Mutex::new(()) }
    }

    pub(crate) fn key(&self) -> &Bytes {
        &self.key
    }

    /// The revision that transactions require.
    ///
    /// # Errors
    /// When the fence must be written and cannot be.
    pub(crate) async fn stands_at(&self, client: &Client, give_up: Instant) -> Result<Revision, Error> {
        if let Some(revision) = *self.stands_at.lock() {
            return Ok(revision);
        }
        let Ok(_writing) = timeout_at(give_up, self.writing.lock()).await else {
            return Err(Error::Unavailable { source: Arc::new(NoTurn("the fence of this server's writes")) });
        };
        // Another transaction may have written it meanwhile.
        if let Some(revision) = *self.stands_at.lock() {
            return Ok(revision);
        }
        let revision = self.write(client, give_up).await?;
        *self.stands_at.lock() = Some(revision);
        Ok(revision)
    }

    /// Says that the next transaction must write the fence again, unless that has been done since it stood at `revision`.
    pub(crate) fn leave(&self, revision: Revision) {
        let mut stands_at = self.stands_at.lock();
        if *stands_at == Some(revision) {
            *stands_at = None;
        }
    }

    /// Writes the fence. Written twice it only stands later, so a lost answer is no harm: should the lost write come last,
    /// transactions fail on the fence, and it is written once more.
    async fn write(&self, client: &Client, give_up: Instant) -> Result<Revision, Error> {
        let lease = LeaseGrantRequest { ttl: TTL_SECONDS };
        let mut n_failures = 0;
        loop {
            let written = async {
                // A member that grants one has a leader, and gets the fence next. Leases that nobody uses end by themselves.
                let at_most = client.options.write_timeout;
                let lease = client.attempt_all(Lane::Requests, &lease, at_most, give_up).await?.id;
                let write = TxnRequest {
                    compare: Vec::new(),
                    success: vec![RequestOp::put(self.key.clone(), Bytes::new(), lease)],
                    failure: Vec::new(),
                };
                client.write(&write, give_up).await
            };
            match written.await {
                Ok(done) => return Ok(answered_at(done.header)),
                Err(Failure::NotDone(_) | Failure::Unknown(_)) if Instant::now() < give_up => {
                    n_failures += 1;
                    client.pause_after(n_failures).await;
                }
                Err(failure) => return Err(undone(&failure)),
            }
        }
    }

    /// Removes the fence, if that can be done quickly. Otherwise its lease does it.
    pub(crate) async fn remove(&self, client: &Client) {
        let give_up = Instant::now() + REMOVAL_TIMEOUT;
        let request = DeleteRangeRequest { key: self.key.clone(), range_end: Bytes::new() };
        if let Err(failure) = client.attempt(Lane::Requests, &request, REMOVAL_TIMEOUT, give_up).await {
            tracing::debug!("the fence stays until its lease ends: {}", failure.cause());
        }
    }
}
