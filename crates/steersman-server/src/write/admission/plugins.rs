//! The admission plugins of a server: the table of all plugins of kube-apiserver 1.36, and the choice among them.

/// Plugins that limit what may be written, and by whom.
pub(crate) mod limits {
    pub(crate) mod certificates;
    pub(crate) mod external_ips;
    pub(crate) mod limit_ranger;
    pub(crate) mod namespace_exists;
    pub(crate) mod namespace_lifecycle;
    pub(crate) mod node_restriction;
    pub(crate) mod owner_references;
    pub(crate) mod resource_quota;
}
/// Plugins about Pods.
mod pods {
    pub(crate) mod always_pull_images;
    pub(crate) mod anti_affinity;
    pub(crate) mod app_armor;
    pub(crate) mod default_toleration_seconds;
    pub(crate) mod extended_resources;
    pub(crate) mod pod_resize;
    pub(crate) mod pod_security;
    pub(crate) mod priority;
    pub(crate) mod runtime_class;
    pub(crate) mod service_account;
    pub(crate) mod topology_labels;
}
/// Plugins about storage.
mod storage {
    pub(crate) mod claim_resize;
    pub(crate) mod default_class;
    pub(crate) mod storage_protection;
}
mod initializers;
mod node_taint;

use crate::write::admission::dynamic::{mutating_policy, validating_policy, webhook_plugins};
use crate::write::admission::plugin::Plugin;
use crate::write::admission::plugins::limits::{
    certificates, external_ips, limit_ranger, namespace_exists, namespace_lifecycle, node_restriction,
    owner_references, resource_quota,
};
use crate::write::admission::plugins::pods::{
    always_pull_images, anti_affinity, app_armor, default_toleration_seconds, extended_resources, pod_resize,
    pod_security, priority, runtime_class, service_account, topology_labels,
};
use crate::write::admission::plugins::storage::{claim_resize, default_class, storage_protection};
use std::fmt;

/// A plugin of kube-apiserver.
struct Row {
    /// Upstream's name; empty for a plugin that no flag switches.
    name: &'static str,
    is_on: IsOn,
    /// `None` if Steersman does not have it: `up` and `server` refuse its name, and the stand-in for kube-apiserver names it in its log.
    plugin: Option<&'static dyn Plugin>,
}

/// The servers in which a plugin is on by default.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum IsOn {
    Always,
    /// Servers that stand in for kube-apiserver. The plugin needs a control loop that may not run elsewhere.
    InUpstream,
    Never,
    /// Servers with initializers.
    WithInitializers,
    /// Servers with the node authorizer: only this plugin checks the content of the nodes' writes.
    WithNodes,
}

