//! Admission webhooks: programs outside of the server that change or refuse writes, registered by
//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations.
//!
//! [`Webhooks`] holds the registered ones, compiled (`hook`) and indexed by resource (`registered`). The plugins call
//! them (`webhook_plugins`) and need the state of the server; nothing here does, because the state contains this.

pub(crate) mod hook;
pub(crate) mod registered;

pub(crate) use self::registered::{Kind, start};

use crate::shared::follower::Progress;
use crate::write::admission::dynamic::webhooks::registered::Registered;
use std::fmt;
use steersman_kinds::catalog::Resource;
use steersman_machinery::{GroupResource, Revision};

/// The registered webhooks.
#[derive(Default)]
pub(crate) struct Webhooks {
    pub(crate) mutating: Registered,
    pub(crate) validating: Registered,
}

impl Webhooks {
    /// If a resource is one of the webhook configurations, waits until a write at a revision is in effect. False if it
    /// never will be.
    pub(crate) async fn wait_for(&self, resource: &Resource, revision: Revision) -> bool {
        match Kind::find(&resource.group, &resource.plural) {
            Some(kind) => self.of(kind).wait_for(revision).await,
            None => true,
        }
    }

    /// The resources of webhook configurations, with the progress of following each.
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
