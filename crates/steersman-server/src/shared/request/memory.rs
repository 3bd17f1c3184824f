//! Memory that the server keeps for its clients, bounded for all users together and for each user: the bodies of requests, answers that are not
//! read yet, and the selectors of watches; and the places of requests whose bodies are being received.
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
    /// A reservation counts only what it has beyond so many bytes.
    pub(crate) free: usize,
    /// The most bytes of one user.
    pub(crate) user_max: usize,
    /// The most bytes of all users together. A user without any may go beyond it, up to twice as many.
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
    user_max: 64 << 20,
    max: 192 << 20,
    unit: "bytes",
    what: "the bodies of the requests that the server is working on",
    way_out: "wait for their answers, or send fewer at a time",
};
/// Answers that are in memory as a whole: reserved until they have been handed to the network.
const ANSWERS: Bounds = Bounds {
    free: 64 << 10,
    user_max: 64 << 20,
    max: 192 << 20,
    unit: "bytes",
    what: "the unread answers",
    way_out: "read them, or ask for fewer at a time",
};
/// The selectors of open watches.
const SELECTORS: Bounds = Bounds {
    free: 4 << 10,
    user_max: 32 << 20,
    max: 96 << 20,
    unit: "bytes",
    what: "the selectors of the open watches",
    way_out: "end some of them, or send shorter selectors",
};

/// Requests whose bodies are being received. Each may have nothing but its first byte.
const PLACES: Bounds = Bounds {
    free: 0,
    user_max: 200,
    max: 1_000,
    unit: "places",
    what: "the requests whose bodies are being received",
    way_out: "send them to their ends, or fewer at a time",
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
        let Bounds { user_max, max, unit, what, way_out, .. } = &self.bounds;
        let of_user = reserved.users.get(user).copied().unwrap_or(0);
        // A few users who take as much as they may do not keep out all others.
        let max = if of_user == 0 { max.saturating_mul(2) } else { *max };
        let said = if *user_max < of_user.saturating_add(more) {
            format!(
                "{what} of this user take {of_user} {unit}; {more} more would exceed the limit of {user_max} for one user; {way_out}"
            )
        } else if max < reserved.bytes.saturating_add(more) {
            let of_all = reserved.bytes;
            format!(
                "{what} of all users take {of_all} {unit}; {more} more would exceed the limit of {max}; try again later"
            )
        } else {
            return Ok(());
        };
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

    #[test]
    fn one_user_cannot_take_what_is_left_for_others() {
        let memory = UserMemory::new(BODIES);
        let refusal = |name: &str, bytes: usize| {
            let mut body = memory.reserve(&user(name));
            let refusal = body.grow_to(bytes + FREE).err();
            (body, refusal.map(|failure| (failure.code(), failure.status.message.clone())))
        };
        let (_a, none) = refusal("a", BODIES.user_max);
        assert_eq!(none, None);
        let (_, refused) = refusal("a", 1);
        let (code, said) = refused.unwrap();
        assert!(
            code == 429 && said.contains("of this user take 67108864 bytes; 1 more would exceed the limit of 67108864"),
            "{code} {said}"
        );
        assert_eq!(memory.check(&user("a"), 1).unwrap_err().code(), 429);
        memory.check(&user("b"), 1).unwrap();
        let others: Vec<_> = ["b", "c"].map(|name| refusal(name, BODIES.user_max)).into();
        assert!(others.iter().all(|(_, refusal)| refusal.is_none()));
        let (d, none) = refusal("d", 1);
        assert_eq!(none, None, "it has nothing yet");
        let mut more = memory.reserve(&user("d"));
        let said = more.grow_to(FREE + 1).unwrap_err().status.message.clone();
        assert!(
            said.contains("of all users take 201326593 bytes; 1 more would exceed the limit of 201326592"),
            "{said}"
        );
        let many: Vec<_> = ["e", "f", "g"].map(|name| refusal(name, BODIES.user_max)).into();
        assert!(many[2].1.is_some() && many[1].1.is_none(), "all together are bounded too");
        drop((others, many));
        more.grow_to(FREE + 1).unwrap();
        drop(d);
    }

    #[test]
    fn what_cannot_be_refused_counts_against_what_comes_after_it() {
        let memory = UserMemory::new(ANSWERS);
        let mut written = memory.reserve(&user("a"));
        written.take(2 * ANSWERS.user_max);
        assert_eq!(memory.bytes(), 2 * ANSWERS.user_max - ANSWERS.free);
        memory.check(&user("a"), 1).unwrap_err();
        drop(written);
        memory.check(&user("a"), 1).unwrap();
    }
}
