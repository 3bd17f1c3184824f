//! Whether the user of an open watch may still watch, for servers that ask that again while a watch is open.
//!
//! The authorizer is asked when a role, a binding or what belongs to the user's node has changed, and from time to time otherwise, since
//! a webhook or an authorizer of the embedder's says nothing of its changes. As in a request, what was removed is in force when its
//! writer is answered; a watch that was asked about within the last second learns of it when that second is over.

use crate::access::authz::{self, Attributes, WatchAuthorization};
use crate::http::endpoint::context::Context;
use crate::shared::request::request_info::Target;
use crate::shared::status::Failure;
use crate::state::State;
use rand::Rng as _;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::user::User;
use tokio::sync::watch;
use tokio::time::Instant;

/// The longest time between two questions about one watch. They are spread over the second half of it, so that an authorizer that asks a
/// webhook is not asked about all watches at once.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// The shortest time between two questions about one watch, however often roles change.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The permission of an open watch.
#[derive(Debug)]
pub(super) struct Permission {
    user: Arc<User>,
    target: Target,
    changes: Changes,
    /// When the authorizer was asked last.
    asked: Instant,
}

/// Notified when the answer may be another one.
#[derive(Clone, Debug)]
struct Changes {
    roles: watch::Receiver<()>,
    /// Changes of the node, if the user is one.
    node: Option<watch::Receiver<()>>,
}

impl Permission {
    /// The permission of a watch that begins; `None` if nobody asks for it again.
    pub(super) fn new(cx: &Context<'_>) -> Option<Permission> {
        let (state, user) = (cx.state, cx.operation.user);
        if state.watch_authorization == WatchAuthorization::AtStart {
            return None;
        }
        let nodes = state.nodes.as_ref().filter(|_| user.node_name().is_some());
        let changes = Changes { roles: state.rbac.changes(), node: nodes.map(|nodes| nodes.changes()) };
        Some(Permission { user: user.clone(), target: cx.target.clone(), changes, asked: Instant::now() })
    }

    /// Asks the authorizer. One that cannot answer takes nothing away: it is asked again later.
    ///
    /// # Errors
    /// 403 if the user may not watch any more.
    pub(super) async fn check(&mut self, state: &State) -> Result<(), Failure> {
        // Marked as seen before the question, so that a change in between leads to another one.
        self.changes.mark_as_seen();
        let attributes = Attributes::Resource(self.target.attributes("watch"));
        let verdict = authz::verdict(&*state.authorizer, &self.user, &attributes).await;
        self.asked = Instant::now();
        if let Some(error) = verdict.error.as_ref().filter(|_| !verdict.is_allowed()) {
            tracing::warn!(user = %self.user.name, resource = self.target.resource, error, "an open watch cannot be authorized; it goes on until it can");
            return Ok(());
        }
        authz::enforce(&self.user, &attributes, verdict).map_err(|mut failure| {
            failure.status.message.push_str("; the watch ends because the permission for it was lost");
            failure
        })
    }

    /// Resolves when the authorizer is to be asked again.
    pub(super) fn due(&self) -> impl Future<Output = ()> + Send + use<> {
        let (mut changes, asked) = (self.changes.clone(), self.asked);
        let latest = asked + INTERVAL_MAX.mul_f64(rand::rng().random_range(0.5..1.0));
        async move {
            let changed = async {
                changes.changed().await;
                tokio::time::sleep_until(asked + INTERVAL_MIN).await;
            };
            // Whichever comes first, the authorizer is asked.
            let _ = tokio::time::timeout_at(latest, changed).await;
        }
    }
}

impl Changes {
    fn mark_as_seen(&mut self) {
        self.roles.mark_unchanged();
        if let Some(node) = &mut self.node {
            node.mark_unchanged();
        }
    }

    /// # Cancel safety
    /// Nothing is lost: what was not returned is seen by the next call.
    async fn changed(&mut self) {
        let node = async {
            match &mut self.node {
                Some(node) => node.changed().await,
                None => std::future::pending().await,
            }
        };
        // Both senders live as long as the server, which ends the watch by other means. Both arms are cancel-safe.
        tokio::select! {
            changed = self.roles.changed() => drop(changed),
            changed = node => drop(changed),
        }
    }
}
