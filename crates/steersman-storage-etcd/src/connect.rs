//! The beginning: which etcd this is, and whether it can be used.

use crate::client::failure::Failure;
use crate::client::{Client, Lane, undone};
use crate::layout::{FORMAT, Layout};
use crate::proto::{Compare, EQUAL, MOD, PutRequest, RangeRequest, Request, RequestOp, StatusRequest, TxnRequest};
use crate::version::{self, Unsupported};
use futures::future::join_all;
use std::time::Duration;
use steersman_storage::kv::{self, Cause};

/// How long a member has to say which version it is.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// Why etcd cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL of a member, or the certificates, cannot be used.
    #[error("etcd's endpoint {endpoint:?}, or the certificates for it, cannot be used")]
    Endpoint {
        /// The URL.
        endpoint: String,
        /// The fault.
        #[source]
        source: Cause,
    },
    /// There is something else below the prefix.
    #[error("etcd has keys below {prefix:?} that are not Steersman's: choose a prefix of its own")]
    Foreign {
        /// The prefix.
        prefix: String,
    },
    /// A later release wrote the keys below the prefix.
    #[error(
        "what etcd has below {prefix:?} has the format {format:?}, and this release knows {FORMAT:?}: use a later release"
    )]
    Format {
        /// The prefix.
        prefix: String,
        /// The format.
        format: String,
    },
    /// No member is named.
    #[error("no endpoint of etcd is named")]
    NoEndpoint,
    /// A first request failed.
    #[error("etcd cannot be used")]
    Kv(#[source] kv::Error),
    /// No member answers.
    #[error("none of etcd's {n_endpoints} endpoints answers, of which {endpoint} is the first")]
    Unreachable {
        /// The first endpoint.
        endpoint: String,
        /// How many there are.
        n_endpoints: usize,
        /// Why the first one does not.
        #[source]
        source: Cause,
    },
    /// A member is too old.
    #[error("the member of etcd at {endpoint} cannot be used")]
    Version {
        /// The member.
        endpoint: String,
        /// Its version.
        #[source]
        source: Unsupported,
    },
}

/// Asks all members for their versions, and refuses those that are too old. One at least must answer.
pub(crate) async fn check_versions(client: &Client, n_members: usize) -> Result<(), ConnectError> {
    let ask = |member| client.ask(member, Lane::Requests, &StatusRequest {}, STATUS_TIMEOUT);
    let answers = join_all((0..n_members).map(ask)).await;
    let mut failures = Vec::new();
    for (member, answer) in answers.into_iter().enumerate() {
        let endpoint = client.endpoint(member);
        match answer {
            Ok(status) => version::check(&status.version)
                .map_err(|source| ConnectError::Version { endpoint: endpoint.to_owned(), source })?,
            Err(failure @ Failure::Refused(_)) => return Err(ConnectError::Kv(undone(&failure))),
            Err(failure) => {
                tracing::warn!(endpoint, "a member of etcd does not answer: {}", failure.cause());
                client.failed(member);
                failures.push(failure);
            }
        }
    }
    if failures.len() < n_members {
        return Ok(());
    }
    let source = failures.first().map(Failure::cause).ok_or(ConnectError::NoEndpoint)?;
    let endpoint = client.endpoint(0).to_owned();
    Err(ConnectError::Unreachable { endpoint, n_endpoints: n_members, source })
}

/// Makes sure that what is below the prefix is ours, or that nothing is.
pub(crate) async fn claim(client: &Client, layout: &Layout) -> Result<(), ConnectError> {
    let kv = |failure: Failure| ConnectError::Kv(undone(&failure));
    let give_up = client.deadline();
    let format = RangeRequest { key: layout.format_key(), ..RangeRequest::default() };
    let prefix = || client.options.prefix.clone();
    loop {
        let found = client.read(Lane::Requests, &format, give_up).await.map_err(kv)?.kvs;
        if let Some(found) = found.first() {
            if found.value == FORMAT {
                return Ok(());
            }
            let format = String::from_utf8_lossy(&found.value).into_owned();
            return Err(ConnectError::Format { prefix: prefix(), format });
        }
        let span = layout.all();
        let any = RangeRequest {
            key: span.start.clone(),
            range_end: span.end.clone(),
            limit: 1,
            keys_only: true,
            ..RangeRequest::default()
        };
        if !client.read(Lane::Requests, &any, give_up).await.map_err(kv)?.kvs.is_empty() {
            return Err(ConnectError::Foreign { prefix: prefix() });
        }
        let put = PutRequest { key: layout.format_key(), value: FORMAT.into(), lease: 0 };
        let absent = Compare { result: EQUAL, target: MOD, key: layout.format_key(), mod_revision: Some(0) };
        let claim = TxnRequest {
            compare: vec![absent],
            success: vec![RequestOp { request: Some(Request::Put(put)) }],
            failure: Vec::new(),
        };
        // The next read shows whether another process has claimed it, and what became of a lost answer.
        match client.attempt(Lane::Requests, &claim, client.options.write_timeout, give_up).await {
            Ok(_) | Err(Failure::NotDone(_) | Failure::Unknown(_)) => {}
            Err(failure) => return Err(kv(failure)),
        }
    }
}
