//! The watch of the contract: a feed whose keys are those of the contract, which ends when the engine is closed.

use crate::feed::{Feed, kv_event};
use crate::layout::Layout;
use steersman_machinery::Revision;
use steersman_storage::kv::{self, Batch, BoxFuture, Error, Watch};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How watches end once the engine was closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// They wait no longer.
    pub(crate) give_up: Instant,
    /// The newest revision that was acknowledged to this process: a follower returns everything up to it before it ends.
    pub(crate) last: Revision,
}

/// The watch of all keys of the contract.
pub(crate) struct Follower {
    end: watch::Receiver<Option<End>>,
    feed: Feed,
    layout: Layout,
}

impl Follower {
    pub(crate) fn new(feed: Feed, layout: Layout, end: watch::Receiver<Option<End>>) -> Follower {
        Follower { end, feed, layout }
    }

    /// Waits until nothing more is to be handed out: the engine was closed, and what it acknowledged was handed out, or
    /// that takes too long.
    async fn ended(end: &mut watch::Receiver<Option<End>>, progress: Revision) {
        // The sender lives as long as the engine, without which nothing more comes either.
        let Ok(Some(End { last, give_up })) = end.wait_for(Option::is_some).await.map(|end| *end) else { return };
        if progress < last {
            sleep_until(give_up).await;
        }
    }
}

impl Watch for Follower {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, Error>> {
        Box::pin(async {
            let Follower { end, feed, layout } = self;
            let progress = feed.progress();
            let news = tokio::select! {
                biased;
                () = Follower::ended(end, progress) => return Err(Error::Closed),
                news = feed.next() => news?,
            };
            let event = |event| {
                let event = kv_event(event)?;
                Some(kv::Event { key: layout.key(&event.key)?, ..event })
            };
            Ok(Batch { events: news.events.into_iter().filter_map(event).collect(), progress: news.progress })
        })
    }
}
