//! The server's events in order: the queue between a reflector and its cache.
//!
//! Nothing is merged and nothing is reordered. A list comes object by object between two marks, and takes effect as it
//! comes, so that a relist of everything needs no second copy of everything; until it ends, a reader sees some objects as
//! they are and others as they were. The queue is bounded: when it is full, the reflector waits, which means that the
//! watch is not read and the server holds the rest.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use kube::Resource;
use tokio::sync::mpsc;

use crate::cached::Cached;
use crate::decode_error::DecodeError;
use crate::key::ObjectKey;
use crate::selection::Scope;

/// How many deltas wait between a reflector and its cache.
pub const DELTAS_MAX: usize = 1_024;

/// How many deltas are applied to the cache under one lock.
pub const BATCH_MAX: usize = 1_000;

/// One thing that happened to the watched objects.
#[derive(Debug)]
pub enum Delta<K> {
    /// An object appeared, or appears again after a reconnect.
    Added(Entry<K>),
    /// Nothing changed, but the cache now covers this version.
    Bookmark {
        /// Where.
        scope: Scope,
        /// Everything up to here has been seen.
        resource_version: String,
    },
    /// An object is gone.
    Deleted {
        /// Which one.
        key: ObjectKey,
        /// Its final state, unless that could not be decoded.
        object: Option<Cached<K>>,
    },
    /// An object changed.
    Modified(Entry<K>),
    /// A list of every object in a scope begins. If it breaks off, it begins anew.
    ListBegun {
        /// Where: of several namespaces, each has lists of its own.
        scope: Scope,
    },
    /// The list is complete. Objects in its scope that it did not name are gone; treat them as deleted.
    ListEnded {
        /// Where.
        scope: Scope,
        /// The version of the whole.
        resource_version: String,
    },
    /// An object exists that cannot be decoded.
    Undecodable(Arc<DecodeError>),
}

/// An object and its key.
#[derive(Debug)]
pub struct Entry<K> {
    /// The key of `object`.
    pub key: ObjectKey,
    /// The object, decoded or as bytes.
    pub object: Cached<K>,
}

/// The producing end of a delta queue; a reflector holds it. Clones feed the same queue.
#[derive(Debug)]
pub struct DeltaSender<K> {
    sender: mpsc::Sender<Delta<K>>,
}

/// The consuming end of a delta queue: every event in order, one consumer. As a [`Stream`] it ends when the reflector is gone.
#[derive(Debug)]
pub struct DeltaFifo<K> {
    receiver: mpsc::Receiver<Delta<K>>,
}

/// The consumer is gone; deltas are no longer needed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the consumer of this delta queue is gone")]
pub struct Closed;

impl<K: Resource> Delta<K> {
    /// The version that a cache covers once it has this delta, unless it is one of a list that has not ended; `None` where
    /// the server did not say.
    pub fn resource_version(&self) -> Option<&str> {
        let version = match self {
            Self::Added(entry) | Self::Modified(entry) => Some(entry.object.resource_version()),
            Self::Bookmark { resource_version, .. } | Self::ListEnded { resource_version, .. } => {
                Some(resource_version.as_str())
            }
            Self::Deleted { object, .. } => object.as_ref().map(Cached::resource_version),
            Self::ListBegun { .. } => None,
            Self::Undecodable(error) => Some(error.resource_version.as_str()),
        };
        version.filter(|version| !version.is_empty())
    }

    /// The namespace that this is about; `None` if it is about a cluster-scoped object, all namespaces, or an object without a
    /// name.
    pub(crate) fn namespace(&self) -> Option<&str> {
        match self {
            Self::Added(entry) | Self::Modified(entry) => entry.key.namespace(),
            Self::Bookmark { scope, .. } | Self::ListBegun { scope } | Self::ListEnded { scope, .. } => {
                scope.namespace()
            }
            Self::Deleted { key, .. } => key.namespace(),
            Self::Undecodable(error) => error.key.as_ref().and_then(ObjectKey::namespace),
        }
    }
}

impl<K> Clone for Entry<K> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), object: self.object.clone() }
    }
}

/// Makes a queue that holds at most `deltas_max` deltas.
pub fn delta_fifo<K>(deltas_max: usize) -> (DeltaSender<K>, DeltaFifo<K>) {
    let (sender, receiver) = mpsc::channel(deltas_max.max(1));
    (DeltaSender { sender }, DeltaFifo { receiver })
}

impl<K> DeltaSender<K> {
    /// Appends `delta`, waiting for room.
    ///
    /// # Cancel safety
    /// A cancelled push has not pushed.
    ///
    /// # Errors
    /// [`Closed`] once the consumer is gone.
    pub async fn push(&self, delta: Delta<K>) -> Result<(), Closed> {
        self.sender.send(delta).await.map_err(|_| Closed)
    }
}

impl<K> Clone for DeltaSender<K> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone() }
    }
}

impl<K> DeltaFifo<K> {
    /// Waits for deltas and moves as many as there are, at most `batch_max`, into `batch`. Returns how many; 0 means
    /// that the reflector is gone and everything has been taken.
    ///
    /// # Cancel safety
    /// Cancelled, it has taken nothing.
    pub async fn pop(&mut self, batch: &mut Vec<Delta<K>>, batch_max: usize) -> usize {
        self.receiver.recv_many(batch, batch_max).await
    }
}

impl<K> Stream for DeltaFifo<K> {
    type Item = Delta<K>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delta<K>>> {
        self.get_mut().receiver.poll_recv(cx)
    }
}
