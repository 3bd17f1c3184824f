//! Admission webhooks: programs outside of the server that change or refuse writes, named by MutatingWebhookConfigurations and
//! ValidatingWebhookConfigurations.
//!
//! [`Webhooks`] has those in force, compiled (`hook`) and indexed by resource (`registered`). They are called by the plugins
//! (`webhook_plugins`), which need the state of the server; nothing here does, because the state has it.

pub(crate) mod hook;
pub(crate) mod registered;

pub(crate) use self::registered::{Kind, start};

use crate::admission::webhooks::registered::Registered;
use steersman_kinds::catalog::Resource;
use crate::follower::Progress;
use std::fmt;
use steersman_machinery::{GroupResource, Revision};

/// The webhooks in force.
#[derive(Default)]
pub(crate) struct Webhooks {
    pub(super) mutating: Registered,
    pub(super) validating: Registered,
}

impl Webhooks {
    /// If a resource is one of those that name webhooks, waits until what was written at a revision is in force. False if it never
    /// will be.
    pub(crate) async fn wait_for(&self, resource: &Resource, revision: Revision) -> bool {
        match Kind::find(&resource.group, &resource.plural) {
            Some(kind) => self.of(kind).wait_for(revision).await,
            None => true,
        }
    }

    /// The resources that name webhooks, and how far each has been followed.
    pub(crate) fn progress(&self) -> [(GroupResource, &Progress); 2] {
        [Kind::Mutating, Kind::Validating].map(|kind| (kind.storage(), self.of(kind).progress()))
    }

    fn of(&self, kind: Kind) -> &Registered {
        match kind {
            Kind::Mutating => &self.mutating,
            Kind::Validating => &self.validating,
        }
    }
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhooks").finish_non_exhaustive()
    }
}
