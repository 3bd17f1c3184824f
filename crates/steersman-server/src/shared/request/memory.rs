//! Memory that the server keeps for its clients: the bodies of requests, answers that are not read yet, and the selectors of watches; and the
//! places of requests whose bodies are being received.
//!
//! The memory of each kind is bounded for all users together, and a user may have as much of it as is left: one user may have half of it, two a
//! third each, and nine a tenth each. So something is always left for a newcomer, and no bound for one user has to be chosen. Routers share their
//! buffers in this way (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998). However little is left, a
//! user may have enough for one body or answer, until all together have one and a half times the bound.
//!
//! Each of them may have a few free bytes. Their number is bounded elsewhere, so what is small reserves nothing here, no matter how much the
//! large ones take.

use crate::metrics::text::{Text, Type};
use crate::shared::status::Failure;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use steersman_kinds::user::User;

/// The bounds of one kind of memory.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// The first bytes of each reservation, which are not counted.
    pub(crate) free: usize,
    /// A user may have so many bytes although fewer are left, as long as all users together have less than one and a half times `max`: enough
    /// for one body or answer.
    pub(crate) floor: usize,
    /// The most bytes of all users together.
    pub(crate) max: usize,
    /// The unit of the other numbers: bytes, unless something else is counted.
    pub(crate) unit: &'static str,
    /// The subject of a refusal, such as `the answers that are not read yet`.
    pub(crate) what: &'static str,
    /// The advice to the user.
    pub(crate) way_out: &'static str,
}

/// Request bodies: reserved as their bytes arrive, and until the request has ended. The largest body has 3 MiB.
const BODIES: Bounds = Bounds {
    free: 16 << 10,
    floor: 3 << 20,
    max: 64 << 20,
    unit: "bytes",
    what: "the bodies of the requests that the server is working on",
    way_out: "wait for their answers, or send fewer at a time",
};
/// Answers that are in memory as a whole: reserved until they have been handed to the network.
const ANSWERS: Bounds = Bounds {
    free: 64 << 10,
    floor: 2 << 20,
    max: 64 << 20,
    unit: "bytes",
    what: "the unread answers",
    way_out: "read them, or ask for fewer at a time",
};
/// The selectors of open watches.
const SELECTORS: Bounds = Bounds {
    free: 4 << 10,
    floor: 128 << 10,
    max: 16 << 20,
    unit: "bytes",
    what: "the selectors of the open watches",
    way_out: "end some of them, or send shorter selectors",
};

/// Requests whose bodies are being received. Each may have nothing but its first byte.
const PLACES: Bounds = Bounds {
    free: 0,
    floor: 4,
    max: 1_000,
    unit: "places",
    what: "the requests whose bodies are being received",
    way_out: "send them to their ends, or fewer at a time",
};

/// The most connections to other API servers that may last, and to nodes, Pods and Services.
pub const OUTGOING_STREAMS_MAX: usize = 4_000;
const TUNNELS: Bounds = Bounds {
    free: 0,
    floor: 4,
    max: OUTGOING_STREAMS_MAX,
    unit: "connections",
    what: "the open connections to other servers, nodes, Pods and Services",
    way_out: "close some of them",
};

/// The most bytes that something is expected to have before its size is known.
const EXPECTED_MAX: usize = 1 << 20;

/// The memory of each kind.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) answers: Arc<UserMemory>,
    pub(crate) bodies: Arc<UserMemory>,
    pub(crate) places: Arc<UserMemory>,
    pub(crate) selectors: Arc<UserMemory>,
    pub(crate) tunnels: Arc<UserMemory>,
}

/// The memory of one kind.
#[derive(Debug)]
pub(crate) struct UserMemory {
    bounds: Bounds,
    reserved: Mutex<Reserved>,
}

#[derive(Debug, Default)]
struct Reserved {
    bytes: usize,
    /// Users with bytes. The key comes from clients, so the hasher resists collisions.
    users: HashMap<String, usize>,
}

/// A part of the memory. Dropping it releases the bytes.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: Arc<UserMemory>,
    user: Arc<User>,
    bytes: usize,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            answers: UserMemory::new(ANSWERS),
            bodies: UserMemory::new(BODIES),
            places: UserMemory::new(PLACES),
            selectors: UserMemory::new(SELECTORS),
            tunnels: UserMemory::new(TUNNELS),
        }
    }
}

