//! The beginning: which etcd this is, and whether it can be used.

pub(crate) mod restore;
mod version;

use crate::client::failure::Failure;
use crate::client::{Client, Lane, undone};
use crate::connect::version::Unsupported;
use crate::layout::{FORMAT, Format, Layout, Span};
use crate::options::{Keys, Options, REGISTRY_PREFIX, STEERSMAN_PREFIX};
use crate::proto::{Compare, KeyValue, RangeRequest, RequestOp, StatusRequest, TxnRequest, revision_of};
use bytes::Bytes;
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use steersman_storage::kv::{self, Cause};
use tokio::time::Instant;

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
    /// There is nothing below the prefix.
    #[error("etcd has nothing below {prefix:?}: name the prefix of a server's objects")]
    Empty {
        /// The prefix.
        prefix: String,
    },
    /// There is nothing below the prefix of kube-apiserver, and a store in the layout of Steersman elsewhere.
    #[error(
        "etcd has nothing below {prefix:?}, and below {STEERSMAN_PREFIX:?} a store in the layout of Steersman: use it with --etcd-layout steersman, or move it \
         with `steersman backup` and `steersman restore`, and then delete all keys below {STEERSMAN_PREFIX:?}"
    )]
    Elsewhere {
        /// The prefix.
        prefix: String,
    },
    /// There is a store in the layout of Steersman, and another layout was asked for.
    #[error(
        "etcd has a store in the layout of Steersman below {prefix:?}: use it with --etcd-layout steersman, or move it with `steersman backup` \
         and `steersman restore`"
    )]
    Layout {
        /// The prefix.
        prefix: String,
    },
    /// There is something else below the prefix.
    #[error(
        "etcd has keys below {prefix:?} that are not in the layout of Steersman: choose a prefix of its own, or --etcd-layout kubernetes for the \
         objects of a kube-apiserver"
    )]
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
    /// A restore was interrupted, or goes on.
    #[error(
        "what etcd has below {prefix:?} is incomplete, because a restore into it has not ended: restore again, or delete all keys below the prefix"
    )]
    Incomplete {
        /// The prefix.
        prefix: String,
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

/// A store below a prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Found {
    /// The revisions of the store are etcd's and this number.
    pub(crate) shift: u64,
    /// The revision of etcd from which on the store exists.
    pub(crate) since: u64,
}

/// Connects to the members, and checks the versions of those that answer.
pub(crate) async fn reach(options: Options) -> Result<Arc<Client>, ConnectError> {
    let n_members = options.endpoints.len();
    if n_members == 0 {
        return Err(ConnectError::NoEndpoint);
    }
    let client = Client::new(options)
        .map_err(|(endpoint, source)| ConnectError::Endpoint { endpoint, source: Arc::new(source) })?;
    check_versions(&client, n_members).await?;
    Ok(Arc::new(client))
}

