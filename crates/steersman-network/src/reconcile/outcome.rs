//! The outcome of a reconcile: the object's conditions, the Event, and the time of the next try.

use crate::reconcile::desired::{Desired, Invalid};
use crate::reconcile::plan::{Refusal, Step};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;
use steersman::queue::RateLimiter;
use steersman_neutron::{Class, Error, Network, NetworkId, NetworkStatus, SubnetId};

/// How often a failure that will not pass soon by itself is tried again.
pub(crate) const SLOW: Duration = Duration::from_secs(60);
/// The first and the longest wait after failures in a row. After an outage, however long, every object is tried again
/// within the longest wait.
const BACK_OFF_MIN: Duration = Duration::from_millis(500);
const BACK_OFF_MAX: Duration = Duration::from_secs(120);
/// Retries of all objects together: how many a second, and how many at once.
const RETRIES_PER_SECOND: f64 = 10.0;
const RETRIES_BURST: u32 = 100;

/// The outcome of a reconcile.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Outcome {
    /// `Ok` where network and subnet are in the desired state.
    pub(crate) ready: Result<(), NotReady>,
    /// The object's network, as far as it is known.
    pub(crate) network: Option<NetworkId>,
    /// The object's subnet, as far as it is known.
    pub(crate) subnet: Option<SubnetId>,
}

/// Why a network is not ready.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct NotReady {
    /// The reason of the conditions and the Event, for programs.
    pub(crate) reason: &'static str,
    /// The message of the conditions and the Event, for people.
    pub(crate) message: String,
    pub(crate) retry: Retry,
}

/// When an object is reconciled again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Retry {
    /// After this time.
    After(Duration),
    /// When the rate limiter allows, later each time.
    BackOff,
    /// When the object changes.
    OnChange,
}

/// The waits of failed objects: 0.5 s doubling to two minutes, a little more or less for each, so that objects that
/// failed together are not tried again together.
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
    /// An outcome without a network or a subnet, only with the reason.
    pub(crate) fn stuck(not_ready: impl Into<NotReady>) -> Outcome {
        Outcome { ready: Err(not_ready.into()), network: None, subnet: None }
    }
}

impl NotReady {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>, retry: Retry) -> NotReady {
        NotReady { reason, message: message.into(), retry }
    }

    /// Somebody changed a resource in Neutron, and the object's drift policy is to leave it.
    pub(crate) fn drifted(step: &Step) -> NotReady {
        let message = format!("Neutron was changed, and spec.driftPolicy is Report: to repair it would be to {step}");
        NotReady::new("Drifted", message, Retry::After(SLOW))
    }

    /// An observed network differs from the spec.
    pub(crate) fn differs(step: &Step) -> NotReady {
        let message =
            format!("Neutron has something else, and spec.managementPolicy is Observed: to agree would be to {step}");
        NotReady::new("Differs", message, Retry::After(SLOW))
    }

    /// Whether the object is tried again without a change.
    pub(crate) fn is_progressing(&self) -> bool {
        self.retry != Retry::OnChange
    }
}

/// Checks that a network carries traffic, unless it is to be down.
///
/// # Errors
/// The network's status in Neutron, if it should carry traffic and does not.
pub(crate) fn check_working(network: &Network, desired: &Desired) -> Result<(), NotReady> {
    let id = network.id;
    let stuck = |reason, text: &str, retry| Err(NotReady::new(reason, format!("network {id} {text}"), retry));
    match &network.status {
        None | Some(NetworkStatus::Active) => Ok(()),
        Some(NetworkStatus::Down) if desired.admin_state_up == Some(false) => Ok(()),
        Some(NetworkStatus::Build) => stuck("NetworkBuilding", "is being built by Neutron", Retry::BackOff),
        Some(NetworkStatus::Down) => {
            stuck("NetworkDown", "is there, but Neutron says that it is DOWN", Retry::After(SLOW))
        }
        Some(NetworkStatus::Error) => {
            let text =
                "is there, but Neutron says that it is in ERROR: its administrator finds the cause in Neutron's log";
            stuck("NetworkError", text, Retry::After(SLOW))
        }
        Some(NetworkStatus::Other(word)) => {
            stuck("NetworkNotActive", &format!("is there, but Neutron says that it is {word}"), Retry::After(SLOW))
        }
    }
}