/// In upstream's order (`pkg/kubeapiserver/options/plugins.go`), which is the order of the calls.
static ROWS: [Row; 43] = [
    absent("AlwaysAdmit", IsOn::Never),
    absent("NamespaceAutoProvision", IsOn::Never),
    row("NamespaceLifecycle", IsOn::Always, &namespace_lifecycle::NamespaceLifecycle),
    // Upstream does this in the strategy of pods.
    row("", IsOn::Always, &app_armor::AppArmor),
    row("NamespaceExists", IsOn::Never, &namespace_exists::NamespaceExists),
    row("LimitPodHardAntiAffinityTopology", IsOn::Never, &anti_affinity::AntiAffinity),
    row("LimitRanger", IsOn::Always, &limit_ranger::LimitRanger),
    row("ServiceAccount", IsOn::InUpstream, &service_account::ServiceAccount),
    row("NodeRestriction", IsOn::WithNodes, &node_restriction::NodeRestriction),
    row("TaintNodesByCondition", IsOn::Always, &node_taint::NodeTaint),
    row("AlwaysPullImages", IsOn::Never, &always_pull_images::AlwaysPullImages),
    absent("ImagePolicyWebhook", IsOn::Never),
    row("PodSecurity", IsOn::Always, &pod_security::PodSecurity),
    absent("PodNodeSelector", IsOn::Never),
    row("Priority", IsOn::Always, &priority::Priority),
    row("DefaultTolerationSeconds", IsOn::Always, &default_toleration_seconds::DefaultTolerationSeconds),
    absent("PodTolerationRestriction", IsOn::Never),
    absent("EventRateLimit", IsOn::Never),
    row("ExtendedResourceToleration", IsOn::Never, &extended_resources::ExtendedResources),
    row("DefaultStorageClass", IsOn::Always, &default_class::STORAGE),
    row("StorageObjectInUseProtection", IsOn::InUpstream, &storage_protection::StorageProtection),
    absent("PodGroupProtection", IsOn::Always),
    row("OwnerReferencesPermissionEnforcement", IsOn::Never, &owner_references::OwnerReferences),
    row("PersistentVolumeClaimResize", IsOn::Always, &claim_resize::ClaimResize),
    row("RuntimeClass", IsOn::Always, &runtime_class::RuntimeClass),
    row("CertificateApproval", IsOn::Always, &certificates::Approval),
    row("CertificateSigning", IsOn::Always, &certificates::Signing),
    absent("ClusterTrustBundleAttest", IsOn::Always),
    row("CertificateSubjectRestriction", IsOn::Always, &certificates::SubjectRestriction),
    row("DefaultIngressClass", IsOn::Always, &default_class::INGRESS),
    row("DenyServiceExternalIPs", IsOn::Never, &external_ips::ExternalIps),
    row("PodTopologyLabels", IsOn::Always, &topology_labels::TopologyLabels),
    absent("PodGroupWorkloadExists", IsOn::Always),
    absent("NodeDeclaredFeatureValidator", IsOn::Always),
    absent("JobValidation", IsOn::Always),
    row("PodResizeValidator", IsOn::Always, &pod_resize::PodResize),
    row("MutatingAdmissionPolicy", IsOn::Always, &mutating_policy::MutatingAdmissionPolicy),
    row("MutatingAdmissionWebhook", IsOn::Always, &webhook_plugins::Mutating),
    // Upstream's `Initializers`, for servers that serve InitializerConfiguration and `metadata.initializers`.
    row("", IsOn::WithInitializers, &initializers::Initializers),
    row("ValidatingAdmissionPolicy", IsOn::Always, &validating_policy::ValidatingAdmissionPolicy),
    row("ValidatingAdmissionWebhook", IsOn::Always, &webhook_plugins::Validating),
    row("ResourceQuota", IsOn::Always, &resource_quota::ResourceQuota),
    absent("AlwaysDeny", IsOn::Never),
];

const fn row(name: &'static str, is_on: IsOn, plugin: &'static dyn Plugin) -> Row {
    Row { name, is_on, plugin: Some(plugin) }
}

const fn absent(name: &'static str, is_on: IsOn) -> Row {
    Row { name, is_on, plugin: None }
}

/// The admission plugins of a server, by the names of kube-apiserver.
#[derive(Clone)]
pub struct Plugins {
    /// Whether each plugin is on, by position in [`ROWS`].
    is_on: [bool; ROWS.len()],
    /// Whether each plugin was switched on or off by name, which defaults no longer change.
    is_chosen: [bool; ROWS.len()],
    /// The enabled plugins that exist here, in the order in which they are called.
    asked: Vec<&'static dyn Plugin>,
}

/// Why a choice of plugins is invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PluginsError {
    /// A plugin is enabled and disabled.
    #[error("the admission plugin {name} is enabled and disabled: do one of them")]
    Both { name: String },
    /// kube-apiserver has no such plugin.
    #[error("there is no admission plugin {name:?}: want one of {known}", known = known().join(", "))]
    Unknown { name: String },
}

// === impl Plugins ===

impl Default for Plugins {
    /// The defaults of kube-apiserver, without ServiceAccount and StorageObjectInUseProtection, which need control
    /// loops: without the loop that creates the account `default` no pod could be created, and without the loops that
    /// remove the finalizers no claim, volume or volume attributes class could be deleted. A server that runs these
    /// loops enables both.
    fn default() -> Plugins {
        Plugins::of(|row| row.is_on == IsOn::Always)
    }
}

impl Plugins {
    /// The defaults of kube-apiserver.
    pub fn of_upstream() -> Plugins {
        Plugins::of(|row| matches!(row.is_on, IsOn::Always | IsOn::InUpstream))
    }

    /// Only the plugins of a list.
    ///
    /// # Errors
    /// When a name is unknown.
    pub fn only<S: AsRef<str>>(names: &[S]) -> Result<Plugins, PluginsError> {
        let mut plugins = Plugins::of(|row| row.name.is_empty() && row.is_on == IsOn::Always);
        plugins.switch(names, true)?;
        plugins.is_chosen = [true; ROWS.len()];
        Ok(plugins)
    }

    /// The same plugins, with some enabled and some disabled.
    ///
    /// # Errors
    /// When a name is unknown, or is in both lists.
    pub fn with<S: AsRef<str>>(mut self, enabled: &[S], disabled: &[S]) -> Result<Plugins, PluginsError> {
        self.switch(enabled, true)?;
        self.switch(disabled, false)?;
        let is_in_both = |name: &&S| disabled.iter().any(|other| other.as_ref() == name.as_ref());
        match enabled.iter().find(is_in_both) {
            Some(name) => Err(PluginsError::Both { name: name.as_ref().to_owned() }),
            None => Ok(self),
        }
    }

