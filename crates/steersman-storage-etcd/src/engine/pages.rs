//! Lists, in pages at one revision.

use crate::client::failure::{Failure, Refusal};
use crate::client::{Client, Lane, undone};
use crate::layout::Span;
use crate::proto::{KeyValue, RangeRequest, answered_at, number_of};
use std::ops::Deref;
use steersman_machinery::Revision;
use steersman_storage::kv::Error;
use tokio::time::Instant;

/// The most keys in one page.
const PAGE_KEYS_MAX: usize = 2_000;
/// The keys of the first page, of which the size of the others is computed. Each has at most twice as many keys as the one before, since small
/// values say nothing of those that follow.
const PAGE_KEYS_FIRST: usize = 64;
/// The same for a list whose pages are all of about the same size.
const PAGE_KEYS_FIRST_EVEN: usize = 4;
/// The bytes that a page aims at.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Reads a list page by page.
#[derive(Debug)]
pub(crate) struct Pages<C> {
    client: C,
    /// Known after the first page if it was not given.
    revision: Option<Revision>,
    /// The keys that are left; `None` after the last page.
    rest: Option<Span>,
    /// The number of keys of the next page.
    page_keys: usize,
}

impl<C: Deref<Target = Client>> Pages<C> {
    /// The list of a span at a revision, or at the newest.
    pub(crate) fn new(client: C, span: Span, revision: Option<Revision>) -> Pages<C> {
        Pages { client, revision, rest: Some(span), page_keys: PAGE_KEYS_FIRST }
    }

    /// A list of which no page is much larger than the others, also if it begins with large values.
    pub(crate) fn even(client: C, span: Span, revision: Revision) -> Pages<C> {
        Pages { page_keys: PAGE_KEYS_FIRST_EVEN, ..Pages::new(client, span, Some(revision)) }
    }

    /// The next page, of at most `keys_max` keys; `None` after the last. A revision of the future means the newest.
    ///
    /// # Errors
    /// [`Error::Compacted`] with the revision that is gone as the oldest too, since etcd does not say which is.
    pub(crate) async fn next(&mut self, keys_max: usize) -> Result<Option<Vec<KeyValue>>, Error> {
        let Some(span) = self.rest.clone() else { return Ok(None) };
        // The caller may have taken its time since the last page.
        let give_up = self.client.deadline();
        loop {
            let limit = self.page_keys.min(keys_max).max(1);
            let request = RangeRequest {
                key: span.start.clone(),
                range_end: span.end.clone(),
                limit: i64::try_from(limit).unwrap_or(i64::MAX),
                revision: self.revision.map_or(0, number_of),
                keys_only: false,
            };
            // A smaller page may be answered in time.
            let soon = Instant::now() + self.client.options.write_timeout;
            match self.client.read(Lane::Bulk, &request, if 1 < limit { give_up.min(soon) } else { give_up }).await {
                Ok(answer) => {
                    self.revision.get_or_insert(answered_at(answer.header));
                    let bytes: usize = answer.kvs.iter().map(|found| found.key.len() + found.value.len()).sum();
                    let per_key = (bytes / answer.kvs.len().max(1)).max(1);
                    self.page_keys = (PAGE_BYTES / per_key).clamp(1, PAGE_KEYS_MAX.min(2 * limit));
                    self.rest = answer.kvs.last().filter(|_| answer.more).map(|last| span.after(&last.key));
                    return Ok(Some(answer.kvs));
                }
                Err(Failure::Refused(Refusal::AnswerTooLarge)) if 1 < limit => self.page_keys = limit / 2,
                Err(Failure::NotDone(_) | Failure::Unknown(_)) if 1 < limit && Instant::now() < give_up => {
                    self.page_keys = limit / 2;
                }
                Err(Failure::Refused(Refusal::Future)) => self.revision = None,
                Err(Failure::Refused(Refusal::Compacted)) => {
                    let requested = self.revision.unwrap_or(Revision::ZERO);
                    return Err(Error::Compacted { requested, oldest: requested });
                }
                Err(failure) => return Err(undone(&failure)),
            }
        }
    }

    /// Whether pages are left.
    pub(crate) fn has_more(&self) -> bool {
        self.rest.is_some()
    }

    /// The revision of the list, once a page was read.
    pub(crate) fn revision(&self) -> Revision {
        self.revision.unwrap_or(Revision::ZERO)
    }
}
