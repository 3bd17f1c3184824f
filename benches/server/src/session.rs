//! The progress of the current measurement, and the threads that wait for it.
//!
//! The measured program requests the next step: `reset` at its start, `expire` to end its watch with 410, `updates` to
//! stream the events to it. `watching` is answered when a watch is open that the next step will reach.

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
pub(crate) struct Session {
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// The progress of a measurement.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Progress {
    /// The number of the measurement. A watch of an older one is ignored.
    epoch: u64,
    /// The number of times that the watches have expired; this many lists are no longer served.
    pub(crate) n_expired: usize,
    /// Whether the updates have been requested.
    has_updates: bool,
    n_watching: usize,
}

/// The next action of an open watch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Next {
    End,
    Expire,
    Updates,
}

impl Session {
    pub(crate) fn progress(&self) -> Progress {
        *self.progress.lock()
    }

    pub(crate) fn reset(&self) {
        self.change(|progress| *progress = Progress { epoch: progress.epoch + 1, ..Progress::default() });
    }

    pub(crate) fn expire(&self) {
        self.change(|progress| {
            progress.n_expired += 1;
            progress.n_watching = 0;
        });
    }

    pub(crate) fn stream_updates(&self) {
        self.change(|progress| progress.has_updates = true);
    }

    /// Counts a watch that has sent the state `seen`.
    pub(crate) fn start_watching(&self, seen: Progress) {
        self.change(|progress| {
            if (progress.epoch, progress.n_expired) == (seen.epoch, seen.n_expired) {
                progress.n_watching += 1;
            }
        });
    }

    /// Waits until a watch is open.
    pub(crate) fn wait_for_watch(&self) {
        self.changed.wait_while(&mut self.progress.lock(), |progress| progress.n_watching == 0);
    }

    /// Waits for the next action of a watch that began at `seen`.
    pub(crate) fn next(&self, seen: Progress, has_sent_updates: bool) -> Next {
        let mut progress = self.progress.lock();
        loop {
            if progress.epoch != seen.epoch {
                return Next::End;
            }
            if progress.n_expired != seen.n_expired {
                return Next::Expire;
            }
            if progress.has_updates && !has_sent_updates {
                return Next::Updates;
            }
            self.changed.wait(&mut progress);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress.lock());
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_gets_updates_once_and_ends_with_its_list_or_its_measurement() {
        let session = Session::default();
        let seen = session.progress();
        session.stream_updates();
        assert_eq!(session.next(seen, false), Next::Updates);
        session.expire();
        assert_eq!(session.next(seen, true), Next::Expire);
        assert_eq!(session.next(session.progress(), false), Next::Updates);
        session.reset();
        assert_eq!(session.next(seen, true), Next::End);
    }

    #[test]
    fn only_a_watch_of_the_list_that_is_served_counts() {
        let session = Session::default();
        let seen = session.progress();
        session.start_watching(seen);
        session.wait_for_watch();
        session.expire();
        session.start_watching(seen);
        assert_eq!(session.progress().n_watching, 0);
    }
}
