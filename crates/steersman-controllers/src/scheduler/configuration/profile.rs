//! A profile: the plugins that decide on the Pods of one `schedulerName`, and their settings.

use crate::scheduler::configuration::arguments;
use crate::scheduler::configuration::extenders::Extender;
use crate::scheduler::configuration::field::{ConfigurationError, Path};
use crate::scheduler::configuration::fit::Fit;
use crate::scheduler::configuration::plugins::{InEffect, Plugins, Weights};
use crate::scheduler::configuration::spread::Spread;
use crate::scheduler::plugins::filters::PluginSet;
use crate::scheduler::plugins::resources::Resource;
use crate::shared::labels::{NodeTerm, NodeTerms};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The scheduler name in the spec of Pods that name none, and of the default profile.
pub(crate) const NAME: &str = "default-scheduler";

/// The percentage and the number of nodes that are compared for a preemption.
const CANDIDATES_PERCENT: usize = 10;
const CANDIDATES_MIN: usize = 100;

/// How long a claim may take to be bound.
const VOLUMES_MAX: Duration = Duration::from_secs(600);

/// The plugins that decide on the Pods of one `schedulerName`, and their settings.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) name: Arc<str>,
    pub(crate) filters: PluginSet,
    pub(crate) weights: Weights,
    /// Whether a Pod waits until its scheduling gates are gone.
    pub(crate) honors_gates: bool,
    /// Whether a message says that there are no claims of devices to deallocate, before it comes to preemption.
    pub(crate) deallocates: bool,
    /// Preempts Pods if there is no other node; `None` for never.
    pub(crate) preemption: Option<Candidates>,
    /// The percentage of nodes after which the search ends; 0 if it depends on the size of the cluster.
    pub(crate) feasible_percent: usize,
    pub(crate) added_nodes: AddedNodes,
    /// The resources whose shares are balanced.
    pub(crate) balanced: Vec<Resource>,
    pub(crate) fit: Fit,
    pub(crate) pod_affinity: PodAffinityWeights,
    pub(crate) spread: SpreadDefaults,
    pub(crate) volumes_max: Duration,
    /// The extenders of the configuration, in the order in which they are asked.
    pub(crate) extenders: Arc<[Arc<Extender>]>,
}

/// The affinity to nodes that all Pods of a profile have besides their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddedNodes {
    pub(crate) required: Option<NodeTerms>,
    pub(crate) preferred: Vec<(i64, NodeTerm)>,
}

/// How many nodes are compared for a preemption.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Candidates {
    pub(crate) percent: usize,
    pub(crate) min: usize,
}

/// The settings of InterPodAffinity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PodAffinityWeights {
    /// The weight of a required term of an existing Pod.
    pub(crate) required: i64,
    /// `ignorePreferredTermsOfExistingPods`: a Pod without preferences gets no score for those of existing Pods.
    pub(crate) ignores_others: bool,
}

/// The spread constraints of Pods that have none.
#[derive(Clone, Debug)]
pub(crate) enum SpreadDefaults {
    /// Without selectors, which depend on the Pod.
    List(Vec<Spread>),
    System,
}

/// An entry of `profiles`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ProfileDocument {
    percentage_of_nodes_to_score: Option<i32>,
    plugin_config: Option<Vec<PluginConfig>>,
    plugins: Option<Plugins>,
    scheduler_name: Option<String>,
}

/// An entry of `pluginConfig`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginConfig {
    name: String,
    #[serde(default)]
    args: Value,
}

// === impl Profile ===

impl Profile {
    /// Whether the first feasible node is as good as any other.
    pub(crate) fn takes_first_node(&self) -> bool {
        let decides = |extender: &Arc<Extender>| extender.filter.is_some() || extender.prioritize.is_some();
        self.weights.is_none() && !self.extenders.iter().any(decides)
    }

    /// The default profile under a name.
    pub(crate) fn new(name: &str) -> Profile {
        let InEffect { filters, weights, honors_gates, preempts: _, deallocates } = Plugins::default().in_effect();
        Profile {
            name: name.into(),
            filters,
            weights,
            honors_gates,
            deallocates,
            preemption: Some(Candidates { percent: CANDIDATES_PERCENT, min: CANDIDATES_MIN }),
            feasible_percent: 0,
            added_nodes: AddedNodes::default(),
            balanced: vec![Resource::Cpu, Resource::Memory],
            fit: Fit::default(),
            pod_affinity: PodAffinityWeights { required: 1, ignores_others: false },
            spread: SpreadDefaults::System,
            volumes_max: VOLUMES_MAX,
            extenders: Arc::default(),
        }
    }
}

// === impl ProfileDocument ===

impl ProfileDocument {
    /// The profile. `default_name` is used if the document has no name; it is `None` if there are several profiles.
    /// `feasible_percent` is used if the profile has none.
    pub(super) fn profile(
        self,
        default_name: Option<&str>,
        feasible_percent: usize,
        path: &Path,
    ) -> Result<Profile, ConfigurationError> {
        let name = self.scheduler_name.filter(|name| !name.is_empty());
        let Some(name) = name.as_deref().or(default_name) else {
            let why = "a name is required where there are several profiles";
            return Err(path.field("schedulerName").wrong(why));
        };
        let mut profile = Profile::new(name);
        profile.feasible_percent = percent(self.percentage_of_nodes_to_score, path)?.unwrap_or(feasible_percent);
        let mut seen: Vec<String> = Vec::new();
        for (at, PluginConfig { name, args }) in self.plugin_config.into_iter().flatten().enumerate() {
            let path = path.field("pluginConfig").index(at);
            if seen.contains(&name) {
                return Err(path.field("name").wrong(format!("{name} is configured twice")));
            }
            arguments::apply(&mut profile, &name, args, &path)?;
            seen.push(name);
        }
        let plugins = self.plugins.unwrap_or_default();
        plugins.check(&path.field("plugins"))?;
        let InEffect { filters, weights, honors_gates, preempts, deallocates } = plugins.in_effect();
        profile.preemption = profile.preemption.filter(|_| preempts);
        Ok(Profile { filters, weights, honors_gates, deallocates, ..profile })
    }
}

/// Reads `percentageOfNodesToScore`. 0 stands for a percentage that falls as the cluster grows.
pub(super) fn percent(value: Option<i32>, of: &Path) -> Result<Option<usize>, ConfigurationError> {
    let Some(value) = value else { return Ok(None) };
    match usize::try_from(value) {
        Ok(percent @ 0..=100) => Ok(Some(percent)),
        _ => Err(of.field("percentageOfNodesToScore").wrong(format!("{value} is not in the range 0 to 100"))),
    }
}
