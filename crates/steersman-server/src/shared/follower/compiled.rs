//! Keeps requests from being decided on compiled forms that are older than what clients can read.
//!
//! Once a client has read a role, a policy, a webhook, a definition or a FlowSchema, by a GET, a LIST or a WATCH, it
//! may rely on it, whoever wrote it: a request first waits until the compiled forms that it depends on have every
//! change that could be read when it arrived. Reads are answered from the store's cache alone, which publishes the
//! newest change of each resource ([`Newest`]). While nothing changes, a request costs a comparison of two numbers for
//! each resource.
//!
//! Writers wait for their own changes ([`crate::state::State::written`]).

use crate::shared::follower::Progress;
use crate::shared::request::request_info::RequestInfo;
use steersman_kinds::catalog::Catalog;
use steersman_machinery::GroupResource;
use steersman_storage::{Newest, Store};

/// The requests that depend on the compiled form of a resource.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Dependents {
    /// Requests that pass admission.
    Admitted,
    All,
    /// Requests for custom resources, and for discovery and OpenAPI.
    OnDefinitions,
    /// Requests for Services, and for the resources of which their addresses are.
    OnServices,
}

/// The resources that have a compiled form.
#[derive(Debug, Default)]
pub(crate) struct Compiled(Vec<Part>);

#[derive(Debug)]
struct Part {
    dependents: Dependents,
    newest: Newest,
    progress: Progress,
}

/// The dependencies that a request has beside those of every request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Needs {
    is_admitted: bool,
    is_on_definitions: bool,
    is_on_services: bool,
}

impl Needs {
    pub(crate) fn of(info: &RequestInfo, catalog: &Catalog) -> Needs {
        let Some(target) = &info.target else {
            return Needs { is_admitted: false, is_on_definitions: true, is_on_services: false };
        };
        let served = catalog.find(&target.group, &target.version, &target.resource);
        Needs {
            // A connection to a Pod passes admission whatever its method is.
            is_admitted: !matches!(info.verb, "get" | "list" | "watch") || target.subresource.is_some(),
            is_on_definitions: served.is_none_or(|served| served.resource.is_custom()),
            is_on_services: matches!(
                (&*target.group, &*target.resource),
                ("", "services") | ("networking.k8s.io", "ipaddresses" | "servicecidrs")
            ),
        }
    }

    fn has(self, dependents: Dependents) -> bool {
        match dependents {
            Dependents::Admitted => self.is_admitted,
            Dependents::All => true,
            Dependents::OnDefinitions => self.is_on_definitions,
            Dependents::OnServices => self.is_on_services,
        }
    }
}

impl Compiled {
    /// Adds a resource. The progress is that of its follower.
    pub(crate) fn add(&mut self, store: &Store, resource: &GroupResource, dependents: Dependents, progress: &Progress) {
        self.0.push(Part { dependents, newest: store.newest(resource), progress: progress.clone() });
    }

    /// Whether a change can be read that is not in force yet.
    pub(crate) fn is_behind(&self, needs: Needs) -> bool {
        self.behind(needs).next().is_some()
    }

    /// Waits until every change that can be read now is in force. Changes that will not come into force, because the
    /// server stops, are not waited for.
    pub(crate) async fn catch_up(&self, needs: Needs) {
        for part in self.behind(needs) {
            part.progress.wait_for(part.newest.revision()).await;
        }
    }

    fn behind(&self, needs: Needs) -> impl Iterator<Item = &Part> {
        let parts = self.0.iter().filter(move |part| needs.has(part.dependents));
        parts.filter(|part| !part.progress.has_reached(part.newest.revision()))
    }
}
