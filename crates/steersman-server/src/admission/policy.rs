//! Policies of admission: what the ValidatingAdmissionPolicies, the MutatingAdmissionPolicies and their bindings in the store say,
//! compiled once for each change and found by the resource of a write.
//!
//! Tasks of the server follow the four resources (`follower`). Writing one of them waits until it is in force. A policy without a
//! binding does nothing; a binding of a policy that does not exist waits for it.

mod definition;
mod dispatch;
pub(crate) mod follower;
mod mutating;
mod params;
mod patch;
mod registered;
pub(crate) mod type_checking;
mod validating;

pub(super) use self::mutating::MutatingAdmissionPolicy;
pub(super) use self::validating::ValidatingAdmissionPolicy;

use crate::admission::policy::mutating::Mutating;
use crate::admission::policy::registered::{Part, Progress, Registered};
use crate::admission::policy::validating::Validating;
use crate::catalog::Resource;
use crate::status::Failure;
use steersman_machinery::Revision;
use tokio::sync::watch;

const GROUP: &str = "admissionregistration.k8s.io";

/// The policies and bindings in force.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    mutating: Registered<Mutating>,
    validating: Registered<Validating>,
}

impl Policies {
    /// Whether a resource is one of the four.
    pub(crate) fn has(resource: &Resource) -> bool {
        *resource.group == *GROUP && Part::find(&resource.plural).is_some()
    }

    /// Notified when a policy that validates has changed.
    pub(crate) fn changes(&self) -> watch::Receiver<Progress> {
        self.validating.policies()
    }

    /// Waits until what was written of one of the four at a revision is in force.
    ///
    /// # Errors
    /// When it never will be.
    pub(crate) async fn wait_for(&self, plural: &str, revision: Revision) -> Result<(), Failure> {
        let reached = match Part::find(plural) {
            Some(part) if part.is_mutating() => self.mutating.wait_for(part, revision).await,
            Some(part) => self.validating.wait_for(part, revision).await,
            None => return Ok(()),
        };
        match reached {
            true => Ok(()),
            false => Err(Failure::internal(format!(
                "the write was stored, but changes of {plural} no longer come into force"
            ))),
        }
    }
}
