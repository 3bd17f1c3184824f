//! Which slots may be worked on now: puts the member's permission in force for workers on any thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::leadership::shard::member::Permission;
use crate::leadership::shard::slots::{Slots, slot_of};
use crate::shared::clock::HostClock;
use crate::shared::key::ObjectKey;

/// Shared by all workers of a member.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    clock: HostClock,
    state: Mutex<State>,
    /// Notified when the last work on a slot that is no longer held has ended.
    drained: Notify,
}

/// Slots that were gained and lost.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Moved {
    /// Slots whose keys must run: those that came, and those whose keys were rejected meanwhile.
    gained: Slots,
    /// The gained slots that were not held before.
    came: Slots,
    lost: Slots,
}

/// The right to work on one key, for as long as it exists and is not [revoked](Permit::revoked).
///
/// Its slot is not released before the permit is dropped, so drop it when the work has ended, and not before.
#[must_use = "the key may go to another replica when the permit is dropped"]
pub struct Permit {
    gate: Arc<Gate>,
    slot: usize,
    cut: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    permission: Permission,
    /// The work under way by slot; no entry without permits.
    running: BTreeMap<usize, Running>,
    /// The member has left.
    is_closed: bool,
    /// Work was rejected or cut off because the permission in force had expired.
    has_expired: bool,
}

#[derive(Debug)]
struct Running {
    n_permits: usize,
    /// Cancelled when the work begun so far must end.
    cut: CancellationToken,
}

// === impl Gate ===

impl Gate {
    #[cfg(test)]
    pub(crate) fn with_clock(clock: HostClock) -> Self {
        Self { clock, ..Self::default() }
    }

    /// The clock by which permissions are given and end.
    pub(crate) fn clock(&self) -> &HostClock {
        &self.clock
    }

    /// Puts `permission` in force and ends work that it does not allow. Returns the slots whose keys must run.
    pub(crate) fn apply(&self, permission: Permission) -> Moved {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.permission, permission);
        let is_new_term = before.term != permission.term;
        for (slot, running) in &state.running {
            if is_new_term || !permission.kept.contains(*slot) {
                running.cut.cancel();
            }
        }
        // A renewal may be put in force just after the previous permission has expired. Keys that were rejected in
        // between still belong to this member, and no other would run them.
        let has_expired = std::mem::take(&mut state.has_expired);
        let held_before = if is_new_term || has_expired { Slots::NONE } else { before.held };
        Moved {
            gained: permission.held - held_before,
            came: permission.held - before.held,
            lost: before.held - permission.held,
        }
    }

    /// Ends all work.
    pub(crate) fn close(&self) {
        let term = {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.permission.term + 1
        };
        self.apply(Permission { term, ..Permission::default() });
    }

    #[cfg(test)]
    pub(crate) fn permission(&self) -> Permission {
        self.state.lock().permission
    }

    /// The term of the permission that is in force.
    pub(crate) fn term(&self) -> u64 {
        self.state.lock().permission.term
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

    /// Whether this member holds the slot of `key`, by the permission in force.
    pub(crate) fn holds(&self, key: &ObjectKey) -> bool {
        self.state.lock().permission.held.contains(slot_of(key))
    }

    /// The number of slots on which work may begin now.
    pub(crate) fn n_held(&self) -> usize {
        let now = self.clock.now();
        let Permission { held, until, .. } = self.state.lock().permission;
        if until.is_some_and(|until| now < until) { held.len() } else { 0 }
    }

    /// Whether work on `key` may begin now.
    pub(crate) fn allows(&self, key: &ObjectKey) -> bool {
        let now = self.clock.now();
        let state = self.state.lock();
        state.permission.held.contains(slot_of(key)) && state.permission.until.is_some_and(|until| now < until)
    }

    pub(crate) fn begin(self: &Arc<Self>, key: &ObjectKey) -> Option<Permit> {
        let slot = slot_of(key);
        let mut state = self.state.lock();
        if !state.permission.held.contains(slot) || self.has_run_out(&mut state) {
            return None;
        }
        let running =
            state.running.entry(slot).or_insert_with(|| Running { n_permits: 0, cut: CancellationToken::new() });
        if running.cut.is_cancelled() {
            // Earlier work on this slot is still ending after its cut; it does not prevent new work of the same member.
            running.cut = CancellationToken::new();
        }
        running.n_permits += 1;
        let cut = running.cut.clone();
        Some(Permit { gate: Arc::clone(self), slot, cut })
    }

    /// Completes when a slot may have become free to be released.
    ///
    /// # Cancel safety
    /// If the future is dropped, no notification is lost.
    pub(crate) async fn drained(&self) {
        self.drained.notified().await;
    }

    /// Whether the permission has expired. If so, that is recorded: rejected keys may still belong to this member.
    fn has_run_out(&self, state: &mut State) -> bool {
        // The clock is read under the lock, while the permission cannot change.
        let has_run_out = state.permission.until.is_none_or(|until| self.clock.now() >= until);
        state.has_expired |= has_run_out;
        has_run_out
    }

    /// Until when work may go on; `None` if that is over.
    fn until(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        if self.has_run_out(&mut state) { None } else { state.permission.until }
    }
}

