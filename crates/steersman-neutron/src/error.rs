//! Errors of calls, told apart by what is known about their effect.

use std::error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::answer::{Answer, Class};
use crate::cloud::RequestId;
use crate::types::network::NetworkCreate;

/// Why a call did not succeed.
///
/// Prints as one sentence: the call, what happened, with which values. The same failure prints the same sentence each time
/// (the request's id is in [`Error::call`]), so it may stand in a status without changing it at every attempt. The
/// technical cause beneath, if there is one, is the [`source`](error::Error::source).
#[derive(Clone, Debug)]
pub enum Error {
    /// The server refused.
    Answered {
        /// The call that was refused.
        call: Call,
        /// The answer of the server.
        answer: Answer,
    },
    /// The request went out, but no answer that can be understood came back. A change may or may not have happened, and may
    /// still happen.
    NoAnswer {
        /// The call without an answer.
        call: Call,
        /// Why no answer came.
        cause: Cause,
    },
    /// The request did not reach the server, so nothing happened.
    NotSent {
        /// The call that was not sent.
        call: Call,
        /// Why it was not sent.
        cause: Cause,
    },
}

/// A call to Neutron: its kind, the resource, and the caller's id of the work.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Call {
    /// The kind of call.
    pub operation: Operation,
    /// The resource: an id, or for a create the name, CIDR or marker that it would get.
    pub target: Option<String>,
    /// The caller's id of the work.
    pub request: RequestId,
}

/// The kinds of calls.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Operation {
    /// [`Cloud::add_network_tag`](crate::Cloud::add_network_tag)
    AddNetworkTag,
    /// Signing in at Keystone, which happens on behalf of other calls.
    Authenticate,
    /// [`Cloud::create_network`](crate::Cloud::create_network)
    CreateNetwork,
    /// [`Cloud::create_subnet`](crate::Cloud::create_subnet)
    CreateSubnet,
    /// [`Cloud::delete_network`](crate::Cloud::delete_network)
    DeleteNetwork,
    /// [`Cloud::delete_subnet`](crate::Cloud::delete_subnet)
    DeleteSubnet,
    /// [`Cloud::find_networks`](crate::Cloud::find_networks)
    FindNetworks,
    /// [`Cloud::find_subnets`](crate::Cloud::find_subnets)
    FindSubnets,
    /// [`Cloud::read_network`](crate::Cloud::read_network)
    ReadNetwork,
    /// [`Cloud::read_subnet`](crate::Cloud::read_subnet)
    ReadSubnet,
    /// [`Cloud::remove_network_tag`](crate::Cloud::remove_network_tag)
    RemoveNetworkTag,
    /// [`Cloud::update_network`](crate::Cloud::update_network)
    UpdateNetwork,
    /// [`Cloud::update_subnet`](crate::Cloud::update_subnet)
    UpdateSubnet,
}

/// Why a request or its answer did not arrive.
#[derive(Clone, Debug)]
pub enum Cause {
    /// The connection broke while the request or the answer was under way.
    Broken(Detail),
    /// The service catalog that Keystone returned has no suitable network service; the text says what it has.
    Catalog(String),
    /// No connection could be made: refused, unknown name, TLS, or too slow.
    Connect {
        /// Scheme, host and port.
        address: String,
        /// The error of the system.
        detail: Detail,
    },
    /// A test asked for this failure.
    Injected,
    /// An answer arrived but makes no sense; the text says why.
    Malformed(String),
    /// The store behind a simulated cloud cannot be written.
    Storage(Detail),
    /// No answer within this time.
    Timeout(Duration),
    /// The answer is larger than this many bytes.
    TooLarge(usize),
}

/// The technical side of a [`Cause`]: an error of the HTTP client or of the file system.
#[derive(Clone, Debug)]
pub struct Detail(Arc<dyn error::Error + Send + Sync>);

