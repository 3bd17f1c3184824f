//! The committed changes after a revision: one watch of etcd, begun again where it broke.
//!
//! Nothing is lost or doubled by that, since a watch begins at the last revision that was handed out whole, of which nothing
//! is handed out again. A watch that says nothing for a while is asked for its progress; if it does not answer either, it
//! counts as dead. It is also asked when somebody waits for a revision that has not come: it may consist of changes of
//! other keys.

mod follower;
mod history;
mod pieces;

use crate::client::failure::Failure;
use crate::client::{Client, Stream};
use crate::feed::pieces::Pieces;
use crate::layout::Span;
use crate::proto::{
    self, DELETE, Event, WatchCommand, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
    revision_of,
};
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::Revision;
use steersman_storage::kv::{self, Error};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

pub(crate) use crate::feed::follower::{End, Follower};
pub(crate) use crate::feed::history::{history, oldest};

/// A watch that has said nothing for so long is asked for its progress.
const QUIET: Duration = Duration::from_secs(2);
/// A watch that has said nothing for so long is dead.
const DEAD: Duration = Duration::from_secs(5);
/// A watch that lacks a revision that somebody waits for is asked for its progress after this time.
const BEHIND: Duration = Duration::from_millis(2);
/// etcd does not answer while it has events to send, so it is asked again after this time.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The pauses before a watch is begun again.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A part of the reason that etcd gives when it ends a watch because of its token.
const TOKEN_REFUSED: &str = "auth token";

/// Whether events come with the previous values of their keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Previous {
    Left,
    Sent,
}

/// A watch of some keys of etcd that goes on over failures.
pub(crate) struct Feed {
    client: Arc<Client>,
    /// The pause before the watch is begun again, which grows until etcd takes it.
    pause: Duration,
    /// Whether somebody was told that etcd does not take the watch.
    is_refusal_told: bool,
    pieces: Pieces,
    previous: Previous,
    span: Span,
    state: State,
    wanted: watch::Receiver<Revision>,
    /// Wanted by the owner of this feed alone.
    wanted_here: Revision,
}

enum State {
    /// To be begun at this time, after a pause.
    Broken {
        at: Instant,
    },
    Running(Box<Running>),
}

struct Running {
    /// When progress is asked for next.
    ask_at: Instant,
    /// Whether progress was asked for and not answered.
    is_asked: bool,
    heard_at: Instant,
    stream: Stream,
}

/// The next part of a feed.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) events: Vec<Event>,
    /// All events up to this revision were handed out.
    pub(crate) progress: Revision,
}

impl Feed {
    pub(crate) fn new(client: Arc<Client>, span: Span, after: Revision, previous: Previous) -> Feed {
        Feed {
            wanted: client.wanted(),
            client,
            pause: PAUSE_MIN,
            is_refusal_told: false,
            pieces: Pieces::new(after),
            previous,
            span,
            state: State::Broken { at: Instant::now() },
            wanted_here: Revision::ZERO,
        }
    }

    pub(crate) fn progress(&self) -> Revision {
        self.pieces.progress()
    }

    /// Makes the feed say when it has reached a revision, even if no event leads there.
    pub(crate) fn want(&mut self, revision: Revision) {
        self.wanted_here = revision;
    }

    /// The next whole revisions, or progress without any. Waits while etcd cannot be reached.
    ///
    /// # Errors
    /// [`Error::Compacted`] and [`Error::Replaced`].
    ///
    /// # Cancel safety
    /// A dropped future has consumed nothing.
    pub(crate) async fn next(&mut self) -> Result<News, Error> {
        loop {
            self.check_kept()?;
            let running = match &mut self.state {
                State::Running(running) => running,
                State::Broken { at } => {
                    sleep_until(*at).await;
                    self.begin().await?;
                    continue;
                }
            };
            let wanted = (*self.wanted.borrow_and_update()).max(self.wanted_here);
            if self.pieces.progress() < wanted {
                running.ask_soon();
            }
            let wake_at = running.wake_at();
            // All arms are cancel-safe: a message is taken whole or not at all, and what it brings is handed out at once.
            tokio::select! {
                answer = running.stream.answers.message() => {
                    let answer = match answer {
                        Ok(Some(answer)) => answer,
                        Ok(None) => {
                            self.break_off("it ended");
                            continue;
                        }
                        Err(status) => {
                            let failure = self.client.watch_failure(&status, &running.stream);
                            self.break_off(&failure.cause().to_string());
                            continue;
                        }
                    };
                    if let Some(news) = self.take(answer)? {
                        return Ok(news);
                    }
                }
                _ = self.wanted.changed() => {}
                () = sleep_until(wake_at) => {
                    if running.is_dead() {
                        self.break_off("it says nothing");
                    } else {
                        running.ask();
                    }
                }
            }
        }
    }

