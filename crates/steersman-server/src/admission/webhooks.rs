//! Admission webhooks: programs outside of the server that change or refuse writes, named by MutatingWebhookConfigurations and
//! ValidatingWebhookConfigurations.
//!
//! [`Webhooks`] has those in force, compiled (`hook`) and indexed by resource (`registered`). The plugins `mutating` and `validating`
//! find those that are about a write and call them (`call`): one after the other to change the object, each seeing what those before
//! it made of it, then all at once to judge it. What is sent and what an answer may say is in `request` and `response`, the change of
//! the object in `patch`. Follows apiserver's `admission/plugin/webhook`.
//!
//! The server's own writes ask no webhook: a webhook that is not there must not keep the server from starting, or from renewing
//! its lease.

mod call;
mod hook;
mod mutating;
mod patch;
mod registered;
mod request;
mod response;
mod validating;

pub(super) use self::mutating::Mutating;
pub(crate) use self::registered::{Kind, start};
pub(super) use self::validating::Validating;

use crate::admission::webhooks::registered::Registered;
use crate::catalog::Resource;
use std::fmt;
use steersman_machinery::Revision;

/// The webhooks in force.
#[derive(Default)]
pub(crate) struct Webhooks {
    mutating: Registered,
    validating: Registered,
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
