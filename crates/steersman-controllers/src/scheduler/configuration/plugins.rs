//! Which plugins of a profile are on, and the weights of their scores.
//!
//! A profile changes the default plugins at an extension point, or at all of them with `multiPoint`. What is said at a
//! point counts more than what is said at `multiPoint`.

use crate::scheduler::configuration::field::{ConfigurationError, Path};
use crate::scheduler::plugins::filters::{Plugin, PluginSet};
use serde::Deserialize;
use std::collections::BTreeSet;

const ALL: &str = "*";

/// A plugin of the default profile.
struct DefaultPlugin {
    name: &'static str,
    /// The weight of its score; 0 if it has none.
    weight: i64,
    points: &'static [Point],
}

/// An extension point.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Point {
    Bind,
    Filter,
    PostFilter,
    PreBind,
    PreEnqueue,
    PreFilter,
    PreScore,
    QueueSort,
    Reserve,
    Score,
}

const FILTER: &[Point] = &[Point::Filter];
const PREPARED_FILTER: &[Point] = &[Point::PreFilter, Point::Filter];
const PREPARED_SCORE: &[Point] = &[Point::PreScore, Point::Score];
const FILTER_AND_SCORE: &[Point] = &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score];

const DEFAULT_PLUGINS: [DefaultPlugin; 19] = [
    known("SchedulingGates", 0, &[Point::PreEnqueue]),
    known("PrioritySort", 0, &[Point::QueueSort]),
    known("NodeUnschedulable", 0, FILTER),
    known("NodeName", 0, FILTER),
    known("TaintToleration", 3, &[Point::Filter, Point::PreScore, Point::Score]),
    known("NodeAffinity", 2, FILTER_AND_SCORE),
    known("NodePorts", 0, PREPARED_FILTER),
    known("NodeResourcesFit", 1, FILTER_AND_SCORE),
    known("VolumeRestrictions", 0, PREPARED_FILTER),
    known("NodeVolumeLimits", 0, PREPARED_FILTER),
    known(
        "VolumeBinding",
        0,
        &[Point::PreFilter, Point::Filter, Point::Reserve, Point::PreBind, Point::PreScore, Point::Score],
    ),
    known("VolumeZone", 0, PREPARED_FILTER),
    known("PodTopologySpread", 2, FILTER_AND_SCORE),
    known("InterPodAffinity", 2, FILTER_AND_SCORE),
    known(
        "DynamicResources",
        0,
        &[
            Point::PreEnqueue,
            Point::PreFilter,
            Point::Filter,
            Point::PostFilter,
            Point::Reserve,
            Point::PreBind,
            Point::Score,
        ],
    ),
    known("DefaultPreemption", 0, &[Point::PostFilter, Point::PreEnqueue]),
    known("NodeResourcesBalancedAllocation", 1, PREPARED_SCORE),
    known("ImageLocality", 1, &[Point::Score]),
    known("DefaultBinder", 0, &[Point::Bind]),
];

/// Pairs of points: a plugin that is on at the first must be on at the second. A plugin that is on at the second only has no
/// effect.
const DEPENDENT_POINTS: [(Point, Point); 4] = [
    (Point::Filter, Point::PreFilter),
    (Point::Filter, Point::Reserve),
    (Point::Filter, Point::PreBind),
    (Point::Score, Point::PreScore),
];

/// The plugins of a profile that are on, in effect.
#[derive(Clone, Copy, Debug)]
pub(super) struct InEffect {
    pub(super) filters: PluginSet,
    pub(super) weights: Weights,
    pub(super) honors_gates: bool,
    pub(super) preempts: bool,
    pub(super) deallocates: bool,
}

/// The weight of each score; 0 if the plugin does not score.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Weights {
    pub(crate) affinity: i64,
    pub(crate) balanced: i64,
    pub(crate) fit: i64,
    pub(crate) images: i64,
    pub(crate) nodes: i64,
    pub(crate) spread: i64,
    pub(crate) taints: i64,
}

