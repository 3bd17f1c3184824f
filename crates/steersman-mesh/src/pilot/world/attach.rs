//! Attaches routes to the ports of Services, and says of each route what became of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::pilot::gateway_api::gateway_networking_k8s_io::v1::http_route::ParentRef;
use crate::pilot::world::draft::{Draft, DraftRule, Effect, Rank};
use crate::pilot::world::names::{PortName, RouteKind, RouteName, ServiceName};
use crate::pilot::world::references::Resolver;
use crate::pilot::world::route::{Action, Entry, Match, Mirror, Rule, Table, Target};
use crate::pilot::world::service::Address;
use crate::pilot::world::verdict::{
    ACCEPTED, Attachment, CONFLICTED, Finding, NO_MATCHING_PARENT, Problem, RESOLVED_REFS, RouteVerdict,
    UNSUPPORTED_VALUE, Verdict,
};

/// The most problems that a message names.
const PROBLEMS_SHOWN_MAX: usize = 3;

/// The tables of a port.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tables {
    /// For all clients without a table of their own.
    pub(crate) producer: Option<Table>,
    /// For the clients of a namespace.
    pub(crate) consumers: BTreeMap<String, Table>,
}

/// The result: tables and verdicts.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    pub(crate) tables: BTreeMap<PortName, Tables>,
    /// For each route with a Service among its parents.
    pub(crate) verdicts: BTreeMap<RouteName, RouteVerdict>,
}

/// The clients for which a route counts: all, or those of a namespace.
type Consumer = Option<String>;

/// A parent of a route that is a Service.
struct Claim<'a> {
    draft: &'a Draft,
    parent: &'a ParentRef,
    service: ServiceName,
    consumer: Consumer,
    /// The ports, unless the route cannot be attached.
    ports: Result<Vec<PortName>, Finding>,
}

pub(crate) fn attach(drafts: &[Draft], resolver: Resolver<'_>) -> Attached {
    let mut claims: Vec<Claim<'_>> = Vec::new();
    for draft in drafts {
        claims.extend(draft.parents.iter().filter_map(|parent| claim(draft, parent, resolver)));
    }
    let grpc = claimed_by_grpc(&claims);
    let mut attached = Attached::default();
    let mut entries: BTreeMap<(PortName, Consumer), Vec<(Order<'_>, Entry)>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for claim in &claims {
        let verdicts = attached.verdicts.entry(claim.draft.name.clone()).or_default();
        let (rules, problems) = rules(claim.draft, &claim.service, resolver);
        let ports = admitted(claim, &grpc);
        for port in ports.iter().flatten() {
            let place = (port.clone(), claim.consumer.clone());
            // Two parents may name the same port.
            if seen.insert((place.clone(), &claim.draft.name)) {
                entries.entry(place).or_default().extend(ordered(claim.draft, &rules));
            }
        }
        verdicts.generation = claim.draft.generation;
        verdicts.parents.push(verdict(claim, ports, &problems));
    }
    for ((port, consumer), mut entries) in entries {
        entries.sort_by(|one, two| one.0.cmp(&two.0));
        let table = Table::Rules(entries.into_iter().map(|(_, entry)| entry).collect());
        let tables = attached.tables.entry(port).or_default();
        match consumer {
            None => tables.producer = Some(table),
            Some(namespace) => drop(tables.consumers.insert(namespace, table)),
        }
    }
    attached
}

/// The claim that `parent` of `draft` makes; `None` if it is no Service, which is no business of the mesh.
fn claim<'a>(draft: &'a Draft, parent: &'a ParentRef, resolver: Resolver<'_>) -> Option<Claim<'a>> {
    if parent.group.as_deref() != Some("") || parent.kind.as_deref() != Some("Service") {
        return None;
    }
    let namespace = parent.namespace.as_deref().unwrap_or(&draft.name.namespace);
    let service = ServiceName::new(namespace, &parent.name);
    let consumer = (namespace != draft.name.namespace).then(|| draft.name.namespace.clone());
    let ports = invalid(draft).map_or_else(|| ports(parent, &service, resolver), Err);
    Some(Claim { draft, parent, service, consumer, ports })
}

/// Why a route cannot be attached at all: none of its rules can be carried out.
fn invalid(draft: &Draft) -> Option<Finding> {
    let problems: Vec<&Problem> = draft.rules.iter().filter_map(problem).collect();
    if problems.is_empty() || problems.len() < draft.rules.len() {
        return None;
    }
    let messages = problems.iter().map(|problem| problem.message.clone()).collect();
    Some(Finding::no(problems[0].reason, listed(messages)))
}