/// Asks all members for their versions, and refuses those that are too old. One at least must answer.
async fn check_versions(client: &Client, n_members: usize) -> Result<(), ConnectError> {
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

/// Makes sure that what is below the prefix is a store of ours, and makes one if nothing is.
pub(crate) async fn claim(client: &Client, layout: &Layout) -> Result<Found, ConnectError> {
    if layout.is_registry() {
        let found = find_registry(client, layout).await?;
        check_elsewhere(client, layout).await?;
        return Ok(found);
    }
    let kv = |failure: Failure| ConnectError::Kv(undone(&failure));
    let give_up = client.deadline();
    loop {
        match find(client, layout).await {
            Err(ConnectError::Empty { .. }) => warn_of_registry(client).await,
            found => return found,
        }
        let claim = TxnRequest {
            compare: vec![Compare::written_at(&layout.format_key(), 0)],
            success: vec![RequestOp::put(layout.format_key(), FORMAT.into(), 0)],
            failure: Vec::new(),
        };
        // The next read shows whether another process has claimed it, and what became of a lost answer.
        match client.attempt(Lane::Requests, &claim, client.options.write_timeout, give_up).await {
            Ok(_) => {}
            Err(Failure::NotDone(_) | Failure::Unknown(_)) if Instant::now() < give_up => {}
            Err(failure) => return Err(kv(failure)),
        }
    }
}

/// The store below the prefix. Changes nothing.
pub(crate) async fn find(client: &Client, layout: &Layout) -> Result<Found, ConnectError> {
    let prefix = || client.options.prefix.clone();
    if layout.is_registry() {
        let found = find_registry(client, layout).await?;
        return match first_key(client, layout).await? {
            Some(_) => Ok(found),
            None => Err(ConnectError::Empty { prefix: prefix() }),
        };
    }
    if let Some(found) = format(client, layout).await? {
        return match Format::parse(&found.value) {
            Format::Store { shift } => {
                let since = if shift == 0 { 0 } else { revision_of(found.mod_revision).0 };
                Ok(Found { shift, since })
            }
            Format::Restoring => Err(ConnectError::Incomplete { prefix: prefix() }),
            Format::Other => {
                let format = String::from_utf8_lossy(&found.value).into_owned();
                Err(ConnectError::Format { prefix: prefix(), format })
            }
        };
    }
    match first_key(client, layout).await? {
        Some(_) => Err(ConnectError::Foreign { prefix: prefix() }),
        None => Err(ConnectError::Empty { prefix: prefix() }),
    }
}

/// The store of a kube-apiserver below the prefix, which nothing but its objects shows.
pub(crate) async fn find_registry(client: &Client, layout: &Layout) -> Result<Found, ConnectError> {
    let prefix = client.options.prefix.clone();
    if format(client, layout).await?.is_some() {
        return Err(ConnectError::Incomplete { prefix });
    }
    if value(client, layout.format_key_of_steersman()).await?.is_some() {
        return Err(ConnectError::Layout { prefix });
    }
    Ok(Found { shift: 0, since: 0 })
}

/// Refuses an empty default prefix where there is a store below that of the other layout: somebody has not asked for a new one.
async fn check_elsewhere(client: &Client, layout: &Layout) -> Result<(), ConnectError> {
    let prefix = client.options.prefix.clone();
    let older = Layout::new(STEERSMAN_PREFIX, &Keys::Steersman).format_key();
    let is_default = prefix.trim_end_matches('/') == REGISTRY_PREFIX;
    if !is_default || first_key(client, layout).await?.is_some() {
        return Ok(());
    }
    match value(client, older).await {
        Ok(Some(_)) => Err(ConnectError::Elsewhere { prefix }),
        // A user who may not look there has been told to use this prefix.
        Ok(None) | Err(ConnectError::Kv(kv::Error::Refused { .. })) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Warns of the objects of a kube-apiserver, or of a server in its layout, beside an empty prefix: all servers must have the same layout.
async fn warn_of_registry(client: &Client) {
    let registry = Layout::new(REGISTRY_PREFIX, &Keys::Steersman);
    // A user who may not look there has been told to use this prefix.
    if let Ok(Some(_)) = first_key(client, &registry).await {
        tracing::warn!(
            "a new, empty cluster begins below {:?}, beside objects below {REGISTRY_PREFIX:?}: to serve those, use --etcd-layout kubernetes",
            client.options.prefix
        );
    }
}

/// The key that says what is below the prefix.
async fn format(client: &Client, layout: &Layout) -> Result<Option<KeyValue>, ConnectError> {
    value(client, layout.format_key()).await
}

async fn value(client: &Client, key: Bytes) -> Result<Option<KeyValue>, ConnectError> {
    let request = RangeRequest { key, ..RangeRequest::default() };
    let found = client.read(Lane::Requests, &request, client.deadline()).await;
    Ok(found.map_err(|failure| ConnectError::Kv(undone(&failure)))?.kvs.into_iter().next())
}

/// Any key below the prefix.
async fn first_key(client: &Client, layout: &Layout) -> Result<Option<KeyValue>, ConnectError> {
    first_of(client, layout.all()).await
}

/// Any key of a span.
async fn first_of(client: &Client, span: Span) -> Result<Option<KeyValue>, ConnectError> {
    let request =
        RangeRequest { key: span.start, range_end: span.end, limit: 1, keys_only: true, ..RangeRequest::default() };
    let found = client.read(Lane::Requests, &request, client.deadline()).await;
    Ok(found.map_err(|failure| ConnectError::Kv(undone(&failure)))?.kvs.into_iter().next())
}
