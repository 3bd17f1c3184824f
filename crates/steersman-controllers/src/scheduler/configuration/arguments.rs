//! `pluginConfig`: the settings of single plugins, with the defaults and the validation of kube-scheduler.

use crate::scheduler::configuration::field::{ConfigurationError, Path, seconds};
use crate::scheduler::configuration::fit::{ShapePoint, Strategy};
use crate::scheduler::configuration::profile::{Profile, SpreadDefaults};
use crate::scheduler::configuration::spread::Spread;
use crate::scheduler::plugins::resources::Resource;
use crate::shared::labels::{Labels, NodeTerm, NodeTerms};
use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelectorTerm, TopologySpreadConstraint};
use serde::Deserialize;
use serde_json::Value;
use steersman_machinery::name;

pub(super) const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";

/// The greatest score of a point; a node's score is ten times as much.
const POINT_SCORE_MAX: i64 = 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeResourcesFitArgs {
    ignored_resources: Option<Vec<String>>,
    ignored_resource_groups: Option<Vec<String>>,
    scoring_strategy: Option<ScoringStrategy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScoringStrategy {
    #[serde(rename = "type")]
    strategy: Option<String>,
    resources: Option<Vec<ResourceSpec>>,
    requested_to_capacity_ratio: Option<RequestedToCapacityRatio>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedToCapacityRatio {
    shape: Option<Vec<PointSpec>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PointSpec {
    utilization: Option<i64>,
    score: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResourceSpec {
    name: String,
    weight: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeResourcesBalancedAllocationArgs {
    resources: Option<Vec<ResourceSpec>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct InterPodAffinityArgs {
    hard_pod_affinity_weight: Option<i64>,
    ignore_preferred_terms_of_existing_pods: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodTopologySpreadArgs {
    default_constraints: Option<Vec<Value>>,
    defaulting_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeAffinityArgs {
    added_affinity: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DefaultPreemptionArgs {
    min_candidate_nodes_absolute: Option<i64>,
    min_candidate_nodes_percentage: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VolumeBindingArgs {
    bind_timeout_seconds: Option<i64>,
}

/// Applies the settings of one plugin to a profile.
pub(super) fn apply(profile: &mut Profile, name: &str, args: Value, entry: &Path) -> Result<(), ConfigurationError> {
    let path = entry.field("args");
    let args = without_type(args, name, &path)?;
    match name {
        "DefaultPreemption" => default_preemption(profile, &path.decode(&args)?, &path)?,
        "InterPodAffinity" => pod_affinity(profile, &path.decode(&args)?, &path)?,
        "NodeAffinity" => node_affinity(profile, &path.decode(&args)?, &path)?,
        "NodeResourcesBalancedAllocation" => balanced(profile, path.decode(&args)?, &path)?,
        "NodeResourcesFit" => fit(profile, path.decode(&args)?, &path)?,
        "PodTopologySpread" => profile.spread = spread(&path.decode(&args)?, &path)?,
        "VolumeBinding" => volume_binding(profile, &path.decode(&args)?, &path)?,
        _ => {
            let why = format!(
                "there are no settings for {name:?}: only DefaultPreemption, InterPodAffinity, NodeAffinity, \
                 NodeResourcesBalancedAllocation, NodeResourcesFit, PodTopologySpread and VolumeBinding have settings"
            );
            return Err(entry.field("name").wrong(why));
        }
    }
    Ok(())
}

/// Removes `apiVersion` and `kind`, which may be there and must be the plugin's then.
fn without_type(args: Value, name: &str, path: &Path) -> Result<Value, ConfigurationError> {
    let mut fields = match args {
        Value::Null => return Ok(Value::Object(serde_json::Map::new())),
        Value::Object(fields) => fields,
        _ => return Err(path.wrong(format!("it is not an object of the kind {name}Args"))),
    };
    for (field, wanted) in [("apiVersion", API_VERSION.to_owned()), ("kind", format!("{name}Args"))] {
        if let Some(found) = fields.remove(field)
            && found != wanted.as_str()
        {
            return Err(path.field(field).wrong(format!("{found} is not the plugin's: it must be {wanted:?}")));
        }
    }
    Ok(Value::Object(fields))
}

fn default_preemption(
    profile: &mut Profile,
    args: &DefaultPreemptionArgs,
    path: &Path,
) -> Result<(), ConfigurationError> {
    let Some(candidates) = &mut profile.preemption else { return Ok(()) };
    if let Some(percent) = args.min_candidate_nodes_percentage {
        candidates.percent = usize::try_from(percent).ok().filter(|percent| *percent <= 100).ok_or_else(|| {
            path.field("minCandidateNodesPercentage").wrong(format!("{percent} is not in the range 0 to 100"))
        })?;
    }
    let path = path.field("minCandidateNodesAbsolute");
    if let Some(min) = args.min_candidate_nodes_absolute {
        candidates.min = usize::try_from(min).map_err(|_| path.wrong(format!("{min} is negative")))?;
    }
    if candidates.percent == 0 && candidates.min == 0 {
        return Err(path.wrong("it cannot be 0 at the same time as minCandidateNodesPercentage"));
    }
    Ok(())
}

fn pod_affinity(profile: &mut Profile, args: &InterPodAffinityArgs, path: &Path) -> Result<(), ConfigurationError> {
    if let Some(required) = args.hard_pod_affinity_weight {
        if !(0..=100).contains(&required) {
            let why = format!("{required} is not in the range 0 to 100");
            return Err(path.field("hardPodAffinityWeight").wrong(why));
        }
        profile.pod_affinity.required = required;
    }
    profile.pod_affinity.ignores_others = args.ignore_preferred_terms_of_existing_pods.unwrap_or_default();
    Ok(())
}

fn node_affinity(profile: &mut Profile, args: &NodeAffinityArgs, path: &Path) -> Result<(), ConfigurationError> {
    let Some(added) = &args.added_affinity else { return Ok(()) };
    let path = path.field("addedAffinity");
    let added: NodeAffinity = path.decode_strictly(added)?;
    if let Some(required) = &added.required_during_scheduling_ignored_during_execution {
        let path = path.field("requiredDuringSchedulingIgnoredDuringExecution").field("nodeSelectorTerms");
        if required.node_selector_terms.is_empty() {
            return Err(path.wrong("at least one term is required, because no node matches without any"));
        }
        for (at, term) in required.node_selector_terms.iter().enumerate() {
            check_term(term, &path.index(at))?;
        }
        profile.added_nodes.required = Some(NodeTerms::read(required));
    }
    let path = path.field("preferredDuringSchedulingIgnoredDuringExecution");
    for (at, term) in added.preferred_during_scheduling_ignored_during_execution.iter().flatten().enumerate() {
        let path = path.index(at);
        if term.weight < 0 {
            return Err(path.field("weight").wrong(format!("{} is negative", term.weight)));
        }
        check_term(&term.preference, &path.field("preference"))?;
        let preference = NodeTerm::read(&term.preference).filter(|_| term.weight != 0);
        profile.added_nodes.preferred.extend(preference.map(|preference| (i64::from(term.weight), preference)));
    }
    Ok(())
}

/// An empty term selects nothing. Any other must be readable.
fn check_term(term: &NodeSelectorTerm, path: &Path) -> Result<(), ConfigurationError> {
    let is_empty = |list: &Option<Vec<_>>| list.as_ref().is_none_or(Vec::is_empty);
    if NodeTerm::read(term).is_none() && !(is_empty(&term.match_expressions) && is_empty(&term.match_fields)) {
        return Err(path.wrong("an operator is unknown, or does not take its values"));
    }
    Ok(())
}

fn balanced(
    profile: &mut Profile,
    args: NodeResourcesBalancedAllocationArgs,
    path: &Path,
) -> Result<(), ConfigurationError> {
    let resources = args.resources.unwrap_or_default();
    if resources.is_empty() {
        return Ok(());
    }
    profile.balanced.clear();
    for (at, ResourceSpec { name, weight }) in resources.into_iter().enumerate() {
        let path = path.field("resources").index(at);
        if let Some(weight) = weight.filter(|weight| !matches!(weight, 0 | 1)) {
            return Err(path.field("weight").wrong(format!("{weight} is not possible: it must be 1")));
        }
        let resource = Resource::named(name);
        if profile.balanced.contains(&resource) {
            return Err(path.field("name").wrong(format!("{} is in the list twice", resource.name())));
        }
        profile.balanced.push(resource);
    }
    Ok(())
}

fn fit(profile: &mut Profile, args: NodeResourcesFitArgs, path: &Path) -> Result<(), ConfigurationError> {
    let groups = args.ignored_resource_groups.unwrap_or_default();
    if let Some((at, group)) = groups.iter().enumerate().find(|(_, group)| group.contains('/')) {
        let why = format!("{group:?} has a slash: it is the part of the name before the slash");
        return Err(path.field("ignoredResourceGroups").index(at).wrong(why));
    }
    for (at, group) in groups.iter().enumerate() {
        check_label(group, &path.field("ignoredResourceGroups").index(at))?;
    }
    let resources = args.ignored_resources.unwrap_or_default();
    for (at, resource) in resources.iter().enumerate() {
        check_label(resource, &path.field("ignoredResources").index(at))?;
    }
    profile.fit.ignored_groups = groups;
    profile.fit.ignored = resources;
    let Some(ScoringStrategy { strategy, resources, requested_to_capacity_ratio: ratio }) = args.scoring_strategy
    else {
        return Ok(());
    };
    let path = path.field("scoringStrategy");
    let strategy = strategy.unwrap_or_default();
    if ratio.is_some() && strategy != "RequestedToCapacityRatio" {
        let why = "it is only for the type RequestedToCapacityRatio";
        return Err(path.field("requestedToCapacityRatio").wrong(why));
    }
    profile.fit.strategy = match strategy.as_str() {
        "LeastAllocated" => Strategy::LeastAllocated,
        "MostAllocated" => Strategy::MostAllocated,
        "RequestedToCapacityRatio" => {
            let points = ratio.and_then(|ratio| ratio.shape).unwrap_or_default();
            Strategy::RequestedToCapacityRatio(shape(&points, &path.field("requestedToCapacityRatio").field("shape"))?)
        }
        other => {
            let why =
                format!("{other:?} is unknown: there are LeastAllocated, MostAllocated and RequestedToCapacityRatio");
            return Err(path.field("type").wrong(why));
        }
    };
    let resources = resources.unwrap_or_default();
    if resources.is_empty() {
        return Ok(());
    }
    profile.fit.resources.clear();
    for (at, ResourceSpec { name, weight }) in resources.into_iter().enumerate() {
        let weight = weight.filter(|weight| *weight != 0).unwrap_or(1);
        if !(1..=100).contains(&weight) {
            let why = format!("{weight} is not in the range 1 to 100");
            return Err(path.field("resources").index(at).field("weight").wrong(why));
        }
        profile.fit.resources.push((Resource::named(name), weight));
    }
    Ok(())
}

fn shape(points: &[PointSpec], path: &Path) -> Result<Vec<ShapePoint>, ConfigurationError> {
    if points.is_empty() {
        return Err(path.wrong("at least one point is required"));
    }
    let mut shape: Vec<ShapePoint> = Vec::new();
    for (at, point) in points.iter().enumerate() {
        let (path, utilization, score) =
            (path.index(at), point.utilization.unwrap_or_default(), point.score.unwrap_or_default());
        if !(0..=100).contains(&utilization) {
            return Err(path.field("utilization").wrong(format!("{utilization} is not in the range 0 to 100")));
        }
        if shape.last().is_some_and(|last| utilization <= last.utilization) {
            return Err(path.field("utilization").wrong(format!("{utilization} is not greater than the one before")));
        }
        if !(0..=POINT_SCORE_MAX).contains(&score) {
            return Err(path.field("score").wrong(format!("{score} is not in the range 0 to {POINT_SCORE_MAX}")));
        }
        shape.push(ShapePoint { utilization, score: score * (100 / POINT_SCORE_MAX) });
    }
    Ok(shape)
}

fn spread(args: &PodTopologySpreadArgs, path: &Path) -> Result<SpreadDefaults, ConfigurationError> {
    let path_of_list = path.field("defaultConstraints");
    let given = args.default_constraints.iter().flatten().enumerate();
    let constraints: Vec<TopologySpreadConstraint> =
        given.map(|(at, one)| path_of_list.index(at).decode_strictly(one)).collect::<Result<_, _>>()?;
    match args.defaulting_type.as_deref().unwrap_or_default() {
        "" | "System" if constraints.is_empty() => return Ok(SpreadDefaults::System),
        "List" => {}
        "" | "System" => {
            let why = "constraints of your own need defaultingType: List";
            return Err(path.field("defaultingType").wrong(why));
        }
        other => {
            let why = format!("{other:?} is unknown: there are System and List");
            return Err(path.field("defaultingType").wrong(why));
        }
    }
    for (at, constraint) in constraints.iter().enumerate() {
        let path = path_of_list.index(at);
        if constraint.max_skew < 1 {
            return Err(path.field("maxSkew").wrong(format!("{} is not greater than 0", constraint.max_skew)));
        }
        if constraint.topology_key.is_empty() {
            return Err(path.field("topologyKey").wrong("a label is required"));
        }
        check_label(&constraint.topology_key, &path.field("topologyKey"))?;
        if !matches!(constraint.when_unsatisfiable.as_str(), "DoNotSchedule" | "ScheduleAnyway") {
            let why =
                format!("{:?} is unknown: there are DoNotSchedule and ScheduleAnyway", constraint.when_unsatisfiable);
            return Err(path.field("whenUnsatisfiable").wrong(why));
        }
        if constraint.label_selector.is_some() {
            return Err(path.field("labelSelector").wrong("it is forbidden: the selector is made for each Pod"));
        }
        let is_same = |other: &TopologySpreadConstraint| {
            (&other.topology_key, &other.when_unsatisfiable)
                == (&constraint.topology_key, &constraint.when_unsatisfiable)
        };
        if constraints[..at].iter().any(is_same) {
            let why = format!("{} with {} is there already", constraint.topology_key, constraint.when_unsatisfiable);
            return Err(path.wrong(why));
        }
    }
    let none = Labels::new();
    Ok(SpreadDefaults::List(constraints.iter().map(|constraint| Spread::read(constraint, &none)).collect()))
}

fn volume_binding(profile: &mut Profile, args: &VolumeBindingArgs, path: &Path) -> Result<(), ConfigurationError> {
    if let Some(timeout) = args.bind_timeout_seconds {
        if timeout < 0 {
            return Err(path.field("bindTimeoutSeconds").wrong(format!("{timeout} is negative")));
        }
        profile.volumes_max = seconds(timeout);
    }
    Ok(())
}

/// Checks that a text can be the key of a label, as names of resources and topologies must.
fn check_label(text: &str, path: &Path) -> Result<(), ConfigurationError> {
    match name::qualified(text).first() {
        Some(fault) => Err(path.wrong(format!("{text:?} is not possible: {fault}"))),
        None => Ok(()),
    }
}
