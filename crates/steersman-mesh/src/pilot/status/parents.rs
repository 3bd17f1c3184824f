//! The entries of a route's status: those of others stay as they are.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use steersman::conditions::{self, Status, condition};

use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::http_route::Parent;
use crate::pilot::status::tally::Tally;
use crate::pilot::world::{ACCEPTED, Finding, Holds, PARTIALLY_INVALID, RESOLVED_REFS, RouteVerdict, Verdict};

/// The name under which the pilot writes statuses.
pub(crate) const CONTROLLER: &str = "mesh.steersman.dev/pilot";
/// The condition that says how many proxies have the route.
pub(crate) const PROGRAMMED: &str = "mesh.steersman.dev/Programmed";

/// The most entries that the definition allows.
const PARENTS_MAX: usize = 32;

/// How the entries of a status differ from those that should be there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Difference {
    /// Only in how many proxies there are.
    Count(Vec<Parent>),
    /// In something that somebody may wait for.
    State(Vec<Parent>),
}

/// The pilot's own entries.
pub(crate) fn ours(parents: &[Parent]) -> impl Iterator<Item = &Parent> {
    parents.iter().filter(|parent| parent.controller_name == CONTROLLER)
}

/// The entries that a status should have; `None` if it has them.
pub(crate) fn parents(
    known: &[Parent],
    verdict: Option<&RouteVerdict>,
    count: impl Fn(&Verdict) -> Tally,
) -> Option<Difference> {
    let mut wanted: Vec<Parent> = known.iter().filter(|parent| parent.controller_name != CONTROLLER).cloned().collect();
    for of_parent in verdict.into_iter().flat_map(|verdict| &verdict.parents) {
        let known = ours(known).find(|known| known.parent_ref == of_parent.parent);
        let conditions = known.map(|known| known.conditions.clone()).unwrap_or_default();
        let generation = verdict.and_then(|verdict| verdict.generation);
        wanted.push(Parent {
            conditions: conditions_of(conditions, of_parent, &count(of_parent), generation),
            controller_name: CONTROLLER.to_owned(),
            parent_ref: of_parent.parent.clone(),
        });
    }
    wanted.truncate(PARENTS_MAX);
    let kept = |parents: &[Parent]| -> Vec<Parent> {
        let others = parents.iter().filter(|parent| parent.controller_name != CONTROLLER);
        others.chain(ours(parents)).cloned().collect()
    };
    if kept(known) == wanted {
        return None;
    }
    let uncounted = |mut parents: Vec<Parent>| {
        for condition in parents.iter_mut().flat_map(|parent| &mut parent.conditions) {
            if condition.type_ == PROGRAMMED {
                condition.message.clear();
            }
        }
        parents
    };
    let is_count = uncounted(kept(known)) == uncounted(wanted.clone());
    Some(if is_count { Difference::Count(wanted) } else { Difference::State(wanted) })
}

fn conditions_of(
    mut known: Vec<Condition>,
    verdict: &Verdict,
    tally: &Tally,
    generation: Option<i64>,
) -> Vec<Condition> {
    let found = |type_: &str, finding: &Finding| {
        let status = if finding.holds == Holds::Yes { Status::True } else { Status::False };
        condition(type_, status, finding.reason, &finding.message, generation)
    };
    conditions::set(&mut known, found(ACCEPTED, &verdict.accepted));
    conditions::set(&mut known, found(RESOLVED_REFS, &verdict.resolved));
    match &verdict.partially_invalid {
        Some(finding) => drop(conditions::set(&mut known, found(PARTIALLY_INVALID, finding))),
        None => drop(conditions::remove(&mut known, PARTIALLY_INVALID)),
    }
    if verdict.attachment.ports.is_empty() {
        conditions::remove(&mut known, PROGRAMMED);
    } else {
        let (status, reason, message) = programmed(tally);
        conditions::set(&mut known, condition(PROGRAMMED, status, reason, &message, generation));
    }
    known
}

fn programmed(tally: &Tally) -> (Status, &'static str, String) {
    let Tally { n_proxies, n_in_force, refusal } = tally;
    let count = format!("{n_in_force} of {n_proxies} proxies");
    match refusal {
        Some((pod, error)) => (Status::False, "Rejected", format!("{count}; the proxy of {pod} refuses it: {error}")),
        None if *n_proxies == 0 => {
            (Status::Unknown, "NoProxies", "no proxy is connected that should have it".to_owned())
        }
        None if n_in_force == n_proxies => (Status::True, "Programmed", count),
        None => (Status::False, "Pending", count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pilot::world::World;
    use crate::pilot::world::tests::{http_route, objects, service};

    fn verdict() -> RouteVerdict {
        let rules = "[{backendRefs: [{name: web, port: 80}]}]";
        let world = World::of(&objects(
            &(service("shop", "web", 1, &["http:80"]) + &http_route("shop", "r", "name: web", rules)),
        ));
        world.verdicts.into_values().next().unwrap()
    }

    fn counted(n_in_force: usize, n_proxies: usize) -> impl Fn(&Verdict) -> Tally {
        move |_| Tally { n_proxies, n_in_force, refusal: None }
    }

    fn state(difference: Option<Difference>) -> Vec<Parent> {
        let Some(Difference::State(parents)) = difference else { panic!("{difference:?}") };
        parents
    }

    #[test]
    fn entries_of_others_stay_and_what_is_there_is_not_written() {
        let other = Parent { controller_name: "example.com/other".to_owned(), ..Parent::default() };
        let verdict = verdict();
        let written = state(parents(std::slice::from_ref(&other), Some(&verdict), counted(1, 1)));
        assert_eq!(written[0], other);
        assert_eq!(written[1].conditions.len(), 3);
        assert_eq!(parents(&written, Some(&verdict), counted(1, 1)), None);
        assert_eq!(state(parents(&written, None, counted(0, 0))), [other]);
    }

    #[test]
    fn how_many_proxies_there_are_is_not_urgent_but_whether_all_have_it_is() {
        let verdict = verdict();
        let written = state(parents(&[], Some(&verdict), counted(1, 3)));
        assert!(matches!(parents(&written, Some(&verdict), counted(2, 3)), Some(Difference::Count(_))));
        let all = state(parents(&written, Some(&verdict), counted(3, 3)));
        assert!(matches!(parents(&all, Some(&verdict), counted(4, 4)), Some(Difference::Count(_))));
        let message =
            |parents: &[Parent]| conditions::find(&parents[0].conditions, PROGRAMMED).unwrap().message.clone();
        assert_eq!([message(&written), message(&all)], ["1 of 3 proxies", "3 of 3 proxies"]);
    }

    #[test]
    fn a_refusal_names_the_proxy_and_its_words() {
        let refused = |_: &Verdict| Tally {
            n_proxies: 50,
            n_in_force: 47,
            refusal: Some(("shop/a".to_owned(), "bad regex".to_owned())),
        };
        let written = state(parents(&[], Some(&verdict()), refused));
        let condition = conditions::find(&written[0].conditions, PROGRAMMED).unwrap();
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "Rejected"));
        assert_eq!(condition.message, "47 of 50 proxies; the proxy of shop/a refuses it: bad regex");
    }
}
