//! The filter plugins of kube-scheduler, and sets of them.

/// A filter plugin. Several of them form a [`PluginSet`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Plugin {
    NodeUnschedulable,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    /// An extender.
    Extender,
    /// There is no node at all.
    NoNodes,
}

/// A set of filter plugins, such as those that rejected nodes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct PluginSet(u16);

// === impl Plugin ===

impl Plugin {
    /// The plugins that a profile may turn off.
    pub(crate) const FILTERS: [Plugin; 12] = [
        Plugin::NodeUnschedulable,
        Plugin::TaintToleration,
        Plugin::NodeAffinity,
        Plugin::NodePorts,
        Plugin::NodeResourcesFit,
        Plugin::VolumeRestrictions,
        Plugin::NodeVolumeLimits,
        Plugin::VolumeBinding,
        Plugin::VolumeZone,
        Plugin::PodTopologySpread,
        Plugin::InterPodAffinity,
        Plugin::DynamicResources,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Plugin::NodeUnschedulable => "NodeUnschedulable",
            Plugin::TaintToleration => "TaintToleration",
            Plugin::NodeAffinity => "NodeAffinity",
            Plugin::NodePorts => "NodePorts",
            Plugin::NodeResourcesFit => "NodeResourcesFit",
            Plugin::VolumeRestrictions => "VolumeRestrictions",
            Plugin::NodeVolumeLimits => "NodeVolumeLimits",
            Plugin::VolumeBinding => "VolumeBinding",
            Plugin::VolumeZone => "VolumeZone",
            Plugin::PodTopologySpread => "PodTopologySpread",
            Plugin::InterPodAffinity => "InterPodAffinity",
            Plugin::DynamicResources => "DynamicResources",
            Plugin::Extender => "Extender",
            Plugin::NoNodes => "NoNodes",
        }
    }
}

// === impl PluginSet ===

impl PluginSet {
    pub(crate) fn insert(&mut self, plugin: Plugin) {
        self.0 |= 1 << plugin as u16;
    }

    pub(crate) fn contains(self, plugin: Plugin) -> bool {
        self.0 & (1 << plugin as u16) != 0
    }
}

impl From<Plugin> for PluginSet {
    fn from(plugin: Plugin) -> PluginSet {
        let mut set = PluginSet::default();
        set.insert(plugin);
        set
    }
}