impl Detail {
    pub(crate) fn new(error: impl error::Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl error::Error for Detail {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.0.source()
    }
}

// === impl Error ===

impl Error {
    /// The call that failed.
    ///
    /// If signing in failed, this is [`Operation::Authenticate`], not the call that needed it.
    pub fn call(&self) -> &Call {
        match self {
            Self::Answered { call, .. } | Self::NoAnswer { call, .. } | Self::NotSent { call, .. } => call,
        }
    }

    /// The refusal, if the server answered.
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Answered { answer, .. } => Some(answer),
            Self::NoAnswer { .. } | Self::NotSent { .. } => None,
        }
    }

    /// The meaning of the refusal, if the server answered.
    pub fn class(&self) -> Option<Class> {
        self.answer().map(|answer| answer.class)
    }

    /// Whether the create, update or delete may have happened all the same.
    ///
    /// After an uncertain create, look for what it may have made before creating again; it may appear late.
    pub fn is_uncertain(&self) -> bool {
        let effect_unknown = match self {
            Self::Answered { answer, .. } => answer.class == Class::ServerError,
            Self::NoAnswer { .. } => true,
            Self::NotSent { .. } => false,
        };
        effect_unknown && self.call().operation.has_effect()
    }

    /// Whether trying again later can help although nobody changes the request, the credentials or the configuration.
    ///
    /// [`Class::PreconditionFailed`] counts: try again from reading. An uncertain create counts too: look first.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Answered { answer, .. } => match answer.class {
                Class::Exhausted
                | Class::InUse
                | Class::OverQuota
                | Class::PreconditionFailed
                | Class::RateLimited
                | Class::ServerError
                | Class::Unavailable => true,
                Class::Conflict
                | Class::Forbidden
                | Class::GatewayConflict
                | Class::InvalidInput
                | Class::NotFound
                | Class::Overlap
                | Class::TooLarge
                | Class::Unauthorized
                | Class::Unexpected => false,
            },
            Self::NoAnswer { .. } => true,
            Self::NotSent { cause, .. } => !matches!(cause, Cause::Catalog(_)),
        }
    }

    /// Whether the server said that the resource does not exist. It says so of other projects' resources too.
    pub fn is_not_found(&self) -> bool {
        self.class() == Some(Class::NotFound)
    }

    /// How long the server asked to wait, at most an hour.
    pub fn retry_after(&self) -> Option<Duration> {
        self.answer().and_then(|answer| answer.retry_after)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { call, answer } => {
                let server = if call.operation == Operation::Authenticate { "Keystone" } else { "Neutron" };
                write!(f, "{call}: {server} answered {answer}")
            }
            Self::NoAnswer { call, cause } if call.operation.has_effect() => {
                write!(f, "{call}: sent, but {cause}, so whether it happened is unknown")
            }
            Self::NoAnswer { call, cause } => write!(f, "{call}: {cause}"),
            Self::NotSent { call, cause } => write!(f, "{call}: not sent, {cause}"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Answered { .. } => None,
            Self::NoAnswer { cause, .. } | Self::NotSent { cause, .. } => match cause {
                Cause::Broken(detail) | Cause::Connect { detail, .. } | Cause::Storage(detail) => Some(detail),
                Cause::Catalog(_) | Cause::Injected | Cause::Malformed(_) | Cause::Timeout(_) | Cause::TooLarge(_) => {
                    None
                }
            },
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(_) => f.write_str("the connection broke"),
            Self::Catalog(what) | Self::Malformed(what) => f.write_str(what),
            Self::Connect { address, .. } => write!(f, "no connection to {address}"),
            Self::Injected => f.write_str("a fault was asked for"),
            Self::Storage(_) => f.write_str("the simulated cloud cannot write its file"),
            Self::Timeout(limit) => write!(f, "no answer came within {} s", limit.as_secs_f64()),
            Self::TooLarge(bytes_max) => write!(f, "the answer is larger than {bytes_max} bytes"),
        }
    }
}

// === impl Call ===

impl Call {
    /// A call about one resource.
    pub(crate) fn on(operation: Operation, target: impl ToString, request: RequestId) -> Self {
        Self { operation, target: Some(target.to_string()), request }
    }

