//! How a reconcile ended: what the object's conditions say, what is told in an Event, and when to look again.

use crate::desired::Invalid;
use std::time::Duration;
use steersman_neutron::{Class, Error};

/// While all is well Neutron is looked at again so often: somebody may have changed it by hand.
pub(crate) const DRIFT_INTERVAL: Duration = Duration::from_secs(60);
/// What will not pass by itself soon is tried again so often.
const SLOW: Duration = Duration::from_secs(60);

/// How a reconcile ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// Network and subnet are as they should be.
    Ready { network: String, subnet: String },
    /// Something is in the way.
    Stuck(Obstacle),
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

impl Obstacle {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>, next: Next) -> Obstacle {
        Obstacle { reason, message: message.into(), next }
    }

    /// Whether work goes on by itself.
    pub(crate) fn is_progressing(&self) -> bool {
        self.next != Next::Change
    }
}

impl From<Invalid> for Obstacle {
    fn from(invalid: Invalid) -> Obstacle {
        Obstacle::new("InvalidSpec", invalid.to_string(), Next::Change)
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
