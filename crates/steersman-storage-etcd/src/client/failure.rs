//! The meaning of a failed call: whether etcd did something, and whether another try may help.

use std::error::Error;
use std::sync::Arc;
use steersman_storage::kv::Cause;
use tonic::{Code, Status};

/// Why a call has no answer that can be used.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// etcd has not done it. Another member, or a later try, may.
    NotDone(Cause),
    /// etcd answered that it will not do it.
    Refused(Refusal),
    /// etcd may have done it, or may still do it.
    Unknown(Cause),
    /// The data are not those that were seen before.
    Replaced(String),
}

/// An answer of etcd that another try does not change.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// The answer exceeds what is read of one message.
    AnswerTooLarge,
    Compacted,
    /// The revision does not exist yet.
    Future,
    /// The lease of an entry has ended.
    NoLease,
    /// The database has reached its quota. etcd may have made the write nevertheless.
    NoSpace,
    Other(Cause),
    RequestTooLarge,
    /// The token was not accepted. Nothing was done; a new one may be.
    Token,
}

/// The remedy for a full database of etcd, for an operator.
pub(crate) const NO_SPACE_REMEDY: &str = "etcd's database has reached its quota, so compact and defragment it and disarm its alarm (etcdctl alarm disarm), or raise its flag --quota-backend-bytes";

