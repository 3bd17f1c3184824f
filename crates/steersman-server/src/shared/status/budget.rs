//! The failures of requests that would build or compute too much.

use crate::shared::status::Failure;
use steersman_machinery::budget::{Amount, Error};

impl Failure {
    /// The answer to a request whose [`Budget`](steersman_machinery::Budget) is used up, or that was interrupted.
    pub(crate) fn of_budget(error: &Error) -> Failure {
        match error {
            Error::Exceeded { amount: Amount::Bytes, limit } => Failure::too_large(format!(
                "the object, with its defaults set, takes more than the {} MiB of memory that one request may use: \
                 split it into several objects",
                limit >> 20
            )),
            Error::Exceeded { amount: Amount::Items, limit } => Failure::too_large(format!(
                "the object, with its defaults set, has more than the {limit} values that one request may have: \
                 split it into several objects"
            )),
            Error::Exceeded { amount: Amount::Steps, limit } => Failure::too_large(format!(
                "the request needs more than the {limit} steps of computation that one request may take: \
                 send less at a time, or make the lists, rules and patterns that it is checked by smaller"
            )),
            Error::Interrupted => crate::shared::compute::too_late(),
        }
    }

    /// The refusal of a request for which too much is read that is stored besides its object. The subject of the message, and the way out.
    pub(crate) fn of_reading(what: &str, way_out: &str, error: &Error) -> Failure {
        let limit = match error {
            Error::Interrupted => return Failure::of_budget(error),
            Error::Exceeded { amount: Amount::Bytes, limit } => format!("{} MiB of memory", limit >> 20),
            Error::Exceeded { amount: Amount::Items, limit } => format!("{limit} values"),
            Error::Exceeded { amount: Amount::Steps, limit } => format!("{limit} steps of computation"),
        };
        Failure::too_large(format!("{what} need more than the {limit} that one request may use: {way_out}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::of_budget(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steersman_machinery::budget::{Budget, Interrupt, Limits};

    #[test]
    fn budget_refusal_names_the_limit_and_the_way_out() {
        let failure = Failure::from(Budget::default().build(64 << 20).unwrap_err());
        assert_eq!(failure.code(), 413);
        assert_eq!(
            failure.status.message,
            "the object, with its defaults set, takes more than the 36 MiB of memory that one request may use: \
             split it into several objects"
        );
        let interrupt = Interrupt::default();
        interrupt.set();
        assert_eq!(Failure::from(Budget::new(Limits::default(), interrupt).check().unwrap_err()).code(), 504);
    }
}