    /// Whether a plugin is on. The stand-in for kube-apiserver accepts plugins that Steersman does not have: those can be on and have no effect.
    pub fn is_on(&self, name: &str) -> bool {
        ROWS.iter().zip(self.is_on).any(|(row, is_on)| is_on && row.name == name)
    }

    /// Whether the plugin is implemented here.
    pub fn exists(name: &str) -> bool {
        ROWS.iter().any(|row| row.name == name && row.plugin.is_some())
    }

    /// The plugins of a server with the node authorizer: NodeRestriction is on unless it was disabled.
    pub(crate) fn with_nodes(mut self) -> Plugins {
        for (position, _) in ROWS.iter().enumerate().filter(|(_, row)| row.is_on == IsOn::WithNodes) {
            self.is_on[position] |= !self.is_chosen[position];
        }
        self.collect();
        self
    }

    /// The plugins of a server with initializers: their plugin is on.
    pub(crate) fn with_initializers(mut self) -> Plugins {
        for (is_on, row) in self.is_on.iter_mut().zip(&ROWS) {
            *is_on |= row.is_on == IsOn::WithInitializers;
        }
        self.collect();
        self
    }

    /// The enabled plugins that exist here, in the order in which they are called.
    pub(crate) fn asked(self) -> Vec<&'static dyn Plugin> {
        self.asked
    }

    fn of(wanted: impl Fn(&Row) -> bool) -> Plugins {
        let mut is_on = [false; ROWS.len()];
        for (slot, row) in is_on.iter_mut().zip(&ROWS) {
            *slot = wanted(row);
        }
        let mut plugins = Plugins { is_on, is_chosen: [false; ROWS.len()], asked: Vec::new() };
        plugins.collect();
        plugins
    }

    fn switch<S: AsRef<str>>(&mut self, names: &[S], on: bool) -> Result<(), PluginsError> {
        for name in names.iter().map(AsRef::as_ref) {
            let found = ROWS.iter().position(|row| row.name == name && !name.is_empty());
            let position = found.ok_or_else(|| PluginsError::Unknown { name: name.to_owned() })?;
            self.is_on[position] = on;
            self.is_chosen[position] = true;
        }
        self.collect();
        Ok(())
    }

    fn collect(&mut self) {
        let on = ROWS.iter().zip(self.is_on).filter(|(_, is_on)| *is_on);
        self.asked = on.filter_map(|(row, _)| row.plugin).collect();
    }
}

impl fmt::Debug for Plugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.asked).finish()
    }
}

/// All names, in alphabetical order.
fn known() -> Vec<&'static str> {
    let mut names: Vec<&str> = ROWS.iter().map(|row| row.name).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_switched_by_name() {
        let plugins = Plugins::default();
        assert!(plugins.is_on("LimitRanger") && !plugins.is_on("ServiceAccount") && !plugins.is_on("AlwaysPullImages"));
        assert!(Plugins::of_upstream().is_on("ServiceAccount"));
        let changed = plugins.with(&["AlwaysPullImages"], &["LimitRanger"]).unwrap();
        assert!(changed.is_on("AlwaysPullImages") && !changed.is_on("LimitRanger") && changed.is_on("ResourceQuota"));
        let only = Plugins::only(&["Priority"]).unwrap();
        assert_eq!(format!("{:?}", only.clone().with_nodes()), "[AppArmor, Priority]", "a list has all");
        assert!(Plugins::default().with_nodes().is_on("NodeRestriction"));
        assert!(!Plugins::default().with(&[], &["NodeRestriction"]).unwrap().with_nodes().is_on("NodeRestriction"));
        assert_eq!(format!("{only:?}"), "[AppArmor, Priority]");
    }

    #[test]
    fn what_is_unknown_or_contradicts_itself_is_refused() {
        let both = Plugins::default().with(&["Priority"], &["Priority"]).unwrap_err();
        assert_eq!(both, PluginsError::Both { name: "Priority".to_owned() });
        let unknown = Plugins::default().with(&["priority"], &[]).unwrap_err().to_string();
        assert!(
            unknown.starts_with("there is no admission plugin \"priority\": want one of AlwaysAdmit, "),
            "{unknown}"
        );
        assert!(Plugins::only(&[""]).is_err(), "what no flag switches has no name");
    }
}