impl From<Invalid> for NotReady {
    fn from(invalid: Invalid) -> NotReady {
        NotReady::new("InvalidSpec", invalid.to_string(), Retry::OnChange)
    }
}

impl From<Refusal> for NotReady {
    fn from(refusal: Refusal) -> NotReady {
        let (reason, retry) = match &refusal {
            Refusal::Adopt { .. } => ("AdoptChanged", Retry::After(SLOW)),
            Refusal::Copied { .. } => ("MarkerCopied", Retry::After(SLOW)),
            Refusal::Overlap { .. } => ("CIDROverlap", Retry::After(SLOW)),
            Refusal::Replace { .. } => ("ReplaceRequired", Retry::OnChange),
        };
        NotReady::new(reason, refusal.to_string(), retry)
    }
}

impl From<Error> for NotReady {
    fn from(error: Error) -> NotReady {
        let (reason, retry) = match error.class() {
            None if error.is_uncertain() => ("AnswerLost", Retry::BackOff),
            None => ("NeutronUnreachable", Retry::BackOff),
            Some(class) => by_class(class),
        };
        let retry = match (retry, error.retry_after()) {
            (Retry::BackOff | Retry::After(_), Some(after)) => Retry::After(after),
            (retry, _) => retry,
        };
        NotReady::new(reason, sentence(&error), retry)
    }
}

fn by_class(class: Class) -> (&'static str, Retry) {
    match class {
        Class::OverQuota => ("QuotaExceeded", Retry::After(SLOW)),
        Class::Exhausted => ("NoNetworkAvailable", Retry::After(SLOW)),
        Class::Overlap => ("CIDROverlap", Retry::After(SLOW)),
        Class::InUse => ("InUse", Retry::BackOff),
        Class::Conflict => ("NeutronConflict", Retry::After(SLOW)),
        Class::GatewayConflict => ("GatewayConflict", Retry::After(SLOW)),
        Class::InvalidInput | Class::TooLarge => ("NeutronRefused", Retry::After(SLOW)),
        Class::Unauthorized => ("NeutronCredentials", Retry::After(SLOW)),
        Class::Forbidden => ("NeutronForbidden", Retry::After(SLOW)),
        Class::NotFound | Class::PreconditionFailed => ("NeutronChanged", Retry::BackOff),
        Class::RateLimited => ("NeutronBusy", Retry::BackOff),
        Class::ServerError | Class::Unavailable => ("NeutronUnavailable", Retry::BackOff),
        _ => ("NeutronUnexpected", Retry::After(SLOW)),
    }
}

/// Whether a reason stands for an outage of Neutron: when Neutron works again, objects with this reason need not wait.
pub(crate) fn is_outage(reason: &str) -> bool {
    matches!(reason, "AnswerLost" | "NeutronUnreachable" | "NeutronBusy" | "NeutronUnavailable" | "NeutronCredentials")
}

/// An error with its causes.
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
        let desired = |spec| Desired::parse(&serde_json::from_value(spec).unwrap()).unwrap();
        let usual = desired(serde_json::json!({"cidr": "10.0.0.0/24"}));
        let down = desired(serde_json::json!({"cidr": "10.0.0.0/24", "adminStateUp": false}));
        let reason = |status, desired| check_working(&network(status), desired).err().map(|not_ready| not_ready.reason);
        assert_eq!(reason("ACTIVE", &usual), None);
        assert_eq!(reason("BUILD", &usual), Some("NetworkBuilding"));
        assert_eq!(reason("DOWN", &usual), Some("NetworkDown"));
        assert_eq!(reason("DOWN", &down), None);
        assert_eq!(reason("ERROR", &down), Some("NetworkError"));
        assert_eq!(reason("PENDING", &usual), Some("NetworkNotActive"));
    }
}
