//! The server's events in order: the queue between a reflector and its cache.
//!
//! Nothing is merged and nothing is reordered. A list comes object by object between two marks, and takes effect as it
//! arrives, so that a relist needs no second copy of all objects; until it ends, a reader sees some objects in the new
//! state and others in the old one. The queue is bounded: when it is full, the reflector waits, so the watch is not
//! read and the server holds the rest.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use kube::Resource;
use tokio::sync::mpsc;

use crate::cache::cached::Cached;
use crate::shared::decode_error::DecodeError;
use crate::shared::key::ObjectKey;
use crate::shared::selection::Scope;

/// The most deltas that wait between a reflector and its cache.
pub const DELTAS_MAX: usize = 1_024;

/// The most deltas that are applied to the cache under one lock.
pub const BATCH_MAX: usize = 1_000;

/// One change of the watched objects.
#[derive(Debug)]
pub enum Delta<K> {
    /// An object appeared, or appears again after a reconnect.
    Added(Entry<K>),
    /// Nothing changed, but the cache now covers this version.
    Bookmark {
        /// The scope of the watch.
        scope: Scope,
        /// The version up to which everything has been seen.
        resource_version: String,
    },
    /// An object is gone.
    Deleted {
        /// The key of the object.
        key: ObjectKey,
        /// Its final state, unless that could not be decoded.
        object: Option<Cached<K>>,
    },
    /// An object changed.
    Modified(Entry<K>),
    /// A list of every object in a scope begins. If it breaks off, it begins anew.
    ListBegun {
        /// The scope of the list: with several namespaces, each has lists of its own.
        scope: Scope,
    },
    /// The list is complete. Objects in its scope that it did not contain are gone; treat them as deleted.
    ListEnded {
        /// The scope of the list.
        scope: Scope,
        /// The version of the list.
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

/// The consuming end of a delta queue: every event in order, one consumer. As a [`Stream`] it ends when all senders are
/// dropped.
#[derive(Debug)]
pub struct DeltaFifo<K> {
    receiver: mpsc::Receiver<Delta<K>>,
}

/// The consumer is gone; deltas are no longer needed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the consumer of this delta queue is gone")]
pub struct Closed;

impl<K: Resource> Delta<K> {
    /// The version that a cache covers once it has applied this delta, unless the delta belongs to a list that has not
    /// ended; `None` where the server did not send one.
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

    /// The namespace of the delta; `None` for a cluster-scoped object, all namespaces, or an object without a name.
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
    /// Waits for deltas and moves all that wait, at most `batch_max`, into `batch`. Returns how many; 0 means that all
    /// senders are gone and everything has been taken.
    ///
    /// # Cancel safety
    /// A cancelled call has taken nothing.
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