/// `plugins` of a profile.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Plugins {
    multi_point: PluginLists,
    bind: PluginLists,
    filter: PluginLists,
    permit: PluginLists,
    post_bind: PluginLists,
    post_filter: PluginLists,
    pre_bind: PluginLists,
    pre_enqueue: PluginLists,
    pre_filter: PluginLists,
    pre_score: PluginLists,
    queue_sort: PluginLists,
    reserve: PluginLists,
    score: PluginLists,
}

/// The plugins that are on at a point besides the default ones, and those of the default ones that are off.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PluginLists {
    enabled: Option<Vec<ListedPlugin>>,
    disabled: Option<Vec<ListedPlugin>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedPlugin {
    name: String,
    weight: Option<i32>,
}

const fn known(name: &'static str, weight: i64, points: &'static [Point]) -> DefaultPlugin {
    DefaultPlugin { name, weight, points }
}

// === impl Plugins ===

impl Plugins {
    pub(super) fn in_effect(&self) -> InEffect {
        InEffect {
            filters: self.filters(),
            weights: self.weights(),
            honors_gates: self.is_on("SchedulingGates", Point::PreEnqueue),
            preempts: self.is_on("DefaultPreemption", Point::PostFilter),
            deallocates: self.is_on("DynamicResources", Point::PostFilter),
        }
    }

    /// # Errors
    /// Names the plugin that is unknown, or that cannot be on or off at a point.
    pub(super) fn check(&self, path: &Path) -> Result<(), ConfigurationError> {
        self.multi_point.check(None, &path.field("multiPoint"))?;
        for (point, name) in [(&self.permit, "permit"), (&self.post_bind, "postBind")] {
            if let Some(plugin) = point.enabled.iter().flatten().next() {
                let path = path.field(name).field("enabled").index(0);
                let why = format!("{} cannot be enabled: this scheduler has no plugins at this point", plugin.name);
                return Err(path.wrong(why));
            }
        }
        for point in Point::ALL {
            self.at(point).check(Some(point), &path.field(point.name()))?;
        }
        for (point, name, what) in
            [(Point::QueueSort, "PrioritySort", "sorts the queue"), (Point::Bind, "DefaultBinder", "binds Pods")]
        {
            if !self.is_on(name, point) {
                let list = if self.at(point).disables(name) { point.name() } else { "multiPoint" };
                return Err(path.field(list).field("disabled").wrong(format!("without {name} nothing {what}")));
            }
        }
        for plugin in &DEFAULT_PLUGINS {
            for (decides, other) in DEPENDENT_POINTS {
                let scores = decides != Point::Score || plugin.weight != 0;
                let has_both = scores && plugin.points.contains(&decides) && plugin.points.contains(&other);
                if has_both && self.is_on(plugin.name, decides) && !self.is_on(plugin.name, other) {
                    let why = format!(
                        "{0} is off here and on at {1}: this scheduler turns it off at both only",
                        plugin.name,
                        decides.name(),
                    );
                    return Err(path.field(other.name()).wrong(why));
                }
            }
        }
        Ok(())
    }

    fn at(&self, point: Point) -> &PluginLists {
        match point {
            Point::Bind => &self.bind,
            Point::Filter => &self.filter,
            Point::PostFilter => &self.post_filter,
            Point::PreBind => &self.pre_bind,
            Point::PreEnqueue => &self.pre_enqueue,
            Point::PreFilter => &self.pre_filter,
            Point::PreScore => &self.pre_score,
            Point::QueueSort => &self.queue_sort,
            Point::Reserve => &self.reserve,
            Point::Score => &self.score,
        }
    }

    /// Whether a plugin of the default profile runs at a point.
    fn is_on(&self, name: &str, point: Point) -> bool {
        let at = self.at(point);
        if at.enables(name) {
            return true;
        }
        !at.disables(name) && (self.multi_point.enables(name) || !self.multi_point.disables(name))
    }