impl Memory {
    /// The metrics in Prometheus' text format.
    pub(crate) fn exposition(&self) -> String {
        let kept = [
            ("steersman_request_body_bytes", "Bytes of the large bodies of requests that are in memory.", &self.bodies),
            (
                "steersman_unread_answer_bytes",
                "Bytes of large answers that their clients have not read yet.",
                &self.answers,
            ),
            ("steersman_watch_selector_bytes", "Bytes of the large selectors of open watches.", &self.selectors),
        ];
        let mut text = Text::default();
        for (name, help, memory) in kept {
            text.family(name, Type::Gauge, help);
            text.value(name, &[], memory.bytes());
        }
        text.into_string()
    }
}

impl UserMemory {
    pub(crate) fn new(bounds: Bounds) -> Arc<UserMemory> {
        Arc::new(UserMemory { bounds, reserved: Mutex::default() })
    }

    /// A reservation for a user, empty as yet.
    pub(crate) fn reserve(self: &Arc<UserMemory>, user: &Arc<User>) -> Reservation {
        Reservation { memory: self.clone(), user: user.clone(), bytes: 0 }
    }

    /// The bytes that are reserved.
    pub(crate) fn bytes(&self) -> usize {
        self.reserved.lock().bytes
    }

    /// Checks that a user has room for so many bytes, of which at most [`EXPECTED_MAX`] count: a size that is not known is a guess.
    ///
    /// # Errors
    /// 429 if there is none.
    pub(crate) fn check(&self, user: &User, bytes: usize) -> Result<(), Failure> {
        self.refuse(&self.reserved.lock(), &user.name, bytes.min(EXPECTED_MAX))
    }

    fn refuse(&self, reserved: &Reserved, user: &str, more: usize) -> Result<(), Failure> {
        let Bounds { floor, max, unit, what, way_out, .. } = &self.bounds;
        let of_all = reserved.bytes;
        let of_user = reserved.users.get(user).copied().unwrap_or(0);
        let (user_after, all_after) = (of_user.saturating_add(more), of_all.saturating_add(more));
        let is_small = user_after <= *floor && all_after <= max + max / 2;
        if is_small || user_after <= max.saturating_sub(all_after) {
            return Ok(());
        }
        if of_user == 0 {
            let said = format!(
                "{what} of all users take {of_all} of {max} {unit}, and there is no room for {more} more; try again later"
            );
            return Err(Failure::too_many_requests(said, 1));
        }
        let said = format!(
            "{what} take {of_user} {unit} for this user and {of_all} for all users, of {max}; with {more} more, this user would have more than is \
             left for others; {way_out}"
        );
        Err(Failure::too_many_requests(said, 1))
    }
}

impl Reserved {
    fn grow(&mut self, user: &str, bytes: usize) {
        self.bytes += bytes;
        match self.users.get_mut(user) {
            Some(of_user) => *of_user += bytes,
            None => drop(self.users.insert(user.to_owned(), bytes)),
        }
    }

    fn shrink(&mut self, user: &str, bytes: usize) {
        self.bytes -= bytes;
        if let Some(of_user) = self.users.get_mut(user) {
            *of_user -= bytes;
            if *of_user == 0 {
                self.users.remove(user);
            }
        }
    }
}

