//! Lists, in pages at one revision.

use crate::client::failure::{Failure, Refusal};
use crate::client::{Client, Lane, undone};
use crate::layout::Span;
use crate::proto::{KeyValue, RangeRequest, answered_at, number_of};
use std::ops::Deref;
use steersman_machinery::Revision;
use steersman_storage::kv::Error;
use tokio::time::Instant;

/// The most keys in one page. For each page etcd counts all keys that are left, so small pages make a long list slow. With large ones
/// etcd needs much memory where many small values come before large ones: it makes the answer before it is refused as too large.
const PAGE_KEYS_MAX: usize = 5_000;
/// How many times as many keys as the page before one may have, and how many times fewer than one that was too large: etcd makes each
/// attempt in full.
const GROWTH_MAX: usize = 4;
/// The keys of the first page, of which the size of the others is computed.
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
                    self.page_keys = keys_after(limit, answer.kvs.len(), bytes);
                    self.rest = answer.kvs.last().filter(|_| answer.more).map(|last| span.after(&last.key));
                    return Ok(Some(answer.kvs));
                }
                Err(Failure::Refused(Refusal::AnswerTooLarge)) if 1 < limit => {
                    self.page_keys = (limit / GROWTH_MAX).max(1);
                }
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

/// The number of keys to ask for after a page for which `limit` keys were requested, and which had `n_keys` of them and `bytes` bytes.
fn keys_after(limit: usize, n_keys: usize, bytes: usize) -> usize {
    let per_key = (bytes / n_keys.max(1)).max(1);
    (PAGE_BYTES / per_key).clamp(1, PAGE_KEYS_MAX.min(limit.saturating_mul(GROWTH_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_aims_at_some_megabytes_and_grows_by_steps() {
        assert_eq!(keys_after(64, 64, 64 * 100), 256, "small values say little about those that follow");
        assert_eq!(keys_after(4_096, 4_096, 4_096 * 100), PAGE_KEYS_MAX);
        assert_eq!(keys_after(64, 64, 64 * PAGE_BYTES / 8), 8);
        assert_eq!(keys_after(8, 8, 16 * PAGE_BYTES), 1, "a page has a key, however large its value is");
        assert_eq!(keys_after(64, 0, 0), 256);
    }
}
