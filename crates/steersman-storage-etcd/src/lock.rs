//! The lock of a prefix: one process at a time works on what is below it, and another takes over when it is gone.
//!
//! `PREFIX/holder` has the id of the process that works. It writes `PREFIX/heartbeat` now and then. A process that waits looks at
//! both. If neither has changed for the time of a takeover, by a clock of its own, it writes its own id and deletes all fences, in one
//! transaction. A process that was only paused cannot write any more then: its transactions require its fence, and it may write
//! that only while it is the holder. So the times decide when there is a takeover, and never whether it is safe.

use crate::client::failure::{Failure, Refusal};
use crate::client::{Client, Lane, undone};
use crate::connect::ConnectError;
use crate::layout::{Layout, Span};
use crate::proto::{
    Compare, DeleteRangeRequest, EQUAL, KeyValue, MOD, PutRequest, RangeRequest, Request, RequestOp, TxnRequest,
};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

/// A heartbeat is written, and looked for, this many times in the time of a takeover.
const HEARTBEATS: u32 = 5;
/// How long the release of the lock may take when the engine is closed.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The lock, held by this process.
#[derive(Debug)]
pub(crate) struct Lock {
    holder: Bytes,
    heartbeat: Bytes,
    /// The revision at which this process became the holder.
    held_at: i64,
}

/// Writes heartbeats until it is dropped.
#[derive(Debug)]
pub(crate) struct Heartbeats(JoinHandle<()>);

impl Lock {
    /// Waits until no other process holds the lock, and takes it.
    pub(crate) async fn acquire(client: &Client, layout: &Layout, takeover: Duration) -> Result<Lock, ConnectError> {
        let id: Bytes = Uuid::new_v4().simple().to_string().into();
        let (holder, heartbeat) = (layout.holder_key(), layout.heartbeat_key());
        let interval = takeover / HEARTBEATS;
        // What was found, since when it has been the same, and when it was looked for last.
        let mut unchanged: Option<([i64; 2], Instant, Instant)> = None;
        let mut is_said = false;
        loop {
            let found = async { Ok([find(client, &holder).await?, find(client, &heartbeat).await?]) };
            let found = match found.await {
                Ok(found) => found,
                // A process that waits goes on waiting when etcd is away for a while.
                Err(Failure::NotDone(_) | Failure::Unknown(_)) if is_said => {
                    unchanged = None;
                    sleep(interval).await;
                    continue;
                }
                Err(failure) => return Err(ConnectError::Kv(undone(&failure))),
            };
            let revisions = found.each_ref().map(revision);
            let [current, _] = &found;
            if current.as_ref().is_some_and(|current| current.value == id) {
                return Ok(Lock { holder, heartbeat, held_at: revisions[0] });
            }
            let now = Instant::now();
            let since = match unchanged {
                // After a gap the holder must have the time to write a heartbeat: etcd was away for both, or this process was paused.
                Some((known, since, looked)) if known == revisions && now <= looked + 2 * interval => since,
                _ => now,
            };
            unchanged = Some((revisions, since, now));
            if current.is_none() || takeover <= since.elapsed() {
                let take = TxnRequest {
                    compare: vec![at(&holder, revisions[0]), at(&heartbeat, revisions[1])],
                    success: vec![put(&holder, &id), put(&heartbeat, &Bytes::new()), delete(layout.fences())],
                    failure: Vec::new(),
                };
                // Whatever becomes of it, the next read shows.
                let written =
                    client.attempt(Lane::Requests, &take, client.options.write_timeout, client.deadline()).await;
                match written {
                    Ok(_) | Err(Failure::NotDone(_) | Failure::Unknown(_)) => {}
                    // etcd has no room, and may have written it all the same.
                    Err(failure @ Failure::Refused(Refusal::NoSpace)) if is_said => {
                        tracing::warn!("the lock cannot be taken: {}", failure.cause());
                        sleep(interval).await;
                    }
                    Err(failure) => return Err(ConnectError::Kv(undone(&failure))),
                }
                continue;
            }
            if !is_said {
                tracing::info!(
                    prefix = client.options.prefix,
                    "another server works on these objects: waiting until it has ended"
                );
                is_said = true;
            }
            sleep(interval).await;
        }
    }

    /// The condition that this process still holds the lock.
    pub(crate) fn condition(&self) -> Compare {
        at(&self.holder, self.held_at)
    }

    /// Writes heartbeats from now on.
    pub(crate) fn beat(self: &Arc<Lock>, client: &Arc<Client>, takeover: Duration) -> Heartbeats {
        let (lock, client) = (self.clone(), client.clone());
        Heartbeats(tokio::spawn(async move {
            let beat = TxnRequest {
                compare: vec![lock.condition()],
                success: vec![put(&lock.heartbeat, &Bytes::new())],
                failure: Vec::new(),
            };
            let interval = takeover / HEARTBEATS;
            let mut n_failures = 0;
            loop {
                if n_failures == 0 {
                    sleep(interval).await;
                }
                match client.attempt(Lane::Requests, &beat, interval, client.deadline()).await {
                    Ok(answer) if !answer.succeeded => return lost(&client),
                    Ok(_) => n_failures = 0,
                    // Another member is asked at once.
                    Err(Failure::NotDone(_) | Failure::Unknown(_)) => {
                        n_failures += 1;
                        client.pause_after(n_failures).await;
                    }
                    Err(Failure::Replaced(_)) => return,
                    Err(failure @ Failure::Refused(_)) => {
                        tracing::warn!("a sign of life could not be written to etcd: {}", failure.cause());
                        n_failures = 0;
                    }
                }
            }
        }))
    }

    /// Lets another process go on at once, if that can be done quickly.
    pub(crate) async fn release(&self, client: &Client) {
        let release = TxnRequest {
            compare: vec![self.condition()],
            success: vec![delete(Span::key(self.holder.clone())), delete(Span::key(self.heartbeat.clone()))],
            failure: Vec::new(),
        };
        let give_up = Instant::now() + RELEASE_TIMEOUT;
        if let Err(failure) = client.attempt(Lane::Requests, &release, RELEASE_TIMEOUT, give_up).await {
            tracing::debug!("the lock stays until another server takes over: {}", failure.cause());
        }
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Records that another process is the holder now.
pub(crate) fn lost(client: &Client) {
    client.replace("another server has taken over, because this one was silent for too long".to_owned());
}

async fn find(client: &Client, key: &Bytes) -> Result<Option<KeyValue>, Failure> {
    let request = RangeRequest { key: key.clone(), ..RangeRequest::default() };
    Ok(client.read(Lane::Requests, &request, client.deadline()).await?.kvs.into_iter().next())
}

fn revision(found: &Option<KeyValue>) -> i64 {
    found.as_ref().map_or(0, |found| found.mod_revision)
}

/// The condition that a key was written at a revision; 0 if it has no value.
pub(crate) fn at(key: &Bytes, revision: i64) -> Compare {
    Compare { result: EQUAL, target: MOD, key: key.clone(), mod_revision: Some(revision) }
}

fn put(key: &Bytes, value: &Bytes) -> RequestOp {
    RequestOp { request: Some(Request::Put(PutRequest { key: key.clone(), value: value.clone(), lease: 0 })) }
}

fn delete(Span { start, end }: Span) -> RequestOp {
    RequestOp { request: Some(Request::DeleteRange(DeleteRangeRequest { key: start, range_end: end })) }
}
