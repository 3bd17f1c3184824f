//! Which plugins a server has: the table of all that kube-apiserver 1.36 knows, and what is chosen from it.

use crate::admission::plugin::Plugin;
use crate::admission::{
    always_pull_images, anti_affinity, app_armor, certificates, claim_resize, default_class,
    default_toleration_seconds, extended_resources, external_ips, initializers, limit_ranger, mutating_policy,
    namespace_exists, namespace_lifecycle, node_restriction, node_taint, owner_references, pod_resize, pod_security,
    priority, resource_quota, runtime_class, service_account, storage_protection, topology_labels, validating_policy,
    webhook_plugins,
};
use std::fmt;

/// A plugin as kube-apiserver knows it.
struct Row {
    /// Upstream's name; empty for what no flag switches.
    name: &'static str,
    is_on: IsOn,
    /// `None` if there is no such plugin here.
    plugin: Option<&'static dyn Plugin>,
}

/// Which servers have a plugin unless told otherwise.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum IsOn {
    Always,
    /// Those that stand in for kube-apiserver. The plugin needs a control loop, which others do not know to be running.
    InUpstream,
    Never,
    /// Those with initializers.
    WithInitializers,
    /// Servers that authorize nodes by the objects that belong to them: only this plugin checks the content of their writes.
    WithNodes,
}

/// In upstream's order (`pkg/kubeapiserver/options/plugins.go`), in which they are called.
static ROWS: [Row; 43] = [
    absent("AlwaysAdmit", IsOn::Never),
    absent("NamespaceAutoProvision", IsOn::Never),
    row("NamespaceLifecycle", IsOn::Always, &namespace_lifecycle::NamespaceLifecycle),
    // Upstream does this where it prepares pods.
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
    // Upstream's `Initializers`. It comes and goes with the kind and the field.
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

/// The admission plugins of a server, by the names that kube-apiserver has for them.
#[derive(Clone)]
pub struct Plugins {
    /// By position in [`ROWS`].
    is_on: [bool; ROWS.len()],
    /// Plugins that were switched on or off by name stay so.
    is_chosen: [bool; ROWS.len()],
    /// Those that are on and exist here, in the order in which they are called.
    asked: Vec<&'static dyn Plugin>,
}

/// Why plugins cannot be chosen so.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PluginsError {
    /// It is to be on and off.
    #[error("the admission plugin {name} is enabled and disabled: do one of them")]
    Both { name: String },
    /// kube-apiserver has no such plugin.
    #[error("there is no admission plugin {name:?}: want one of {known}", known = known().join(", "))]
    Unknown { name: String },
}

// === impl Plugins ===

impl Default for Plugins {
    /// Those that kube-apiserver has by default, but for ServiceAccount and StorageObjectInUseProtection: without the control
    /// loop that makes the account `default` no pod could be created, and without those that take their finalizers off no claim,
    /// no volume and no class of volume attributes would ever go away. Who runs these loops switches them on.
    fn default() -> Plugins {
        Plugins::of(|row| row.is_on == IsOn::Always)
    }
}

impl Plugins {
    /// Those that kube-apiserver has by default.
    pub fn of_upstream() -> Plugins {
        Plugins::of(|row| matches!(row.is_on, IsOn::Always | IsOn::InUpstream))
    }

    /// Those of a list and no others.
    ///
    /// # Errors
    /// When a name is unknown.
    pub fn only<S: AsRef<str>>(names: &[S]) -> Result<Plugins, PluginsError> {
        let mut plugins = Plugins::of(|row| row.name.is_empty() && row.is_on == IsOn::Always);
        plugins.switch(names, true)?;
        plugins.is_chosen = [true; ROWS.len()];
        Ok(plugins)
    }

    /// The same plugins, some more and some less.
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

    /// Whether a plugin is on. One that does not exist here can be on too: it does nothing.
    pub fn is_on(&self, name: &str) -> bool {
        ROWS.iter().zip(self.is_on).any(|(row, is_on)| is_on && row.name == name)
    }

    /// Whether there is such a plugin here.
    pub fn exists(name: &str) -> bool {
        ROWS.iter().any(|row| row.name == name && row.plugin.is_some())
    }

    /// The same for a server that authorizes nodes by what belongs to them: with NodeRestriction, unless that was switched off.
    pub(crate) fn with_nodes(mut self) -> Plugins {
        for (position, _) in ROWS.iter().enumerate().filter(|(_, row)| row.is_on == IsOn::WithNodes) {
            self.is_on[position] |= !self.is_chosen[position];
        }
        self.collect();
        self
    }

    /// The same, and the plugin of initializers.
    pub(crate) fn with_initializers(mut self) -> Plugins {
        for (is_on, row) in self.is_on.iter_mut().zip(&ROWS) {
            *is_on |= row.is_on == IsOn::WithInitializers;
        }
        self.collect();
        self
    }

    /// Those that are on and exist here, in the order in which they are called.
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

/// All names, in the order of the alphabet.
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