impl Reservation {
    /// Reserves so many bytes in all.
    ///
    /// # Errors
    /// 429 if there is no room for them.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), Failure> {
        let more = self.missing(bytes);
        if more > 0 {
            let mut reserved = self.memory.reserved.lock();
            self.memory.refuse(&reserved, &self.user.name, more)?;
            reserved.grow(&self.user.name, more);
            drop(reserved);
            self.bytes += more;
        }
        Ok(())
    }

    /// Reserves so many bytes in all, beyond the bounds if need be: for what can no longer be refused.
    pub(crate) fn take(&mut self, bytes: usize) {
        let more = self.missing(bytes);
        if more > 0 {
            self.memory.reserved.lock().grow(&self.user.name, more);
            self.bytes += more;
        }
    }

    /// Reserves so many bytes in all, no more and no fewer, beyond the bounds if need be.
    pub(crate) fn become_exactly(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes.saturating_sub(self.memory.bounds.free));
        if surplus > 0 {
            self.memory.reserved.lock().shrink(&self.user.name, surplus);
            self.bytes -= surplus;
        }
        self.take(bytes);
    }

    /// An empty reservation of the same user.
    pub(crate) fn another(&self) -> Reservation {
        self.memory.reserve(&self.user)
    }

    /// Whether it has only what is free.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    fn missing(&self, bytes: usize) -> usize {
        bytes.saturating_sub(self.memory.bounds.free).saturating_sub(self.bytes)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.memory.reserved.lock().shrink(&self.user.name, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: usize = BODIES.free;

    fn user(name: &str) -> Arc<User> {
        Arc::new(User::authenticated(name, []))
    }

    #[test]
    fn a_body_is_reserved_as_it_arrives_and_until_it_is_dropped() {
        let memory = UserMemory::new(BODIES);
        let mut body = memory.reserve(&user("a"));
        body.grow_to(FREE).unwrap();
        assert_eq!(memory.bytes(), 0);
        body.grow_to(FREE + 10).unwrap();
        body.grow_to(FREE + 30).unwrap();
        assert_eq!(memory.bytes(), 30);
        drop(body);
        assert_eq!(memory.bytes(), 0);
        assert!(memory.reserved.lock().users.is_empty());
    }

    /// A user who takes `bytes` at a time until they are refused: what they have then, and the refusal.
    fn fill(memory: &Arc<UserMemory>, name: &str, bytes: usize) -> (Reservation, String) {
        let mut taken = memory.reserve(&user(name));
        loop {
            if let Err(refused) = taken.grow_to(taken.bytes + FREE + bytes) {
                assert_eq!(refused.code(), 429);
                return (taken, refused.status.message.clone());
            }
        }
    }

    #[test]
    fn a_user_may_have_as_much_as_is_left() {
        let memory = UserMemory::new(BODIES);
        let (a, said) = fill(&memory, "a", 1 << 20);
        assert_eq!(a.bytes, BODIES.max / 2);
        assert!(
            said.contains("working on take 33554432 bytes for this user and 33554432 for all users, of 67108864; with 1048576 more"),
            "{said}"
        );
        assert_eq!(memory.check(&user("a"), 1).unwrap_err().code(), 429);
        let (b, _) = fill(&memory, "b", 1 << 20);
        assert_eq!(b.bytes, BODIES.max / 4, "as much as is left");
        memory.check(&user("a"), 1).unwrap_err();
        drop(a);
        let others: Vec<_> = ('c'..='f').map(|name| fill(&memory, &name.to_string(), 64 << 10).0).collect();
        assert!(memory.bytes() < BODIES.max);
        drop(others);
    }

    #[test]
    fn a_newcomer_sends_the_largest_body_to_its_end_although_twelve_users_have_all_they_may() {
        let memory = UserMemory::new(BODIES);
        let others: Vec<_> = (0..12).map(|name| fill(&memory, &name.to_string(), 64 << 10).0).collect();
        let mut newcomer = memory.reserve(&user("newcomer"));
        for piece in 1..=48 {
            newcomer.grow_to(FREE + piece * (64 << 10)).unwrap();
        }
        newcomer.grow_to(FREE + 49 * (64 << 10)).unwrap_err();
        drop(others);
    }

    #[test]
    fn however_many_users_come_they_stay_within_the_bound() {
        let memory = UserMemory::new(BODIES);
        let taken: Vec<_> = (0..100).map(|name| fill(&memory, &name.to_string(), 64 << 10).0).collect();
        assert!((BODIES.max..=BODIES.max * 3 / 2).contains(&memory.bytes()));
        let refused = memory.check(&user("newcomer"), 1 << 20).unwrap_err();
        assert!(
            refused.status.message.contains("and there is no room for 1048576 more; try again later"),
            "{refused:?}"
        );
        drop(taken);
        assert!(memory.reserved.lock().users.is_empty());
    }

    #[test]
    fn what_cannot_be_refused_counts_against_what_comes_after_it() {
        let memory = UserMemory::new(ANSWERS);
        let mut written = memory.reserve(&user("a"));
        written.take(ANSWERS.max);
        assert_eq!(memory.bytes(), ANSWERS.max - ANSWERS.free);
        memory.check(&user("a"), 1).unwrap_err();
        memory.check(&user("b"), 1).unwrap();
        drop(written);
        memory.check(&user("a"), 1).unwrap();
    }
}
