//! Keeps a request from being judged by an older state than it may be.
//!
//! A server whose store is its own has what it acknowledged in its cache at once, so it waits for the compiled forms of what
//! can be read, and no longer. Beside other servers the cache may lag behind what those have acknowledged: it is first
//! brought up to the arrival of the request, by a read of the store that many requests share. A client that accepts an
//! older state waits for that only if it would be refused, or if the kind is not known: then it may be because of a
//! role or a definition that another server has just acknowledged.

use crate::access::authz::Verdict;
use crate::shared::follower::compiled::Needs;
use crate::shared::request::query::Query;
use crate::shared::request::request_info::RequestInfo;
use crate::shared::status::Failure;
use crate::state::State;
use std::sync::Arc;
use steersman_kinds::user::User;
use steersman_machinery::Revision;
use tokio::time::Instant;

/// The state by which a request is judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    needs: Needs,
    freshness: Freshness,
    /// The version that the client wants to see at least.
    at_least: Option<Revision>,
    arrived: Instant,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Freshness {
    /// The state of the cache, and the state on arrival before a refusal.
    BeforeRefusal,
    /// The state of the cache. It has everything that was acknowledged.
    Cached,
    /// The state on arrival.
    OnArrival,
}

impl Current {
    pub(super) fn of(info: &RequestInfo, query: &Query, state: &State, arrived: Instant) -> Current {
        let catalog = state.catalog();
        let freshness = match &info.target {
            _ if !state.store.is_shared() => Freshness::Cached,
            Some(target) => {
                let is_served = catalog.find(&target.group, &target.version, &target.resource).is_some();
                let is_read = matches!(info.verb, "get" | "list" | "watch") && target.subresource.is_none();
                let accepts_older = is_read && query.non_empty("resourceVersion").is_some();
                if is_served && accepts_older { Freshness::BeforeRefusal } else { Freshness::OnArrival }
            }
            None if ["/api", "/openapi", "/steersman"].iter().any(|path| info.path.starts_with(path)) => {
                Freshness::OnArrival
            }
            None => Freshness::BeforeRefusal,
        };
        let at_least = match freshness {
            Freshness::BeforeRefusal => query.non_empty("resourceVersion").and_then(|text| Revision::parse(text).ok()),
            Freshness::Cached | Freshness::OnArrival => None,
        };
        Current { needs: Needs::of(info, &catalog), freshness, at_least, arrived }
    }

    /// Waits for the state on arrival, if the request is judged by that at once, or for the version that it names, so that
    /// nobody sees what he lost the permission for before.
    ///
    /// # Errors
    /// 503 if the store cannot be read.
    pub(super) async fn begin(self, state: &State) -> Result<(), Failure> {
        if let Some(revision) = self.at_least {
            // The endpoint answers what comes of a version that is not there yet.
            let _ = state.wait_for(revision).await;
        }
        if self.freshness == Freshness::OnArrival { self.renew(state).await } else { Ok(()) }
    }

    /// Whether the state on arrival may allow what this one does not.
    pub(super) fn may_be_old(self) -> bool {
        self.freshness == Freshness::BeforeRefusal
    }

    /// Waits for the state on arrival.
    ///
    /// # Errors
    /// 503 if the store cannot be read.
    pub(super) async fn renew(self, state: &State) -> Result<(), Failure> {
        state.sync_since(self.arrived).await.map(|_| ())
    }

    /// Judges a request by this state.
    ///
    /// # Errors
    /// The errors of `judge`; 503 if the store cannot be read.
    pub(super) async fn judged<J>(self, state: &State, judge: impl Fn() -> J) -> Result<(Arc<User>, Verdict), Failure>
    where
        J: Future<Output = Result<(Arc<User>, Verdict), Failure>>,
    {
        self.catch_up(state).await;
        let judged = judge().await;
        let is_allowed = judged.as_ref().is_ok_and(|(_, verdict)| verdict.is_allowed());
        if is_allowed || !self.may_be_old() {
            return judged;
        }
        self.renew(state).await?;
        self.catch_up(state).await;
        judge().await
    }

    async fn catch_up(self, state: &State) {
        if !state.compiled.is_behind(self.needs) {
            return;
        }
        // Both arms are cancel-safe: they have no state.
        tokio::select! {
            () = state.compiled.catch_up(self.needs) => {}
            () = state.stopping() => {}
        }
    }
}