/// An answer of a member, with its address.
#[derive(Debug, thiserror::Error)]
#[error("etcd at {endpoint} answered {code:?}: {message}")]
pub(crate) struct Answered {
    pub(crate) endpoint: String,
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// A member did not answer in time.
#[derive(Debug, thiserror::Error)]
#[error("etcd at {endpoint} did not answer within {milliseconds} ms")]
pub(crate) struct Silent {
    pub(crate) endpoint: String,
    pub(crate) milliseconds: u128,
}

/// Calls that had to end first were not answered, so that a call was not sent.
#[derive(Debug, thiserror::Error)]
#[error("etcd has not answered in time about {0}")]
pub(crate) struct NoTurn(pub(crate) &'static str);

/// The time for a request was over before a member was asked.
#[derive(Debug, thiserror::Error)]
#[error("the time for the request was over before etcd at {endpoint} was asked")]
pub(crate) struct OutOfTime {
    pub(crate) endpoint: String,
}

/// No member has answered for a while.
#[derive(Debug, thiserror::Error)]
#[error("no member of etcd has answered for {seconds} s")]
pub(crate) struct Away {
    pub(crate) seconds: u64,
}

impl Failure {
    /// The meaning of a status that `endpoint` answered or that the connection to it made.
    pub(crate) fn of(status: &Status, endpoint: &str) -> Failure {
        let cause = || -> Cause {
            // The message of a connection's error says little; what is below it says why.
            let message = status.source().map_or_else(|| status.message().to_owned(), innermost);
            Arc::new(Answered { endpoint: endpoint.to_owned(), code: status.code(), message })
        };
        if has_connect_error(status) {
            return Failure::NotDone(cause());
        }
        let says = |text: &str| status.message().contains(text);
        match status.code() {
            Code::OutOfRange if says("has been compacted") => Failure::Refused(Refusal::Compacted),
            Code::OutOfRange if says("is a future revision") => Failure::Refused(Refusal::Future),
            Code::OutOfRange if says("decoded message length too large") => Failure::Refused(Refusal::AnswerTooLarge),
            Code::InvalidArgument if says("request is too large") => Failure::Refused(Refusal::RequestTooLarge),
            Code::ResourceExhausted if says("trying to send message larger than max") => {
                Failure::Refused(Refusal::AnswerTooLarge)
            }
            Code::ResourceExhausted if says("message larger than max") => Failure::Refused(Refusal::RequestTooLarge),
            Code::ResourceExhausted if says("database space exceeded") => Failure::Refused(Refusal::NoSpace),
            Code::NotFound if says("requested lease not found") => Failure::Refused(Refusal::NoLease),
            Code::Unauthenticated => Failure::Refused(Refusal::Token),
            Code::InvalidArgument if says("revision of auth store is old") => Failure::Refused(Refusal::Token),
            Code::ResourceExhausted if says("too many requests") => Failure::NotDone(cause()),
            // Said before a request is looked at.
            Code::Unavailable if says("etcdserver: no leader") => Failure::NotDone(cause()),
            Code::FailedPrecondition if says("not supported for learner") || says("not capable") => {
                Failure::NotDone(cause())
            }
            Code::DataLoss
            | Code::FailedPrecondition
            | Code::InvalidArgument
            | Code::NotFound
            | Code::PermissionDenied
            | Code::Unimplemented => Failure::Refused(Refusal::Other(cause())),
            // Also time-outs, changes of leaders and dropped proposals, of which etcd does not say what became.
            _ => Failure::Unknown(cause()),
        }
    }

    pub(crate) fn cause(&self) -> Cause {
        match self {
            Failure::NotDone(cause) | Failure::Unknown(cause) | Failure::Refused(Refusal::Other(cause)) => {
                cause.clone()
            }
            Failure::Refused(refusal) => Arc::new(ServerMessage(refusal.sentence())),
            Failure::Replaced(fault) => Arc::new(ServerMessage(fault.clone())),
        }
    }
}

impl Refusal {
    fn sentence(&self) -> String {
        let text = match self {
            Refusal::AnswerTooLarge => "an answer of etcd is larger than what is read of one message",
            Refusal::Compacted => "etcd has compacted the revision",
            Refusal::Future => "etcd does not have the revision yet",
            Refusal::NoLease => "the lease of the entry has ended",
            Refusal::NoSpace => NO_SPACE_REMEDY,
            Refusal::Other(cause) => return cause.to_string(),
            Refusal::RequestTooLarge => "the request exceeds etcd's flag --max-request-bytes",
            Refusal::Token => "etcd wants a user and a password, or did not accept the token of the user",
        };
        text.to_owned()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ServerMessage(String);

fn has_connect_error(status: &Status) -> bool {
    let mut next = status.source();
    while let Some(error) = next {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        next = error.source();
    }
    false
}

fn innermost(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: Code, message: &str) -> Failure {
        Failure::of(&Status::new(code, message), "here")
    }

    #[test]
    fn only_what_is_certain_counts_as_not_done() {
        for message in ["etcdserver: no leader", "etcdserver: leader changed", "etcdserver: request timed out"] {
            let failure = of(Code::Unavailable, message);
            assert_eq!(matches!(failure, Failure::NotDone(_)), message.contains("no leader"), "{message}");
        }
        assert!(matches!(of(Code::Unknown, "raft proposal dropped"), Failure::Unknown(_)));
        assert!(matches!(of(Code::Cancelled, "Timeout expired"), Failure::Unknown(_)));
        assert!(matches!(of(Code::Internal, "h2 protocol error"), Failure::Unknown(_)));
        assert!(matches!(of(Code::ResourceExhausted, "etcdserver: too many requests"), Failure::NotDone(_)));
        let refused = tonic::ConnectError("connection refused".into());
        let status = Status::from_error(Box::new(refused));
        assert!(matches!(Failure::of(&status, "here"), Failure::NotDone(_)), "{status:?}");
    }

    #[test]
    fn refusals_of_etcd_are_told_apart() {
        let refusal = |code, message| match of(code, message) {
            Failure::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        };
        let compacted = "etcdserver: mvcc: required revision has been compacted";
        assert!(matches!(refusal(Code::OutOfRange, compacted), Refusal::Compacted));
        let future = "etcdserver: mvcc: required revision is a future revision";
        assert!(matches!(refusal(Code::OutOfRange, future), Refusal::Future));
        let gone = "etcdserver: requested lease not found";
        assert!(matches!(refusal(Code::NotFound, gone), Refusal::NoLease));
        let full = "etcdserver: mvcc: database space exceeded";
        assert!(matches!(refusal(Code::ResourceExhausted, full), Refusal::NoSpace));
        let large = "grpc: received message larger than max (3000100 vs. 2097152)";
        assert!(matches!(refusal(Code::ResourceExhausted, large), Refusal::RequestTooLarge));
        let answer = "grpc: trying to send message larger than max (2200000000 vs. 2147483647)";
        assert!(matches!(refusal(Code::ResourceExhausted, answer), Refusal::AnswerTooLarge));
        assert!(matches!(refusal(Code::PermissionDenied, "etcdserver: permission denied"), Refusal::Other(_)));
    }
}