// === impl Moved ===

impl Moved {
    /// Adds a later move.
    pub(crate) fn append(&mut self, later: &Self) {
        self.gained = (self.gained - later.lost) | later.gained;
        self.came = (self.came - later.lost) | later.came;
        self.lost = self.lost | later.lost;
    }

    /// How many slots came, and how many were lost.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.came.len(), self.lost.len())
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
    /// The future can be dropped without loss.
    pub async fn revoked(&self) {
        while let Some(until) = self.until() {
            // Both arms only wait. The deadline moves with every renewal.
            tokio::select! {
                () = self.cut.cancelled() => {}
                () = self.gate.clock.sleep_until(until) => {}
            }
        }
    }

    /// Until when the work may go on; `None` when it must end at once.
    pub(crate) fn until(&self) -> Option<Instant> {
        if self.cut.is_cancelled() { None } else { self.gate.until() }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    fn key() -> ObjectKey {
        ObjectKey::namespaced("a", "x")
    }

    fn all_until(until: Instant) -> Permission {
        Permission { held: Slots::ALL, kept: Slots::ALL, until: Some(until), term: 1 }
    }

    fn rig() -> (Arc<Gate>, Arc<Mutex<Duration>>) {
        let suspended = Arc::<Mutex<Duration>>::default();
        (Arc::new(Gate::with_clock(HostClock::suspended(&suspended))), suspended)
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_suspension_nothing_begins_and_what_has_begun_ends_within_a_second() {
        let (gate, suspended) = rig();
        gate.apply(all_until(gate.clock().now() + DEADLINE));
        let permit = gate.begin(&key()).unwrap();
        let revoked = tokio::spawn(async move { permit.revoked().await });
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(gate.allows(&key()) && !revoked.is_finished());
        // Eight more seconds remained.
        *suspended.lock() = Duration::from_secs(8);
        let resumed = Instant::now();
        assert!(!gate.allows(&key()) && gate.begin(&key()).is_none());
        revoked.await.unwrap();
        assert!(resumed.elapsed() <= Duration::from_secs(1), "{:?}", resumed.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_put_in_force_after_the_deadline_brings_back_what_was_turned_away() {
        for is_cut_off in [false, true] {
            let (gate, _) = rig();
            let until = gate.clock().now() + DEADLINE;
            gate.apply(all_until(until));
            let permit = gate.begin(&key()).unwrap();
            // The member has decided in time, but the permission is put in force too late.
            tokio::time::sleep_until(until).await;
            match is_cut_off {
                false => assert!(gate.begin(&key()).is_none()),
                true => permit.revoked().await,
            }
            let moved = gate.apply(all_until(until + Duration::from_secs(2)));
            assert!(moved.is_gained(&key()), "nobody would bring it back");
            assert_eq!(moved.counts(), (0, 0), "no slot has moved");
            assert!(gate.begin(&key()).is_some());
            assert!(gate.apply(all_until(until + Duration::from_secs(4))).is_nothing());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_comes_after_the_deadline_is_kept_for_the_next_renewal() {
        let (gate, suspended) = rig();
        gate.apply(all_until(gate.clock().now() + DEADLINE));
        *suspended.lock() = DEADLINE;
        assert!(gate.holds(&key()) && !gate.allows(&key()));
    }
}
