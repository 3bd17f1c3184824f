//! Policies of admission: the ValidatingAdmissionPolicies, the MutatingAdmissionPolicies and their bindings in the
//! store, compiled once for each change and indexed by the resources that they match.
//!
//! Tasks of the server follow the four resources (`follower`). A write of one of them is answered only once it is in
//! effect. A policy without a binding does nothing; a binding of a policy that does not exist waits for it. The plugins
//! that evaluate them are outside of this module (`validating_policy`, `mutating_policy`), since they need the state of
//! the server, which contains the policies.

pub(crate) mod definition;
pub(crate) mod dispatch;
pub(crate) mod follower;
pub(crate) mod mutating;
mod params;
pub(crate) mod patch;
mod registered;
pub(crate) mod type_checking;
pub(crate) mod validating;

use crate::shared::follower::{Progress, Reached};
use crate::write::admission::dynamic::policy::mutating::Mutating;
use crate::write::admission::dynamic::policy::registered::{Part, Registered};
use crate::write::admission::dynamic::policy::validating::Validating;
use steersman_kinds::catalog::Resource;
use steersman_machinery::{GroupResource, Revision};
use tokio::sync::watch;

const GROUP: &str = "admissionregistration.k8s.io";

/// The policies and bindings in effect.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    mutating: Registered<Mutating>,
    validating: Registered<Validating>,
}

impl Policies {
    pub(in crate::write::admission) fn mutating(&self) -> &Registered<Mutating> {
        &self.mutating
    }

    pub(in crate::write::admission) fn validating(&self) -> &Registered<Validating> {
        &self.validating
    }

    /// Notifies of changes of validating policies.
    pub(crate) fn changes(&self) -> watch::Receiver<Reached> {
        self.progress(Part::ValidatingPolicies).changes()
    }

    /// If a resource is one of the four, waits until a write at a revision is in effect. False if it never will be.
    pub(crate) async fn wait_for(&self, resource: &Resource, revision: Revision) -> bool {
        if *resource.group != *GROUP {
            return true;
        }
        match Part::find(&resource.plural) {
            Some(part) => self.progress(part).wait_for(revision).await,
            None => true,
        }
    }

    /// The four resources, with the progress of following each.
    pub(crate) fn followed(&self) -> [(GroupResource, &Progress); 4] {
        Part::ALL.map(|part| (GroupResource::new(GROUP, part.plural()), self.progress(part)))
    }

    fn progress(&self, part: Part) -> &Progress {
        if part.is_mutating() { self.mutating.progress(part) } else { self.validating.progress(part) }
    }
}
