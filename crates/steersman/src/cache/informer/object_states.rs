//! The states of one object as a stream, from a cache that exists anyway.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

use crate::cache::cached::{Cached, Decoder};
use crate::cache::indexer::Found;
use crate::cache::informer::changes::Reader;
use crate::cache::informer::task::Interest;
use crate::cache::informer::{HandlerOptions, Informer};
use crate::cache::outcome::Outcome;
use crate::shared::key::ObjectKey;
use crate::shared::selection::CachedResource;

/// The states of one object; see [`Informer::watch_object`].
#[must_use = "the cache waits for a stream that nobody reads"]
pub struct ObjectStates<K> {
    states: BoxStream<'static, Found<K>>,
}

impl<K: CachedResource> Informer<K> {
    /// The current state of the object at `key`, once the cache is filled, and then every later state of it in the
    /// cache. Between a deletion and a creation the object is absent. The stream ends when the informer has stopped. An
    /// object in a namespace that is not watched yields no state, since its state is unknown.
    ///
    /// Sends no request to the server; changes of other objects do not wake the reader. Read it to the end or drop it,
    /// as [`Changes`](crate::cache::Changes).
    pub fn watch_object(&self, key: &ObjectKey) -> ObjectStates<K> {
        let reader = Reader::new(self, Interest::One(key.clone()), &HandlerOptions::default());
        // The end of a list shows that an object is absent, if its namespace was listed.
        let is_known = !self.lister().selects(key.namespace());
        let key = key.clone();
        let states = futures::stream::unfold((reader, is_known), move |(mut reader, mut is_known)| {
            let key = key.clone();
            async move {
                loop {
                    let outcome = reader.next().await?;
                    if let Some(state) = state_after(&outcome, &key, reader.decoder(), is_known) {
                        is_known = true;
                        return Some((state, (reader, is_known)));
                    }
                }
            }
        });
        ObjectStates { states: states.fuse().boxed() }
    }
}

/// The state in the cache after `outcome`; `None` if it is the known one.
fn state_after<K: CachedResource>(
    outcome: &Outcome<K>,
    key: &ObjectKey,
    decoder: &Decoder<K>,
    is_known: bool,
) -> Option<Found<K>> {
    let decoded = |object: &Cached<K>| match decoder.decode(key, object) {
        Ok(object) => Found::Object(object),
        Err(error) => Found::Undecodable(error),
    };
    Some(match outcome {
        Outcome::Added(entry, _) => decoded(&entry.object),
        Outcome::Deleted { .. } => Found::Absent,
        // The list did not contain the object.
        Outcome::Filled if !is_known => Found::Absent,
        Outcome::Filled => return None,
        Outcome::Undecodable(error) => Found::Undecodable(Arc::clone(error)),
        Outcome::Updated { new, .. } => decoded(new),
    })
}

impl<K> Stream for ObjectStates<K> {
    type Item = Found<K>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().states.poll_next_unpin(cx)
    }
}

impl<K> fmt::Debug for ObjectStates<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStates").finish_non_exhaustive()
    }
}
