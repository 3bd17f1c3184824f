//! Makes the status of an object from an outcome.

use crate::api::{Network, NetworkStatus};
use crate::reconcile::outcome::Outcome;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use steersman::conditions::{self, Status};
use steersman::status::Route;

/// The condition that says whether the network can be used.
pub(crate) const READY: &str = "Ready";
/// The condition that says whether the operator is at work on it.
pub(crate) const PROGRESSING: &str = "Progressing";

/// The parts of a status besides the outcome.
pub(crate) struct StatusContext<'a> {
    /// The name of the Neutron that was observed.
    pub(crate) backend: &'a str,
    /// The project of the credentials, where it is known.
    pub(crate) project: Option<&'a str>,
    /// The fingerprint of the spec.
    pub(crate) fingerprint: &'a str,
    pub(crate) route: Route,
}

/// The status of an object after an outcome. Unchanged conditions keep their transition times.
pub(crate) fn status(object: &Network, outcome: &Outcome, status_context: &StatusContext<'_>) -> NetworkStatus {
    let mut status = object.status.clone().unwrap_or_default();
    // The place of the network is recorded together with its id: if the network is later not found, the record is the
    // only information.
    if let Some(network) = outcome.network {
        status.network_id = Some(network.to_string());
        status.backend = Some(status_context.backend.to_owned());
        status.project_id = status_context.project.map(str::to_owned);
    }
    if let Some(subnet) = outcome.subnet {
        status.subnet_id = Some(subnet.to_string());
    }
    if status.backend.is_none() {
        status.backend = Some(status_context.backend.to_owned());
    }
    if outcome.subnet.is_some() {
        status.applied_spec = Some(status_context.fingerprint.to_owned());
    }
    // Without a status subresource every status write makes a new generation: writing it down would never end.
    let generation = object.metadata.generation.filter(|_| status_context.route == Route::Subresource);
    status.observed_generation = generation;
    let conditions = match &outcome.ready {
        Ok(()) => [
            (READY, Status::True, "NetworkReady", "the network and its subnet are in Neutron"),
            (PROGRESSING, Status::False, "Done", "nothing is left to do"),
        ],
        Err(not_ready) => {
            let progressing = if not_ready.is_progressing() { Status::True } else { Status::False };
            [
                (READY, Status::False, not_ready.reason, not_ready.message.as_str()),
                (PROGRESSING, progressing, not_ready.reason, not_ready.message.as_str()),
            ]
        }
    };
    for (kind, state, reason, message) in conditions {
        conditions::set(&mut status.conditions, conditions::condition(kind, state, reason, message, generation));
    }
    status
}

/// The condition `Ready` of an object.
pub(crate) fn ready(status: Option<&NetworkStatus>) -> Option<&Condition> {
    conditions::find(&status?.conditions, READY)
}

/// Whether the condition `Ready` has changed, so that it is worth an Event.
pub(crate) fn is_news(before: Option<&NetworkStatus>, after: &NetworkStatus) -> bool {
    let ready = |status: &NetworkStatus| {
        conditions::find(&status.conditions, READY)
            .map(|ready| (ready.status.clone(), ready.reason.clone(), ready.message.clone()))
    };
    before.and_then(ready) != ready(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::outcome::{NotReady, Retry};

    const NETWORK: &str = "00000000-0000-4000-8000-000000000001";
    const SUBNET: &str = "00000000-0000-4000-8000-000000000002";

    fn object() -> Network {
        let mut object = Network::new("a", crate::api::NetworkSpec::default());
        object.metadata.generation = Some(3);
        object
    }

    fn at(route: Route) -> StatusContext<'static> {
        StatusContext { backend: "b", project: Some("p"), fingerprint: "f", route }
    }

    fn ready_outcome() -> Outcome {
        Outcome { ready: Ok(()), network: NETWORK.parse().ok(), subnet: SUBNET.parse().ok() }
    }

    #[test]
    fn without_a_subresource_no_generation_is_named() {
        let with = status(&object(), &ready_outcome(), &at(Route::Subresource));
        let without = status(&object(), &ready_outcome(), &at(Route::Object));
        assert_eq!((with.observed_generation, with.conditions[0].observed_generation), (Some(3), Some(3)));
        assert_eq!((without.observed_generation, without.conditions[0].observed_generation), (None, None));
    }

    #[test]
    fn the_same_again_is_no_news_and_changes_nothing() {
        let stuck = Outcome::stuck(NotReady::new("InvalidSpec", "m", Retry::OnChange));
        let mut object = object();
        let first = status(&object, &stuck, &at(Route::Subresource));
        assert!(is_news(None, &first));
        object.status = Some(first.clone());
        let second = status(&object, &stuck, &at(Route::Subresource));
        assert!(first == second && !is_news(Some(&first), &second));
        assert_eq!(second.conditions.iter().map(|one| one.status.as_str()).collect::<Vec<_>>(), ["False", "False"]);
    }

    #[test]
    fn where_a_network_is_stays_recorded_while_it_cannot_be_found() {
        let mut object = object();
        object.status = Some(status(&object, &ready_outcome(), &at(Route::Subresource)));
        let elsewhere = StatusContext { backend: "other", project: Some("q"), ..at(Route::Subresource) };
        let stuck = Outcome::stuck(NotReady::new("BackendChanged", "m", Retry::OnChange));
        let after = status(&object, &stuck, &elsewhere);
        assert_eq!((after.network_id.as_deref(), after.backend.as_deref()), (Some(NETWORK), Some("b")));
        assert_eq!((after.project_id.as_deref(), after.applied_spec.as_deref()), (Some("p"), Some("f")));
    }
}
