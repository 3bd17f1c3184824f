//! The history in etcd: the changes between two revisions, and how far back they go.

use crate::client::Client;
use crate::feed::pieces::event_revision;
use crate::feed::{Feed, Previous, kv_event};
use crate::layout::Span;
use crate::proto::{DELETE, Event, revision_of};
use bytes::Bytes;
use std::sync::Arc;
use steersman_machinery::Revision;
use steersman_storage::kv::{Change, Changes, Entry, Error};
use tokio::time::Instant;

/// The changes of some keys of etcd after one revision and up to another, about `limit` of them. Keys are those of etcd.
pub(crate) async fn history(
    client: &Arc<Client>,
    span: Span,
    after: Revision,
    through: Revision,
    limit: usize,
    give_up: Instant,
) -> Result<Changes, Error> {
    let mut changes = Vec::new();
    if through <= after {
        return Ok(Changes { changes, progress: after });
    }
    let mut feed = Feed::new(client.clone(), span, after, Previous::Sent);
    feed.want(through);
    while feed.progress() < through {
        let Ok(news) = tokio::time::timeout_at(give_up, feed.next()).await else {
            return Err(Error::Unavailable { source: Arc::new(NoHistory { after, through }) });
        };
        for event in news?.events {
            let revision = event_revision(&event);
            let is_enough = limit.max(1) <= changes.len();
            let reached = changes.last().map(|change: &Change| change.event.revision);
            if let Some(progress) = reached.filter(|reached| is_enough && *reached < revision) {
                return Ok(Changes { changes, progress });
            }
            if through < revision {
                return Ok(Changes { changes, progress: through });
            }
            if lacks_previous(&event) {
                client.note_oldest(revision);
                return Err(Error::Compacted { requested: after, oldest: revision });
            }
            changes.extend(change(event));
        }
    }
    Ok(Changes { changes, progress: through })
}

/// The oldest revision after which history is kept. etcd only says it when a watch begins too early.
pub(crate) async fn oldest(client: &Arc<Client>, key: Bytes, give_up: Instant) -> Result<Revision, Error> {
    let (known, newest) = (client.oldest(), client.seen());
    let mut feed = Feed::new(client.clone(), Span::key(key), known, Previous::Left);
    feed.want(newest);
    while feed.progress() < newest {
        match tokio::time::timeout_at(give_up, feed.next()).await {
            Ok(Ok(_)) => {}
            Ok(Err(Error::Compacted { oldest, .. })) => return Ok(oldest),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(Error::Unavailable { source: Arc::new(NoHistory { after: known, through: newest }) }),
        }
    }
    Ok(known)
}

/// Whether etcd has left out the value that a change has replaced. It does, without a word, when that is compacted at the moment.
fn lacks_previous(event: &Event) -> bool {
    let Some(kv) = &event.kv else { return false };
    let is_creation = event.kind != DELETE && kv.create_revision == kv.mod_revision;
    event.prev_kv.is_none() && !is_creation
}

/// etcd did not send history in time.
#[derive(Debug, thiserror::Error)]
#[error("etcd did not send the changes from revision {after} to {through} in time")]
struct NoHistory {
    after: Revision,
    through: Revision,
}

fn change(event: Event) -> Option<Change> {
    let previous = event.prev_kv.clone().map(|previous| Entry {
        key: previous.key,
        revision: revision_of(previous.mod_revision),
        value: previous.value,
    });
    Some(Change { event: kv_event(event)?, previous })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::KeyValue;

    #[test]
    fn a_change_without_the_value_that_it_replaced_is_not_taken_for_a_creation() {
        let kv = |create_revision, mod_revision| KeyValue { create_revision, mod_revision, ..KeyValue::default() };
        let put = |create_revision, prev_kv| Event { kind: 0, kv: Some(kv(create_revision, 9)), prev_kv };
        // A deletion has no `create_revision`.
        let deletion = |prev_kv| Event { kind: DELETE, kv: Some(kv(0, 9)), prev_kv };
        assert!(!lacks_previous(&put(9, None)));
        assert!(!lacks_previous(&put(3, Some(kv(3, 5)))));
        assert!(lacks_previous(&put(3, None)));
        assert!(!lacks_previous(&deletion(Some(kv(3, 5)))));
        assert!(lacks_previous(&deletion(None)));
    }
}
