//! The options that a group of replicas shares: its name and durations, and the rules for them.

use std::time::Duration;

use crate::leadership::shard::member::Times;
use crate::shared::clock::{self, LEASE_MAX};

/// A group of replicas, its durations, and the identity of this replica.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShardOptions {
    /// Name of the group: the value of a label, and the prefix of the names of the members' Leases.
    pub group: String,
    /// Namespace of the Leases.
    pub namespace: String,
    /// The identity of this replica, for people to read. Need not differ between replicas. Default: the host's name.
    pub identity: String,
    /// How long others wait for a member that does not renew. Default 15 s.
    pub lease: Duration,
    /// How long a member goes on working without a renewal. Shorter than the lease. Default 10 s.
    pub renew_deadline: Duration,
    /// The time between renewals, and between lists of the members. Default 2 s.
    pub period: Duration,
    /// How long a reconcile may go on after its key was given to another replica, before it is cut off. Default 30 s.
    pub handover: Duration,
}

/// The group cannot be formed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// The name of the group cannot be part of the names of Leases and the value of a label.
    #[error(
        "group {group:?}: use at most 54 lower case letters, digits and dashes, with a letter or digit at both ends"
    )]
    Group {
        /// The name given.
        group: String,
    },
    /// Two replicas could work on one key.
    #[error(
        "group {group:?}: the lease ({lease:?}) must be longer than the renew deadline ({renew_deadline:?}), and that \
         longer than twice the period ({period:?}), which must not be zero; the lease must be shorter than 68 years"
    )]
    Times {
        /// The name of the group.
        group: String,
        /// The lease duration given.
        lease: Duration,
        /// The renew deadline given.
        renew_deadline: Duration,
        /// The period given.
        period: Duration,
    },
}

// === impl ShardOptions ===

impl ShardOptions {
    /// The default times.
    pub fn new(group: &str, namespace: &str) -> Self {
        Self {
            group: group.to_owned(),
            namespace: namespace.to_owned(),
            identity: crate::shared::host::name(),
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            period: Duration::from_secs(2),
            handover: Duration::from_secs(30),
        }
    }

    /// Sets [`ShardOptions::identity`].
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = identity.into();
        self
    }

    /// Sets [`ShardOptions::lease`].
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets [`ShardOptions::renew_deadline`].
    pub fn renew_deadline(mut self, renew_deadline: Duration) -> Self {
        self.renew_deadline = renew_deadline;
        self
    }

    /// Sets [`ShardOptions::period`].
    pub fn period(mut self, period: Duration) -> Self {
        self.period = period;
        self
    }

    /// Sets [`ShardOptions::handover`].
    pub fn handover(mut self, handover: Duration) -> Self {
        self.handover = handover;
        self
    }

    pub(crate) fn check(&self) -> Result<Times, ShardError> {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let name = self.group.as_bytes();
        let is_name = name.iter().all(|&byte| is_inner(byte) || byte == b'-')
            && name.first().is_some_and(|&byte| is_inner(byte))
            && name.last().is_some_and(|&byte| is_inner(byte))
            && name.len() <= 54;
        if !is_name {
            return Err(ShardError::Group { group: self.group.clone() });
        }
        let Self { lease, renew_deadline, period, handover, .. } = *self;
        let is_sound = renew_deadline < lease && lease <= LEASE_MAX && period < renew_deadline && !period.is_zero();
        if !is_sound || renew_deadline <= period * 2 {
            return Err(ShardError::Times { group: self.group.clone(), lease, renew_deadline, period });
        }
        Ok(Times { lease, renew_deadline, period, handover: handover.min(clock::FAR) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(edit: impl Fn(&mut ShardOptions), is_sound: bool) {
        let mut options = ShardOptions::new("test", "kube-system");
        edit(&mut options);
        assert_eq!(options.check().is_ok(), is_sound, "{options:?}");
    }

    #[test]
    fn times_that_allow_two_owners_or_cannot_be_kept_are_refused() {
        check(|_| {}, true);
        check(|options| options.handover = Duration::MAX, true);
        check(|options| options.renew_deadline = options.lease, false);
        check(|options| options.period = Duration::ZERO, false);
        check(|options| options.period = Duration::from_secs(5), false);
        check(|options| options.period = Duration::MAX, false);
        check(|options| options.lease = Duration::MAX, false);
    }
}