    fn check_kept(&self) -> Result<(), Error> {
        let (requested, oldest) = (self.pieces.progress(), self.client.oldest());
        if requested < oldest { Err(Error::Compacted { requested, oldest }) } else { Ok(()) }
    }

    async fn begin(&mut self) -> Result<(), Error> {
        let create = WatchCreateRequest {
            key: self.span.start.clone(),
            range_end: self.span.end.clone(),
            start_revision: self.pieces.start_revision(),
            progress_notify: true,
            prev_kv: self.previous == Previous::Sent,
            fragment: true,
        };
        let member = self.client.pick();
        match self.client.watch(member, WatchRequest { command: Some(WatchCommand::Create(create)) }).await {
            Ok(stream) => {
                let now = Instant::now();
                let running = Running { ask_at: now + QUIET, is_asked: false, heard_at: now, stream };
                self.state = State::Running(Box::new(running));
                Ok(())
            }
            Err(Failure::Replaced(fault)) => Err(Error::Replaced { fault }),
            Err(failure) => {
                self.client.failed(member);
                self.pause(&failure.cause().to_string());
                Ok(())
            }
        }
    }

    /// Gives the stream up; the watch is begun again after a pause.
    fn break_off(&mut self, why: &str) {
        if let State::Running(running) = &self.state {
            self.client.failed(running.stream.member);
        }
        self.pieces.start_over();
        self.pause(why);
    }

    fn pause(&mut self, why: &str) {
        let progress = self.pieces.progress();
        // After several attempts in a row.
        if self.pause == PAUSE_MAX && !self.is_refusal_told {
            self.is_refusal_told = true;
            tracing::warn!(%progress, "etcd does not take a watch, and it is begun again until it does: {why}");
        } else {
            tracing::debug!(%progress, "a watch is begun again, since {why}");
        }
        self.state = State::Broken { at: Instant::now() + self.pause };
        self.pause = (2 * self.pause).min(PAUSE_MAX);
    }

    fn take(&mut self, answer: WatchResponse) -> Result<Option<News>, Error> {
        if let State::Running(running) = &mut self.state {
            running.heard();
            if answer.created {
                self.client.answered(running.stream.member);
            }
        }
        if answer.canceled {
            if 0 < answer.compact_revision {
                self.client.note_oldest(revision_of(answer.compact_revision));
                self.check_kept()?;
            }
            if answer.cancel_reason.contains(TOKEN_REFUSED)
                && let State::Running(running) = &self.state
            {
                self.client.forget_token(running.stream.token.as_ref());
            }
            self.break_off(&answer.cancel_reason);
            return Ok(None);
        }
        self.pause = PAUSE_MIN;
        self.is_refusal_told = false;
        if answer.created {
            return Ok(None);
        }
        let Some(events) = self.pieces.take(answer) else { return Ok(None) };
        let progress = self.pieces.progress();
        self.client.note_seen(progress);
        Ok(Some(News { events, progress }))
    }
}

impl Running {
    /// Asks for progress soon: others have seen a newer revision.
    fn ask_soon(&mut self) {
        let pause = if self.is_asked { ASK_AGAIN } else { BEHIND };
        self.ask_at = self.ask_at.min(Instant::now() + pause);
    }

    fn heard(&mut self) {
        self.heard_at = Instant::now();
        self.ask_at = self.heard_at + QUIET;
        self.is_asked = false;
    }

    fn wake_at(&self) -> Instant {
        self.ask_at.min(self.heard_at + DEAD)
    }

    fn is_dead(&self) -> bool {
        self.heard_at + DEAD <= Instant::now()
    }

    fn ask(&mut self) {
        let progress = WatchCommand::Progress(WatchProgressRequest {});
        // If it does not take commands, it is dead soon.
        let _taken = self.stream.commands.try_send(WatchRequest { command: Some(progress) });
        self.is_asked = true;
        self.ask_at = Instant::now() + QUIET;
    }
}

/// The event of the contract, with the key that it has in etcd.
fn kv_event(event: Event) -> Option<kv::Event> {
    let is_deletion = event.kind == DELETE;
    let proto::KeyValue { key, mod_revision, value, .. } = event.kv?;
    Some(kv::Event { key, revision: revision_of(mod_revision), value: (!is_deletion).then_some(value) })
}