    fn filters(&self) -> PluginSet {
        let mut set = PluginSet::default();
        for plugin in Plugin::FILTERS.into_iter().filter(|plugin| self.is_on(plugin.name(), Point::Filter)) {
            set.insert(plugin);
        }
        set
    }

    fn weights(&self) -> Weights {
        let of = |name: &str| if self.is_on(name, Point::Score) { self.weight(name) } else { 0 };
        Weights {
            affinity: of("InterPodAffinity"),
            balanced: of("NodeResourcesBalancedAllocation"),
            fit: of("NodeResourcesFit"),
            images: of("ImageLocality"),
            nodes: of("NodeAffinity"),
            spread: of("PodTopologySpread"),
            taints: of("TaintToleration"),
        }
    }

    /// The weight of a score: that at `score`, at `multiPoint`, or of the default profile. A plugin that is listed without
    /// a weight gets 1.
    fn weight(&self, name: &str) -> i64 {
        let said = self.score.named(name).or_else(|| self.multi_point.named(name));
        match said {
            Some(named) => i64::from(named.weight.filter(|weight| *weight != 0).unwrap_or(1)),
            None => DEFAULT_PLUGINS.iter().find(|known| known.name == name).map_or(1, |known| known.weight),
        }
    }
}

// === impl Weights ===

impl Weights {
    /// Whether no plugin scores.
    pub(crate) fn is_none(self) -> bool {
        let Weights { affinity, balanced, fit, images, nodes, spread, taints } = self;
        [affinity, balanced, fit, images, nodes, spread, taints].iter().all(|weight| *weight == 0)
    }
}

// === impl PluginLists ===

impl PluginLists {
    fn named(&self, name: &str) -> Option<&ListedPlugin> {
        self.enabled.iter().flatten().find(|plugin| plugin.name == name)
    }

    fn enables(&self, name: &str) -> bool {
        self.named(name).is_some()
    }

    fn disables(&self, name: &str) -> bool {
        self.disabled.iter().flatten().any(|plugin| plugin.name == name || plugin.name == ALL)
    }

    /// Checks the plugins that are enabled at a point; `None` for all of their points.
    fn check(&self, point: Option<Point>, path: &Path) -> Result<(), ConfigurationError> {
        let mut seen = BTreeSet::new();
        for (at, plugin) in self.enabled.iter().flatten().enumerate() {
            let (path, name) = (path.field("enabled").index(at).field("name"), &plugin.name);
            let Some(known) = DEFAULT_PLUGINS.iter().find(|known| known.name == name) else {
                let names: Vec<&str> = DEFAULT_PLUGINS.iter().map(|known| known.name).collect();
                return Err(path.wrong(format!("there is no plugin {name:?}: there are {}", names.join(", "))));
            };
            if let Some(point) = point.filter(|point| !known.points.contains(point)) {
                return Err(path.wrong(format!("{name} does not extend {}", point.name())));
            }
            if !seen.insert(name) {
                return Err(path.wrong(format!("{name} is in the list twice")));
            }
        }
        Ok(())
    }
}

// === impl Point ===

impl Point {
    const ALL: [Point; 10] = [
        Point::Bind,
        Point::Filter,
        Point::PostFilter,
        Point::PreBind,
        Point::PreEnqueue,
        Point::PreFilter,
        Point::PreScore,
        Point::QueueSort,
        Point::Reserve,
        Point::Score,
    ];

    fn name(self) -> &'static str {
        match self {
            Point::Bind => "bind",
            Point::Filter => "filter",
            Point::PostFilter => "postFilter",
            Point::PreBind => "preBind",
            Point::PreEnqueue => "preEnqueue",
            Point::PreFilter => "preFilter",
            Point::PreScore => "preScore",
            Point::QueueSort => "queueSort",
            Point::Reserve => "reserve",
            Point::Score => "score",
        }
    }
}
