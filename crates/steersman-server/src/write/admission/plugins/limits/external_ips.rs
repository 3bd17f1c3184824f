//! `DenyServiceExternalIPs`: refuses new external addresses of a Service, which could intercept the traffic of others.

use crate::access::pod_references::items;
use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, forbidden};
use futures::future::{self, BoxFuture};
use steersman_machinery::Value;

#[derive(Debug)]
pub(crate) struct ExternalIps;

impl Plugin for ExternalIps {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        let is_write = phase == Phase::Validate && action != Action::Delete && attributes.subresource.is_none();
        is_write && attributes.is_about("", "services")
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let refused = new.filter(|service| has_new(service, review.old));
        let refused = refused
            .map(|service| forbidden(review, Some(service), "Use of external IPs is denied by admission control"));
        Box::pin(future::ready(refused.map_or(Ok(()), Err)))
    }
}

/// Whether a service has a new external address.
fn has_new(service: &Value, old: Option<&Value>) -> bool {
    const PATH: [&str; 2] = ["spec", "externalIPs"];
    let had = |address: &Value| old.into_iter().flat_map(|old| items(old, &PATH)).any(|other| other == address);
    items(service, &PATH).any(|address| !had(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_can_be_kept_and_given_up() {
        let service = |addresses: Value| json!({"spec": {"externalIPs": addresses}});
        let both = service(json!(["192.0.2.1", "192.0.2.2"]));
        let one = service(json!(["192.0.2.2"]));
        assert!(has_new(&one, None) && has_new(&both, Some(&one)));
        assert!(!has_new(&one, Some(&both)) && !has_new(&json!({"spec": {}}), None));
    }
}
