//! How a reconcile ended: what the object's conditions say, what is told in an Event, and when to look again.

use crate::desired::Invalid;
use crate::plan::{Refusal, Step};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;
use steersman::queue::RateLimiter;
use steersman_neutron::{Class, Error, Network, NetworkId, NetworkStatus, SubnetId};

/// What will not pass by itself soon is tried again so often.
pub(crate) const SLOW: Duration = Duration::from_secs(60);
/// The first and the longest wait after failures in a row. After an outage, however long, everything is tried again within
/// the latter.
const BACK_OFF_MIN: Duration = Duration::from_millis(500);
const BACK_OFF_MAX: Duration = Duration::from_secs(120);
/// Retries of all objects together, a second, and how many at once.
const RETRIES_PER_SECOND: f64 = 10.0;
const RETRIES_BURST: u32 = 100;

/// How a reconcile ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Outcome {
    /// `Ok` where network and subnet are as they should be.
    pub(crate) ready: Result<(), Obstacle>,
    /// The object's network, as far as it is known.
    pub(crate) network: Option<NetworkId>,
    /// The object's subnet, as far as it is known.
    pub(crate) subnet: Option<SubnetId>,
}

/// What is in the way.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Obstacle {
    /// For programs: the reason of the conditions and the Event.
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) message: String,
    pub(crate) next: Next,
}

/// When to look again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Next {
    /// After so long.
    After(Duration),
    /// When the rate limiter allows, later each time.
    BackOff,
    /// When the object changes.
    Change,
}

/// How failed objects are spaced: 0.5 s doubling to two minutes, a little more or less for each, so that those that failed
/// together are not tried again together.
pub(crate) fn limiter() -> RateLimiter {
    let wait = |n_failures: u32| {
        let doubled = BACK_OFF_MIN.saturating_mul(2_u32.saturating_pow(n_failures.min(16)));
        jittered(doubled.min(BACK_OFF_MAX))
    };
    RateLimiter::function(wait).bucket(RETRIES_PER_SECOND, RETRIES_BURST)
}

/// A duration between nine and eleven tenths of this one.
pub(crate) fn jittered(duration: Duration) -> Duration {
    // The keys of a hasher are the randomness that the standard library has.
    let thousandths = RandomState::new().hash_one(0_u8) % 201;
    let thousandths = u32::try_from(thousandths).unwrap_or_default() + 900;
    duration.saturating_mul(thousandths) / 1000
}

impl Outcome {
    /// Nothing is known but what is in the way.
    pub(crate) fn stuck(obstacle: impl Into<Obstacle>) -> Outcome {
        Outcome { ready: Err(obstacle.into()), network: None, subnet: None }
    }
}

impl Obstacle {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>, next: Next) -> Obstacle {
        Obstacle { reason, message: message.into(), next }
    }

    /// Somebody changed something in Neutron, and the object says that it is to be left.
    pub(crate) fn drifted(step: &Step) -> Obstacle {
        let message = format!("Neutron was changed, and spec.driftPolicy is Report: to repair it would be to {step}");
        Obstacle::new("Drifted", message, Next::After(SLOW))
    }

    /// What is observed is not what the spec says.
    pub(crate) fn differs(step: &Step) -> Obstacle {
        let message =
            format!("Neutron has something else, and spec.managementPolicy is Observed: to agree would be to {step}");
        Obstacle::new("Differs", message, Next::After(SLOW))
    }

    /// Whether work goes on by itself.
    pub(crate) fn is_progressing(&self) -> bool {
        self.next != Next::Change
    }
}

/// Whether a network carries traffic, or need not.
///
/// # Errors
/// What Neutron says of it.
pub(crate) fn check_working(network: &Network, admin_state_up: Option<bool>) -> Result<(), Obstacle> {
    let id = network.id;
    let stuck = |reason, text: &str, next| Err(Obstacle::new(reason, format!("network {id} {text}"), next));
    match &network.status {
        None | Some(NetworkStatus::Active) => Ok(()),
        Some(NetworkStatus::Down) if admin_state_up == Some(false) => Ok(()),
        Some(NetworkStatus::Build) => stuck("NetworkBuilding", "is being built by Neutron", Next::BackOff),
        Some(NetworkStatus::Down) => {
            stuck("NetworkDown", "is there, but Neutron says that it is DOWN", Next::After(SLOW))
        }
        Some(NetworkStatus::Error) => {
            let text =
                "is there, but Neutron says that it is in ERROR: its administrator finds the cause in Neutron's log";
            stuck("NetworkError", text, Next::After(SLOW))
        }
        Some(NetworkStatus::Other(word)) => {
            stuck("NetworkNotActive", &format!("is there, but Neutron says that it is {word}"), Next::After(SLOW))
        }
    }
}

