//! The pilot's knowledge of proxies and routes, for people: `steersman mesh proxies` and `routes` read it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use steersman_xds::{Kind, Variant};

use crate::pilot::proxies::{Proxies, Standing};
use crate::pilot::status::{CONTROLLER, Tallies};
use crate::pilot::world::{Finding, Holds};

/// A proxy that is connected.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyState {
    /// The namespace of its Pod.
    pub namespace: String,
    /// Its Pod.
    pub pod: String,
    /// The id that it gives itself; empty as long as it has said nothing.
    pub node: String,
    /// `delta` or `state of the world`.
    pub variant: Option<String>,
    /// Whether it has everything that it should have.
    pub settled: bool,
    /// The number of resources that it should have, by type.
    pub wanted: BTreeMap<String, usize>,
    /// The number of resources that it does not have yet.
    pub n_pending: usize,
    /// The first hundred of these, as `TYPE NAME`.
    pub pending: Vec<String>,
    /// The resources that it refuses.
    pub rejections: Vec<RejectionState>,
    /// The resources that it has although their clusters may not be ready.
    pub hurried: Vec<String>,
}

/// A resource that a proxy refuses.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RejectionState {
    /// Its type and name.
    pub resource: String,
    /// The objects that it was made from.
    pub source: Option<String>,
    /// The proxy's words.
    pub error: String,
}

/// A route at one of its parents.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteState {
    /// `HTTPRoute` or `GRPCRoute`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The Service, as `NAMESPACE/NAME`.
    pub parent: String,
    /// The ports where it counts.
    pub ports: Vec<u16>,
    /// The namespace of its clients; none for all.
    pub clients: Option<String>,
    /// The reason and message of `Accepted`, if that is false.
    pub problem: Option<String>,
    /// The same of `ResolvedRefs`.
    pub references: Option<String>,
    /// The proxies that should have it.
    pub proxies: usize,
    /// The proxies that have it.
    pub in_force: usize,
    /// The first that refuses it, with its words.
    pub refusal: Option<String>,
    /// The version of its table at each port.
    pub versions: BTreeMap<u16, String>,
}

/// All that the pilot knows.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct State {
    /// The name under which it writes statuses.
    pub controller: String,
    /// Whether it knows what proxies should have.
    pub ready: bool,
    /// The proxies that are connected to this replica.
    pub proxies: Vec<ProxyState>,
    /// The routes.
    pub routes: Vec<RouteState>,
}

/// The most names of a kind that are listed for a proxy.
const NAMES_MAX: usize = 100;

impl State {
    /// The state as it is now.
    pub fn of(proxies: &Proxies) -> State {
        let (snapshot, standings) = proxies.state();
        let mut state = State { controller: CONTROLLER.to_owned(), ready: snapshot.is_some(), ..State::default() };
        state.proxies = standings.iter().map(proxy).collect();
        let Some(snapshot) = snapshot else { return state };
        let tallies = Tallies::of(&standings);
        for (route, verdict) in &snapshot.world.verdicts {
            for verdict in &verdict.parents {
                let attachment = &verdict.attachment;
                let tally = tallies.count(attachment, &snapshot);
                let version = |port: &crate::pilot::world::PortName| {
                    let resource = snapshot.routes(port, attachment.consumer.as_deref())?;
                    Some((port.port, resource.version().to_string()))
                };
                let namespace = verdict.parent.namespace.as_ref().unwrap_or(&route.namespace);
                state.routes.push(RouteState {
                    kind: route.kind.as_str().to_owned(),
                    namespace: route.namespace.clone(),
                    name: route.name.clone(),
                    parent: format!("{namespace}/{}", verdict.parent.name),
                    ports: attachment.ports.iter().map(|port| port.port).collect(),
                    clients: attachment.consumer.clone(),
                    problem: wrong(&verdict.accepted),
                    references: wrong(&verdict.resolved),
                    proxies: tally.n_proxies,
                    in_force: tally.n_in_force,
                    refusal: tally.refusal.map(|(pod, error)| format!("{pod}: {error}")),
                    versions: attachment.ports.iter().filter_map(version).collect(),
                });
            }
        }
        state
    }
}

fn wrong(finding: &Finding) -> Option<String> {
    (finding.holds == Holds::No).then(|| format!("{}: {}", finding.reason, finding.message))
}

fn proxy(standing: &Standing) -> ProxyState {
    let report = standing.report.as_ref();
    let settled = report.and_then(|report| report.settled.as_ref());
    let mut pending = Vec::new();
    let mut wanted = BTreeMap::new();
    for kind in Kind::ALL {
        let set = standing.wanted.set(kind);
        if !set.is_empty() {
            wanted.insert(kind.to_string(), set.len());
        }
        for resource in set.iter() {
            let known = settled.and_then(|view| view.get(kind, resource.name()));
            if known.is_none_or(|known| known.version() != resource.version()) {
                pending.push(format!("{kind} {}", resource.name()));
            }
        }
    }
    let n_pending = pending.len();
    pending.truncate(NAMES_MAX);
    let rejections = report.map(|report| report.rejections.as_ref()).unwrap_or_default();
    let hurried = report.map(|report| report.hurried.as_ref()).unwrap_or_default();
    ProxyState {
        namespace: standing.pod.key.namespace().unwrap_or_default().to_owned(),
        pod: standing.pod.key.name().to_owned(),
        node: report.map(|report| report.subscriber.node.id.clone()).unwrap_or_default(),
        variant: report.map(|report| match report.variant {
            Variant::Delta => "delta".to_owned(),
            Variant::StateOfTheWorld => "state of the world".to_owned(),
        }),
        settled: standing.is_settled(),
        wanted,
        n_pending,
        pending,
        rejections: rejections
            .iter()
            .take(NAMES_MAX)
            .map(|one| RejectionState {
                resource: format!("{} {}", one.resource.kind(), one.resource.name()),
                source: one.resource.source().map(|source| source.to_string()),
                error: one.error.to_string(),
            })
            .collect(),
        hurried: hurried
            .iter()
            .take(NAMES_MAX)
            .map(|one| format!("{} {}", one.resource.kind(), one.resource.name()))
            .collect(),
    }
}
