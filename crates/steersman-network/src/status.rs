//! The status that an outcome makes.

use crate::api::{Network, NetworkStatus};
use crate::outcome::Outcome;
use steersman::conditions::{self, Status};
use steersman::status::Route;

/// The condition that says whether the network can be used.
pub(crate) const READY: &str = "Ready";
/// The condition that says whether the operator is at work on it.
pub(crate) const PROGRESSING: &str = "Progressing";

/// The status of an object after an outcome. What is as it was keeps its times.
pub(crate) fn status(object: &Network, outcome: &Outcome, backend: &str, route: Route) -> NetworkStatus {
    let mut status = object.status.clone().unwrap_or_default();
    status.backend = Some(backend.to_owned());
    // Without a status subresource every status write makes a new generation: naming one would never end.
    let generation = object.metadata.generation.filter(|_| route == Route::Subresource);
    status.observed_generation = generation;
    let conditions = match outcome {
        Outcome::Ready { network, subnet } => {
            status.network_id = Some(network.clone());
            status.subnet_id = Some(subnet.clone());
            [
                (READY, Status::True, "NetworkReady", "the network and its subnet are in Neutron"),
                (PROGRESSING, Status::False, "Done", "nothing is left to do"),
            ]
        }
        Outcome::Stuck(obstacle) => {
            let progressing = if obstacle.is_progressing() { Status::True } else { Status::False };
            [
                (READY, Status::False, obstacle.reason, obstacle.message.as_str()),
                (PROGRESSING, progressing, obstacle.reason, obstacle.message.as_str()),
            ]
        }
    };
    for (kind, state, reason, message) in conditions {
        conditions::set(&mut status.conditions, conditions::condition(kind, state, reason, message, generation));
    }
    status
}

/// Whether the condition `Ready` says something else than before, so that it is worth an Event.
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
    use crate::outcome::{Next, Obstacle};

    fn object() -> Network {
        let mut object = Network::new("a", crate::api::NetworkSpec::default());
        object.metadata.generation = Some(3);
        object
    }

    #[test]
    fn without_a_subresource_no_generation_is_named() {
        let ready = Outcome::Ready { network: "n".to_owned(), subnet: "s".to_owned() };
        let with = status(&object(), &ready, "b", Route::Subresource);
        let without = status(&object(), &ready, "b", Route::Object);
        assert_eq!((with.observed_generation, with.conditions[0].observed_generation), (Some(3), Some(3)));
        assert_eq!((without.observed_generation, without.conditions[0].observed_generation), (None, None));
    }

    #[test]
    fn the_same_again_is_no_news_and_changes_nothing() {
        let stuck = Outcome::Stuck(Obstacle::new("InvalidSpec", "m", Next::Change));
        let mut object = object();
        let first = status(&object, &stuck, "b", Route::Subresource);
        assert!(is_news(None, &first));
        object.status = Some(first.clone());
        let second = status(&object, &stuck, "b", Route::Subresource);
        assert!(first == second && !is_news(Some(&first), &second));
        assert_eq!(second.conditions.iter().map(|one| one.status.as_str()).collect::<Vec<_>>(), ["False", "False"]);
    }
}