impl From<Invalid> for Obstacle {
    fn from(invalid: Invalid) -> Obstacle {
        Obstacle::new("InvalidSpec", invalid.to_string(), Next::Change)
    }
}

impl From<Refusal> for Obstacle {
    fn from(refusal: Refusal) -> Obstacle {
        let (reason, next) = match &refusal {
            Refusal::Adopt { .. } => ("AdoptChanged", Next::After(SLOW)),
            Refusal::Copied { .. } => ("MarkerCopied", Next::After(SLOW)),
            Refusal::Overlap { .. } => ("CIDROverlap", Next::After(SLOW)),
            Refusal::Replace { .. } => ("ReplaceRequired", Next::Change),
        };
        Obstacle::new(reason, refusal.to_string(), next)
    }
}

impl From<Error> for Obstacle {
    fn from(error: Error) -> Obstacle {
        let (reason, next) = match error.class() {
            None if error.is_uncertain() => ("AnswerLost", Next::BackOff),
            None => ("NeutronUnreachable", Next::BackOff),
            Some(class) => by_class(class),
        };
        let next = match (next, error.retry_after()) {
            (Next::BackOff | Next::After(_), Some(after)) => Next::After(after),
            (next, _) => next,
        };
        Obstacle::new(reason, sentence(&error), next)
    }
}

fn by_class(class: Class) -> (&'static str, Next) {
    match class {
        Class::OverQuota => ("QuotaExceeded", Next::After(SLOW)),
        Class::Exhausted => ("NoNetworkAvailable", Next::After(SLOW)),
        Class::Overlap => ("CIDROverlap", Next::After(SLOW)),
        Class::InUse => ("InUse", Next::BackOff),
        Class::Conflict => ("NeutronConflict", Next::After(SLOW)),
        Class::GatewayConflict => ("GatewayConflict", Next::After(SLOW)),
        Class::InvalidInput | Class::TooLarge => ("NeutronRefused", Next::After(SLOW)),
        Class::Unauthorized => ("NeutronCredentials", Next::After(SLOW)),
        Class::Forbidden => ("NeutronForbidden", Next::After(SLOW)),
        Class::NotFound | Class::PreconditionFailed => ("NeutronChanged", Next::BackOff),
        Class::RateLimited => ("NeutronBusy", Next::BackOff),
        Class::ServerError | Class::Unavailable => ("NeutronUnavailable", Next::BackOff),
        _ => ("NeutronUnexpected", Next::After(SLOW)),
    }
}

/// Whether a reason says that Neutron could not be used: when it can, objects that say so need not wait.
pub(crate) fn is_outage(reason: &str) -> bool {
    matches!(reason, "AnswerLost" | "NeutronUnreachable" | "NeutronBusy" | "NeutronUnavailable" | "NeutronCredentials")
}

/// An error with what caused it.
fn sentence(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_differ_by_a_tenth_at_most() {
        let waits: Vec<Duration> = (0..100).map(|_| jittered(Duration::from_secs(10))).collect();
        assert!(waits.iter().all(|wait| (9..=11).contains(&wait.as_secs())), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
    }

    #[test]
    fn a_network_is_ready_when_neutron_says_that_it_works() {
        let network = |status: &str| {
            let id = "00000000-0000-4000-8000-000000000001";
            serde_json::from_value::<Network>(serde_json::json!({"id": id, "status": status})).unwrap()
        };
        let reason = |status, up| check_working(&network(status), up).err().map(|obstacle| obstacle.reason);
        assert_eq!(reason("ACTIVE", None), None);
        assert_eq!(reason("BUILD", None), Some("NetworkBuilding"));
        assert_eq!(reason("DOWN", None), Some("NetworkDown"));
        assert_eq!(reason("DOWN", Some(false)), None);
        assert_eq!(reason("ERROR", Some(false)), Some("NetworkError"));
        assert_eq!(reason("PENDING", None), Some("NetworkNotActive"));
    }
}
