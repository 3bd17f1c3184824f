//! Gathers changes, so that many that come together make one new view.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long nothing must have changed.
const QUIET: Duration = Duration::from_millis(10);
/// How long a change waits at most.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Whether a change may wait for others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Urgency {
    /// It waits until nothing has changed for a moment.
    Gathered,
    /// It does not wait: requests still go to an endpoint that is gone.
    Immediate,
}

/// Changes since somebody last looked.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pending: Mutex<Pending>,
    wake: Notify,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Pending {
    /// The times of the first change and of the last one.
    span: Option<(Instant, Instant)>,
    is_immediate: bool,
}

impl Pending {
    fn note(&mut self, now: Instant, urgency: Urgency) {
        let first = self.span.map_or(now, |(first, _)| first);
        self.span = Some((first, now));
        self.is_immediate |= urgency == Urgency::Immediate;
    }

    /// When the changes are to be looked at; `None` if there are none.
    fn due(&self) -> Option<Instant> {
        let (first, last) = self.span?;
        Some(if self.is_immediate { first } else { (last + QUIET).min(first + WAIT_MAX) })
    }
}

impl Changes {
    pub(crate) fn note(&self, urgency: Urgency) {
        self.pending.lock().note(Instant::now(), urgency);
        self.wake.notify_one();
    }

    /// Waits until changes are to be looked at. What changes afterwards counts for the next call.
    ///
    /// # Cancel safety
    /// A call that is cancelled has taken nothing.
    pub(crate) async fn next(&self) {
        loop {
            let due = {
                let mut pending = self.pending.lock();
                let due = pending.due();
                if due.is_some_and(|due| due <= Instant::now()) {
                    *pending = Pending::default();
                    return;
                }
                due
            };
            match due {
                None => self.wake.notified().await,
                Some(due) => drop(tokio::time::timeout_at(due, self.wake.notified()).await),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_waits_for_a_pause_but_not_longer_than_the_limit() {
        let (changes, start) = (Changes::default(), Instant::now());
        changes.note(Urgency::Gathered);
        changes.next().await;
        assert_eq!(start.elapsed(), QUIET);

        let start = Instant::now();
        let storm = async {
            loop {
                changes.note(Urgency::Gathered);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = storm => {}
            () = changes.next() => assert_eq!(start.elapsed(), WAIT_MAX),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_immediate_change_takes_the_waiting_ones_along() {
        let (changes, start) = (Changes::default(), Instant::now());
        changes.note(Urgency::Gathered);
        changes.note(Urgency::Immediate);
        changes.next().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(*changes.pending.lock(), Pending::default());
    }
}
