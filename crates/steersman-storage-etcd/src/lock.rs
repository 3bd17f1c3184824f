//! The lock of a prefix: one process at a time works on the keys below it, and another takes over when it is gone.
//!
//! `PREFIX/holder` has the id of the process that works. The holder writes `PREFIX/heartbeat` now and then. A process that waits looks at
//! both. If neither has changed for the time of a takeover, by a clock of its own, it writes its own id and deletes all fences, in one
//! transaction. A process that was only paused cannot write any more then: its transactions require its fence, and it may write
//! that only while it is the holder. So the times decide when there is a takeover, and never whether it is safe.

pub(crate) mod fence;
mod silence;

use crate::client::failure::{Failure, Refusal};
use crate::client::{Client, Lane, undone};
use crate::connect::ConnectError;
use crate::layout::{Layout, Span};
use crate::lock::silence::{Signs, Silence};
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

/// A process that waits for the lock.
struct Candidate<'a> {
    client: &'a Client,
    layout: &'a Layout,
    id: Bytes,
    holder: Bytes,
    heartbeat: Bytes,
    /// Whether an operator was told that this process waits. From then on it goes on waiting when etcd is away for a while.
    is_waiting: bool,
}

/// The keys of the lock in etcd.
struct Found {
    holder: Option<KeyValue>,
    signs: Signs,
}

impl Lock {
    /// Waits until no other process holds the lock, and takes it.
    pub(crate) async fn acquire(client: &Client, layout: &Layout, takeover: Duration) -> Result<Lock, ConnectError> {
        let id = Uuid::new_v4().simple().to_string().into();
        let (holder, heartbeat) = (layout.holder_key(), layout.heartbeat_key());
        let mut candidate = Candidate { client, layout, id, holder, heartbeat, is_waiting: false };
        let interval = takeover / HEARTBEATS;
        let mut silence = Silence::new(2 * interval);
        loop {
            let Some(found) = candidate.find().await? else {
                silence.forget();
                sleep(interval).await;
                continue;
            };
            if let Some(current) = &found.holder {
                if current.value == candidate.id {
                    let Candidate { holder, heartbeat, .. } = candidate;
                    return Ok(Lock { holder, heartbeat, held_at: current.mod_revision });
                }
                if silence.look(found.signs, Instant::now()) < takeover {
                    candidate.say_it_waits();
                    sleep(interval).await;
                    continue;
                }
            }
            // The next look shows whether the lock was taken.
            if !candidate.take(found.signs).await? {
                sleep(interval).await;
            }
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

impl Candidate<'_> {
    /// Reads the keys of the lock; `None` if etcd is away.
    async fn find(&self) -> Result<Option<Found>, ConnectError> {
        let found = async { Ok((find(self.client, &self.holder).await?, find(self.client, &self.heartbeat).await?)) };
        match found.await {
            Ok((holder, heartbeat)) => {
                let signs = [revision(holder.as_ref()), revision(heartbeat.as_ref())];
                Ok(Some(Found { holder, signs }))
            }
            Err(Failure::NotDone(_) | Failure::Unknown(_)) if self.is_waiting => Ok(None),
            Err(failure) => Err(ConnectError::Kv(undone(&failure))),
        }
    }

    /// Tries to take the lock, if its keys are as they were found. Returns `false` if etcd has no room for it, and may have written it all the
    /// same.
    async fn take(&self, [holder, heartbeat]: Signs) -> Result<bool, ConnectError> {
        let take = TxnRequest {
            compare: vec![at(&self.holder, holder), at(&self.heartbeat, heartbeat)],
            success: vec![
                put(&self.holder, &self.id),
                put(&self.heartbeat, &Bytes::new()),
                delete(self.layout.fences()),
            ],
            failure: Vec::new(),
        };
        let client = self.client;
        match client.attempt(Lane::Requests, &take, client.options.write_timeout, client.deadline()).await {
            Ok(_) | Err(Failure::NotDone(_) | Failure::Unknown(_)) => Ok(true),
            Err(failure @ Failure::Refused(Refusal::NoSpace)) if self.is_waiting => {
                tracing::warn!("the lock cannot be taken: {}", failure.cause());
                Ok(false)
            }
            Err(failure) => Err(ConnectError::Kv(undone(&failure))),
        }
    }

    fn say_it_waits(&mut self) {
        if !self.is_waiting {
            tracing::info!(
                prefix = self.client.options.prefix,
                "another server works on these objects: waiting until it has ended"
            );
            self.is_waiting = true;
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

fn revision(found: Option<&KeyValue>) -> i64 {
    found.map_or(0, |found| found.mod_revision)
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
