//! Who may work on what, now: what the member's machine allows, put in force for workers on any thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::key::ObjectKey;
use crate::shard::member::Permission;
use crate::shard::slots::{Slots, slot_of};

/// One for all workers of a member.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    /// Rung when the last work on a slot that is no longer held has ended.
    drained: Notify,
}

/// Slots that have come and gone.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Moved {
    gained: Slots,
    lost: Slots,
}

/// The right to work on one key, for as long as it exists and is not [revoked](Permit::revoked).
///
/// Its slot is not let go before it is dropped, so drop it when the work has ended, and not before.
#[must_use = "the key may go to another replica when the permit is dropped"]
pub struct Permit {
    gate: Arc<Gate>,
    slot: usize,
    cut: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    permission: Permission,
    /// By slot; no entry without permits.
    running: BTreeMap<usize, Running>,
    /// The member has left.
    is_closed: bool,
}

#[derive(Debug)]
struct Running {
    n_permits: usize,
    /// Cancelled when what has begun so far must end.
    cut: CancellationToken,
}

// === impl Gate ===

impl Gate {
    /// Puts `permission` in force and ends what it does not allow.
    pub(crate) fn apply(&self, permission: Permission) -> Moved {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.permission, permission);
        let is_new_term = before.term != permission.term;
        for (slot, running) in &state.running {
            if is_new_term || !permission.kept.contains(*slot) {
                running.cut.cancel();
            }
        }
        let held_before = if is_new_term { Slots::NONE } else { before.held };
        Moved { gained: permission.held - held_before, lost: before.held - permission.held }
    }

    /// Ends everything.
    pub(crate) fn close(&self) {
        let term = {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.permission.term + 1
        };
        self.apply(Permission { term, ..Permission::default() });
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// The slots that are being worked on.
    pub(crate) fn in_use(&self) -> Slots {
        let mut slots = Slots::NONE;
        for slot in self.state.lock().running.keys() {
            slots.insert(*slot);
        }
        slots
    }

    pub(crate) fn holds(&self, key: &ObjectKey) -> bool {
        let slot = slot_of(key);
        self.state.lock().holds(slot)
    }

    pub(crate) fn begin(self: &Arc<Self>, key: &ObjectKey) -> Option<Permit> {
        let slot = slot_of(key);
        let mut state = self.state.lock();
        if !state.holds(slot) {
            return None;
        }
        let running =
            state.running.entry(slot).or_insert_with(|| Running { n_permits: 0, cut: CancellationToken::new() });
        if running.cut.is_cancelled() {
            // What was cut is still on its way out; it does not stand in the way of what the same member begins anew.
            running.cut = CancellationToken::new();
        }
        running.n_permits += 1;
        let cut = running.cut.clone();
        Some(Permit { gate: Arc::clone(self), slot, cut })
    }

    /// Completes when a slot may have become free to be let go.
    ///
    /// # Cancel safety
    /// Cancelled, it has missed nothing.
    pub(crate) async fn drained(&self) {
        self.drained.notified().await;
    }

    fn until(&self) -> Option<Instant> {
        self.state.lock().permission.until
    }
}

impl State {
    fn holds(&self, slot: usize) -> bool {
        let is_in_time = self.permission.until.is_some_and(|until| Instant::now() < until);
        is_in_time && self.permission.held.contains(slot)
    }
}

// === impl Moved ===

impl Moved {
    /// Adds what moved later.
    pub(crate) fn append(&mut self, later: &Self) {
        self.gained = (self.gained - later.lost) | later.gained;
        self.lost = self.lost | later.lost;
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.gained.is_empty() && self.lost.is_empty()
    }

    pub(crate) fn has_gained(&self) -> bool {
        !self.gained.is_empty()
    }

    pub(crate) fn is_gained(&self, key: &ObjectKey) -> bool {
        self.gained.contains(slot_of(key))
    }

    pub(crate) fn is_lost(&self, key: &ObjectKey) -> bool {
        self.lost.contains(slot_of(key))
    }
}

// === impl Permit ===

impl Permit {
    /// Completes when the work must end at once: another replica may begin soon. Race the work against it and drop the
    /// work when this wins.
    ///
    /// # Cancel safety
    /// Cancelled, nothing is lost.
    pub async fn revoked(&self) {
        loop {
            let Some(until) = self.gate.until() else { return };
            if self.cut.is_cancelled() || Instant::now() >= until {
                return;
            }
            // Both arms only wait. The deadline moves with every renewal.
            tokio::select! {
                () = self.cut.cancelled() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        let Some(running) = state.running.get_mut(&self.slot) else { return };
        running.n_permits -= 1;
        if running.n_permits > 0 {
            return;
        }
        state.running.remove(&self.slot);
        if !state.permission.held.contains(self.slot) {
            drop(state);
            self.gate.drained.notify_one();
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("slot", &self.slot).finish_non_exhaustive()
    }
}
