//! The memory of request bodies: bounded for all users together, and for each user.
//!
//! Memory is reserved as the bytes of a body arrive, and until its request has ended. The free bytes of each body are
//! bounded by the number of requests, so requests of usual sizes reserve nothing here, and are received no matter how
//! many large ones are in flight.

use crate::shared::status::Failure;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use steersman_kinds::user::User;

/// The bytes that every body may have without a reservation.
const FREE_BYTES: usize = 16 * 1024;
/// The most bytes of the bodies of one user, and of all users. The largest body has 3 MiB.
const USER_BYTES_MAX: usize = 64 << 20;
const BYTES_MAX: usize = 192 << 20;

/// The memory of the bodies that are in the server.
#[derive(Debug, Default)]
pub(crate) struct BodyMemory {
    reserved: Mutex<Reserved>,
}

#[derive(Debug, Default)]
struct Reserved {
    bytes: usize,
    /// Users with bytes. The key comes from clients, so the hasher resists collisions.
    users: HashMap<String, usize>,
}

/// The reservation of one body. Dropping it releases the bytes.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: Arc<BodyMemory>,
    user: Arc<User>,
    bytes: usize,
}

/// The reason why there is no memory for a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
enum Full {
    #[error(
        "the bodies of the requests that the server is working on have {BYTES_MAX} bytes together, which is the most that it keeps; try again later"
    )]
    Server,
    #[error(
        "the bodies of the requests of this user that the server is working on have {USER_BYTES_MAX} bytes together, which is the most for one user; wait for their answers, or send fewer at a time"
    )]
    User,
}

impl BodyMemory {
    /// A reservation for a body of a user, empty until bytes arrive.
    pub(crate) fn reserve(self: &Arc<BodyMemory>, user: &Arc<User>) -> Reservation {
        Reservation { memory: self.clone(), user: user.clone(), bytes: 0 }
    }

    /// The bytes that are reserved.
    pub(crate) fn bytes(&self) -> usize {
        self.reserved.lock().bytes
    }
}

impl Reserved {
    fn grow(&mut self, user: &str, bytes: usize) -> Result<(), Full> {
        let of_user = self.users.get(user).copied().unwrap_or(0);
        if USER_BYTES_MAX < of_user.saturating_add(bytes) {
            return Err(Full::User);
        }
        if BYTES_MAX < self.bytes.saturating_add(bytes) {
            return Err(Full::Server);
        }
        self.bytes += bytes;
        match self.users.get_mut(user) {
            Some(of_user) => *of_user += bytes,
            None => drop(self.users.insert(user.to_owned(), bytes)),
        }
        Ok(())
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
    /// Called when this many bytes of the body have arrived.
    ///
    /// # Errors
    /// 429 if there is no memory for them.
    pub(crate) fn arrived(&mut self, bytes: usize) -> Result<(), Failure> {
        let wanted = bytes.saturating_sub(FREE_BYTES);
        let more = wanted.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let grown = self.memory.reserved.lock().grow(&self.user.name, more);
        grown.map_err(|full| Failure::too_many_requests(full.to_string(), 1))?;
        self.bytes += more;
        Ok(())
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

    fn user(name: &str) -> Arc<User> {
        Arc::new(User::authenticated(name, []))
    }

    #[test]
    fn a_body_is_reserved_as_it_arrives_and_until_it_is_dropped() {
        let memory = Arc::new(BodyMemory::default());
        let mut body = memory.reserve(&user("a"));
        body.arrived(FREE_BYTES).unwrap();
        assert_eq!(memory.bytes(), 0);
        body.arrived(FREE_BYTES + 10).unwrap();
        body.arrived(FREE_BYTES + 30).unwrap();
        assert_eq!(memory.bytes(), 30);
        drop(body);
        assert_eq!(memory.bytes(), 0);
        assert!(memory.reserved.lock().users.is_empty());
    }

    #[test]
    fn one_user_cannot_take_what_is_left_for_others() {
        let memory = Arc::new(BodyMemory::default());
        let refusal = |name: &str, bytes: usize| {
            let mut body = memory.reserve(&user(name));
            let refusal = body.arrived(bytes + FREE_BYTES).err();
            (body, refusal.map(|failure| (failure.code(), failure.status.message.clone())))
        };
        let (_a, none) = refusal("a", USER_BYTES_MAX);
        assert_eq!(none, None);
        assert_eq!(refusal("a", 1).1, Some((429, Full::User.to_string())));
        let others: Vec<_> = ["b", "c"].map(|name| refusal(name, USER_BYTES_MAX)).into();
        assert!(others.iter().all(|(_, refusal)| refusal.is_none()));
        assert_eq!(refusal("d", 1).1, Some((429, Full::Server.to_string())));
        drop(others);
        assert_eq!(refusal("d", 1).1, None);
    }
}