fn problem(rule: &DraftRule) -> Option<&Problem> {
    rule.matches.as_ref().err().or(rule.effect.as_ref().err())
}

/// The ports of a Service that a parent of a route means.
fn ports(parent: &ParentRef, name: &ServiceName, resolver: Resolver<'_>) -> Result<Vec<PortName>, Finding> {
    let no = |message: String| Err(Finding::no(NO_MATCHING_PARENT, message));
    let Some(service) = resolver.services.get(name) else {
        return no(format!("Service {name} does not exist"));
    };
    match &service.address {
        Address::Cluster(_) => {}
        Address::External => return no(format!("Service {name} is of the type ExternalName and has no cluster IP")),
        Address::None => return no(format!("Service {name} is headless: routes apply to requests to a cluster IP")),
    }
    let section = parent.section_name.as_deref().filter(|section| !section.is_empty());
    let meant: Vec<_> = service
        .ports
        .iter()
        .filter(|port| parent.port.is_none_or(|wanted| wanted == i32::from(port.port)))
        .filter(|port| section.is_none_or(|section| port.name.as_deref() == Some(section)))
        .collect();
    if meant.is_empty() {
        let which = match (parent.port, section) {
            (Some(port), Some(section)) => format!("no TCP port {port} of the name {section}"),
            (Some(port), None) => format!("no TCP port {port}"),
            (None, Some(section)) => format!("no TCP port of the name {section}"),
            (None, None) => "no TCP port".to_owned(),
        };
        return no(format!("Service {name} has {which}"));
    }
    let routable: Vec<PortName> =
        meant.iter().filter(|port| port.protocol.is_routable()).map(|port| name.port(port.port)).collect();
    if routable.is_empty() {
        let described: Vec<String> =
            meant.iter().map(|port| format!("port {} as {}", port.port, port.protocol.as_str())).collect();
        return no(format!("Service {name} declares {}: routes need HTTP", described.join(", ")));
    }
    Ok(routable)
}

/// The places at which GRPCRoutes count, so that HTTPRoutes do not.
fn claimed_by_grpc(claims: &[Claim<'_>]) -> BTreeSet<(PortName, Consumer)> {
    let grpc = claims.iter().filter(|claim| claim.draft.name.kind == RouteKind::Grpc);
    let places = grpc.flat_map(|claim| claim.ports.iter().flatten().map(|port| (port.clone(), claim.consumer.clone())));
    places.collect()
}

/// The ports at which a claim is admitted beside those of other kinds.
fn admitted(claim: &Claim<'_>, grpc: &BTreeSet<(PortName, Consumer)>) -> Result<Vec<PortName>, Finding> {
    let ports = claim.ports.clone()?;
    if claim.draft.name.kind == RouteKind::Grpc {
        return Ok(ports);
    }
    let kept: Vec<PortName> =
        ports.iter().filter(|port| !grpc.contains(&((*port).clone(), claim.consumer.clone()))).cloned().collect();
    if kept.is_empty() {
        let message = format!("a GRPCRoute is attached to the same ports of Service {}", claim.service);
        return Err(Finding::no(CONFLICTED, message));
    }
    Ok(kept)
}

/// The order of two matches at one port. The Gateway API decides by age, then by name, then by position.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Order<'a> {
    rank: Rank,
    /// A route that was not created yet is younger than all others.
    is_new: u8,
    created: Option<jiff::Timestamp>,
    route: &'a RouteName,
    rule: usize,
    matching: usize,
}

fn ordered<'a>(draft: &'a Draft, rules: &[Option<Arc<Rule>>]) -> Vec<(Order<'a>, Entry)> {
    let mut entries = Vec::new();
    for (rule, (made, written)) in rules.iter().zip(&draft.rules).enumerate() {
        let (Some(made), Ok(matches)) = (made, &written.matches) else { continue };
        for (position, (matching, rank)) in matches.iter().enumerate() {
            let order = Order {
                rank: *rank,
                is_new: u8::from(draft.created.is_none()),
                created: draft.created,
                route: &draft.name,
                rule,
                matching: position,
            };
            entries.push((order, Entry { matching: Match::clone(matching), rule: Arc::clone(made) }));
        }
    }
    entries
}