    /// The creation of a network, which has no id yet: it is identified by its name, or else its marker.
    pub(crate) fn create_network(network: &NetworkCreate, request: RequestId) -> Self {
        let names = [&network.name, &network.description].into_iter().flatten();
        let target = names.filter(|name| !name.is_empty()).map(|name| format!("{name:?}")).next();
        Self { operation: Operation::CreateNetwork, target, request }
    }

    /// A call that names no resource.
    pub(crate) fn bare(operation: Operation, request: RequestId) -> Self {
        Self { operation, target: None, request }
    }

    pub(crate) fn answered(self, answer: Answer) -> Error {
        Error::Answered { call: self, answer }
    }

    pub(crate) fn unanswered(self, cause: Cause) -> Error {
        Error::NoAnswer { call: self, cause }
    }

    pub(crate) fn unsent(self, cause: Cause) -> Error {
        Error::NotSent { call: self, cause }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        match &self.target {
            Some(target) => write!(f, " {target}"),
            None => Ok(()),
        }
    }
}

// === impl Operation ===

impl Operation {
    /// Whether it changes the cloud.
    pub fn has_effect(self) -> bool {
        match self {
            Self::Authenticate | Self::FindNetworks | Self::FindSubnets | Self::ReadNetwork | Self::ReadSubnet => false,
            Self::AddNetworkTag
            | Self::CreateNetwork
            | Self::CreateSubnet
            | Self::DeleteNetwork
            | Self::DeleteSubnet
            | Self::RemoveNetworkTag
            | Self::UpdateNetwork
            | Self::UpdateSubnet => true,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AddNetworkTag => "tag network",
            Self::Authenticate => "sign in",
            Self::CreateNetwork => "create network",
            Self::CreateSubnet => "create subnet",
            Self::DeleteNetwork => "delete network",
            Self::DeleteSubnet => "delete subnet",
            Self::FindNetworks => "find networks",
            Self::FindSubnets => "find subnets",
            Self::ReadNetwork => "read network",
            Self::ReadSubnet => "read subnet",
            Self::RemoveNetworkTag => "untag network",
            Self::UpdateNetwork => "update network",
            Self::UpdateSubnet => "update subnet",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::expect;
    use uuid::Uuid;

    use super::{Call, Cause, Operation};
    use crate::answer::Answer;
    use crate::cloud::RequestId;

    fn call(operation: Operation) -> Call {
        Call::on(operation, "n1", RequestId::from(Uuid::nil()))
    }

    #[test]
    fn a_sentence_names_the_call_and_what_is_known() {
        let answered = call(Operation::DeleteNetwork).answered(Answer::refusal(409, "NetworkInUse", "Ports: p1."));
        expect!["delete network n1: Neutron answered 409 NetworkInUse, Ports: p1"].assert_eq(&answered.to_string());
        let lost = call(Operation::CreateNetwork).unanswered(Cause::Timeout(Duration::from_secs(30)));
        expect!["create network n1: sent, but no answer came within 30 s, so whether it happened is unknown"]
            .assert_eq(&lost.to_string());
    }

    #[test]
    fn only_changes_are_uncertain() {
        let server_error = || Answer::refusal(500, "HTTPInternalServerError", "");
        assert!(call(Operation::CreateNetwork).answered(server_error()).is_uncertain());
        assert!(!call(Operation::FindNetworks).answered(server_error()).is_uncertain());
        assert!(!call(Operation::Authenticate).unanswered(Cause::Injected).is_uncertain());
        assert!(call(Operation::DeleteSubnet).unanswered(Cause::Injected).is_uncertain());
        assert!(!call(Operation::CreateNetwork).unsent(Cause::Injected).is_uncertain());
        assert!(!call(Operation::CreateNetwork).answered(Answer::refusal(503, "", "")).is_uncertain());
    }

    #[test]
    fn a_catalog_without_neutron_is_not_worth_a_retry() {
        assert!(!call(Operation::Authenticate).unsent(Cause::Catalog(String::new())).is_retryable());
        assert!(call(Operation::Authenticate).unsent(Cause::Injected).is_retryable());
    }
}
