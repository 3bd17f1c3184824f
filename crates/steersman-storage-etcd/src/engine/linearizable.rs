//! The newest revision, read so that it includes everything acknowledged before the call: one read of etcd serves all
//! callers that have come since the previous one was sent.

use crate::client::{Client, Lane, undone};
use crate::proto::{RangeRequest, answered_at};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::Shared;
use parking_lot::Mutex;
use std::sync::Arc;
use steersman_machinery::Revision;
use steersman_storage::kv::{BoxFuture, Error};
use tokio_util::task::AbortOnDropHandle;

type Read = Shared<BoxFuture<'static, Result<Revision, Error>>>;

/// The reads of the newest revision: at most one is under way, and one is to come.
#[derive(Debug)]
pub(crate) struct Newest {
    client: Arc<Client>,
    inner: Arc<Inner>,
    /// Any key: only the revision of the answer counts.
    key: Bytes,
}

#[derive(Debug, Default)]
struct Inner {
    /// The read that has not begun, which whoever comes may join.
    to_come: Mutex<Option<Read>>,
    /// Held by the read that is under way.
    under_way: tokio::sync::Mutex<()>,
}

impl Newest {
    pub(crate) fn new(client: Arc<Client>, key: Bytes) -> Newest {
        Newest { client, inner: Arc::default(), key }
    }

    /// The newest revision: at least that of everything acknowledged before the call.
    pub(crate) async fn read(&self) -> Result<Revision, Error> {
        let read = self.inner.to_come.lock().get_or_insert_with(|| self.new_read()).clone();
        let revision = read.await?;
        self.client.want(revision);
        Ok(revision)
    }

    /// A read in a task of its own. If those who wait drove it, each of its steps would wake all of them.
    fn new_read(&self) -> Read {
        let (client, inner) = (self.client.clone(), self.inner.clone());
        let request = RangeRequest { key: self.key.clone(), keys_only: true, ..RangeRequest::default() };
        let read = tokio::spawn(async move {
            let _under_way = inner.under_way.lock().await;
            // From here on the read may be older than what a caller has seen acknowledged.
            inner.to_come.lock().take();
            let answer = client.read(Lane::Requests, &request, client.deadline()).await;
            answer.map(|answer| answered_at(answer.header)).map_err(|failure| undone(&failure))
        });
        // Ends the task when nobody waits any more.
        let read = AbortOnDropHandle::new(read);
        // A task that does not panic is dropped only by a runtime that is shutting down.
        let answer: BoxFuture<'static, _> = Box::pin(async move { read.await.unwrap_or(Err(Error::Closed)) });
        answer.shared()
    }
}