/// The rules of a route at a Service, none where one is dropped, and the references that lead nowhere.
fn rules(draft: &Draft, parent: &ServiceName, resolver: Resolver<'_>) -> (Vec<Option<Arc<Rule>>>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut rules = Vec::new();
    for (index, written) in draft.rules.iter().enumerate() {
        if written.matches.is_err() {
            rules.push(None);
            continue;
        }
        let failing = Effect::default();
        let effect = written.effect.as_ref().unwrap_or(&failing);
        let mut resolve = |reference| match resolver.resolve(reference, &draft.name, parent) {
            Ok(port) => Some(port),
            Err(problem) => {
                problems.push(problem);
                None
            }
        };
        let targets: Vec<Target> = effect
            .backends
            .iter()
            .map(|backend| Target {
                backend: resolve(&backend.to),
                weight: backend.weight,
                request: backend.filters.request.clone(),
                response: backend.filters.response.clone(),
                hostname: backend.filters.rewrite.as_ref().and_then(|rewrite| rewrite.hostname.clone()),
            })
            .collect();
        let mirrors = effect.filters.mirrors.iter().filter_map(|mirror| {
            Some(Mirror { backend: resolve(&mirror.to)?, parts_per_million: mirror.parts_per_million })
        });
        let mirrors = mirrors.collect();
        let is_served = |target: &Target| target.weight > 0 && target.backend.is_some();
        let action = match (&effect.filters.redirect, targets.iter().any(is_served)) {
            (Some(redirect), _) => Action::Redirect(redirect.clone()),
            (None, true) => Action::Forward(targets),
            (None, false) => Action::Fail(error_status(draft.name.kind)),
        };
        rules.push(Some(Arc::new(Rule {
            route: draft.name.clone(),
            index,
            name: written.name.clone(),
            action,
            request: effect.filters.request.clone(),
            response: effect.filters.response.clone(),
            rewrite: effect.filters.rewrite.clone(),
            mirrors,
            timeout: effect.timeout,
            retry: effect.retry.clone(),
        })));
    }
    (rules, problems)
}

/// The status for requests that have nowhere to go. gRPC wants `UNAVAILABLE`, which Envoy makes of 503.
pub(crate) fn error_status(kind: RouteKind) -> u16 {
    match kind {
        RouteKind::Grpc => 503,
        RouteKind::Http => 500,
    }
}

fn verdict(claim: &Claim<'_>, ports: Result<Vec<PortName>, Finding>, problems: &[Problem]) -> Verdict {
    let resolved = match problems {
        [] => Finding::yes(RESOLVED_REFS, "all references lead to ports of Services"),
        [first, ..] => Finding::no(first.reason, listed(problems.iter().map(|one| one.message.clone()).collect())),
    };
    let (accepted, ports) = match ports {
        Ok(ports) => {
            let numbers: Vec<String> = ports.iter().map(|port| port.port.to_string()).collect();
            let noun = if numbers.len() == 1 { "port" } else { "ports" };
            let clients = match &claim.consumer {
                None => String::new(),
                Some(namespace) => format!(" for clients in {namespace}"),
            };
            let mut message =
                format!("attached to {noun} {} of Service {}{clients}", numbers.join(", "), claim.service);
            for remark in &claim.draft.remarks {
                message = format!("{message}; {remark}");
            }
            (Finding::yes(ACCEPTED, message), ports)
        }
        Err(finding) => (finding, Vec::new()),
    };
    let partially_invalid = if ports.is_empty() { None } else { partially_invalid(claim.draft) };
    let attachment = Attachment { ports, consumer: claim.consumer.clone() };
    Verdict { parent: claim.parent.clone(), accepted, resolved, partially_invalid, attachment }
}

fn partially_invalid(draft: &Draft) -> Option<Finding> {
    let mut messages = Vec::new();
    let mut n_dropped = 0;
    for (index, rule) in draft.rules.iter().enumerate() {
        match (&rule.matches, &rule.effect) {
            (Err(problem), _) => {
                n_dropped += 1;
                messages.push(format!("rule {index} is dropped: {}", problem.message));
            }
            (Ok(_), Err(problem)) => {
                let status = error_status(draft.name.kind);
                messages.push(format!("requests for rule {index} are answered with {status}: {}", problem.message));
            }
            (Ok(_), Ok(_)) => {}
        }
    }
    if messages.is_empty() {
        return None;
    }
    // The Gateway API asks for these words where rules are dropped.
    let prefix = if n_dropped > 0 { "Dropped Rule: " } else { "" };
    Some(Finding::yes(UNSUPPORTED_VALUE, format!("{prefix}{}", listed(messages))))
}

/// The first of `messages`, and how many more there are.
fn listed(mut messages: Vec<String>) -> String {
    let n_more = messages.len().saturating_sub(PROBLEMS_SHOWN_MAX);
    messages.truncate(PROBLEMS_SHOWN_MAX);
    let text = messages.join("; ");
    if n_more == 0 { text } else { format!("{text}; and {n_more} more") }
}
