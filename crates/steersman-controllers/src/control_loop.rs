//! The table of control loops: their names, their accounts, and how each is put into a manager.
//!
//! Whoever runs loops (the binary, the testkit) goes through [`ControlLoop::ALL`]. A loop gets informers that all loops share, a client as
//! the ServiceAccount that kube-controller-manager's controller of the same job has, and the [`Settings`] of the cluster. What a loop
//! does is in a module of its own.

use crate::settings::Parts;
use std::borrow::Cow;
use std::fmt;
use steersman::{Manager, ManagerError};

/// A loop that a control plane may run.
pub struct ControlLoop {
    /// The name in `--controllers` and of the health check. Metrics and logs have those of the loop's controllers.
    pub name: &'static str,
    /// The ServiceAccount in `kube-system` as which it acts.
    pub account: &'static str,
    /// Whether it runs where nothing is said about it.
    pub is_default: bool,
    /// The name of kube-controller-manager's controller, where it is not `name` and `-controller`.
    upstream: Option<&'static str>,
    /// A shorter name that kube-controller-manager takes, where it is not `name`.
    alias: Option<&'static str>,
    add: fn(Manager, Parts<'_>) -> Manager,
}

// === impl ControlLoop ===

impl ControlLoop {
    /// All loops, by name.
    pub const ALL: &[ControlLoop] = &[
        ControlLoop::new("bootstrapsigner", "bootstrap-signer", crate::bootstrap_tokens::signer::add)
            .off()
            .upstream("bootstrap-signer-controller"),
        ControlLoop::new("certificates", "certificate-controller", crate::certificates::add)
            .upstream("certificatesigningrequest-signing-controller")
            .alias("csrsigning"),
        ControlLoop::new("cronjob", "cronjob-controller", crate::cron_job::add),
        ControlLoop::new("csrapproving", "certificate-controller", crate::certificates::approver::add)
            .upstream("certificatesigningrequest-approving-controller"),
        ControlLoop::new("csrcleaner", "certificate-controller", crate::certificates::cleaner::add)
            .upstream("certificatesigningrequest-cleaner-controller"),
        ControlLoop::new("daemonset", "daemon-set-controller", crate::daemonset::add),
        ControlLoop::new("deployment", "deployment-controller", crate::deployment::add),
        ControlLoop::new("disruption", "disruption-controller", crate::disruption::add),
        ControlLoop::new("endpoint", "endpoint-controller", crate::endpoints::add).upstream("endpoints-controller"),
        ControlLoop::new("endpointslice", "endpointslice-controller", crate::endpoint_slices::add),
        ControlLoop::new(
            "endpointslicemirroring",
            "endpointslicemirroring-controller",
            crate::endpoint_slice_mirroring::add,
        )
        .upstream("endpointslice-mirroring-controller"),
        ControlLoop::new("ephemeral-volume", "ephemeral-volume-controller", crate::volumes::ephemeral::add),
        ControlLoop::new("garbagecollector", "generic-garbage-collector", crate::garbage_collector::add)
            .upstream("garbage-collector-controller"),
        ControlLoop::new(
            "horizontalpodautoscaling",
            "horizontal-pod-autoscaler",
            crate::horizontal_pod_autoscaler::add,
        )
        .upstream("horizontal-pod-autoscaler-controller"),
        ControlLoop::new("job", "job-controller", crate::job::add),
        ControlLoop::new(
            "legacy-serviceaccount-token-cleaner",
            "legacy-service-account-token-cleaner",
            crate::legacy_tokens::add,
        )
        .alias("legacy-service-account-token-cleaner"),
        ControlLoop::new("namespace", "namespace-controller", crate::namespace::add),
        ControlLoop::new("nodelifecycle", "node-controller", crate::node_lifecycle::add)
            .upstream("node-lifecycle-controller"),
        ControlLoop::new("persistentvolume-binder", "persistent-volume-binder", crate::volumes::binder::add),
        ControlLoop::new("podgc", "pod-garbage-collector", crate::pod_gc::add)
            .upstream("pod-garbage-collector-controller"),
        ControlLoop::new("pv-protection", "pv-protection-controller", crate::volumes::protection::add_for_volumes)
            .upstream("persistentvolume-protection-controller"),
        ControlLoop::new("pvc-protection", "pvc-protection-controller", crate::volumes::protection::add_for_claims)
            .upstream("persistentvolumeclaim-protection-controller"),
        ControlLoop::new("replicaset", "replicaset-controller", crate::replicas::add_sets),
        ControlLoop::new("replicationcontroller", "replication-controller", crate::replicas::add_controllers),
        ControlLoop::new("resourceclaim", "resource-claim-controller", crate::resource_claims::add)
            .alias("resource-claim-controller"),
        ControlLoop::new("resourcequota", "resourcequota-controller", crate::resource_quota::add),
        ControlLoop::new("root-ca-certificate-publisher", "root-ca-cert-publisher", crate::root_ca::add)
            .alias("root-ca-cert-publisher"),
        ControlLoop::new("service-cidr", "service-cidrs-controller", crate::service_cidr::add),
        ControlLoop::new("serviceaccount", "service-account-controller", crate::service_account::add),
        ControlLoop::new("statefulset", "statefulset-controller", crate::statefulset::add),
        ControlLoop::new("taint-eviction-controller", "node-controller", crate::taint_eviction::add)
            .upstream("taint-eviction-controller"),
        ControlLoop::new("tokencleaner", "token-cleaner", crate::bootstrap_tokens::cleaner::add)
            .off()
            .upstream("token-cleaner-controller"),
        ControlLoop::new("ttl", "ttl-controller", crate::node_ttl::add),
        ControlLoop::new("ttl-after-finished", "ttl-after-finished-controller", crate::ttl_after_finished::add),
        ControlLoop::new(
            "volumeattributesclass-protection",
            "volumeattributesclass-protection-controller",
            crate::volumes::attributes::add,
        ),
    ];

    /// The user whose client the shared informers of all loops use.
    pub const READER: &str = "system:kube-controller-manager";

    const fn new(name: &'static str, account: &'static str, add: fn(Manager, Parts<'_>) -> Manager) -> ControlLoop {
        ControlLoop { name, account, is_default: true, upstream: None, alias: None, add }
    }

    /// The same, running only where it is named.
    const fn off(self) -> ControlLoop {
        ControlLoop { is_default: false, ..self }
    }

    /// The same, of which kube-controller-manager's controller has another name.
    const fn upstream(self, name: &'static str) -> ControlLoop {
        ControlLoop { upstream: Some(name), ..self }
    }

    /// The same, which kube-controller-manager also takes under another name.
    const fn alias(self, name: &'static str) -> ControlLoop {
        ControlLoop { alias: Some(name), ..self }
    }

    /// What kube-controller-manager calls its controller of the same job.
    pub fn upstream_name(&self) -> Cow<'static, str> {
        self.upstream.map_or_else(|| format!("{}-controller", self.name).into(), Cow::Borrowed)
    }

    /// The loop of a name, or of a name that kube-controller-manager takes for its controller: `deployment` or
    /// `deployment-controller`.
    pub fn named(name: &str) -> Option<&'static ControlLoop> {
        let has_name = |one: &&ControlLoop| one.name == name || one.upstream_name() == name || one.alias == Some(name);
        ControlLoop::ALL.iter().find(has_name)
    }

    /// Runs the loop until `shutdown` resolves; passes under way end first. The manager comes with the informers of all loops, and with
    /// the metrics, the health checks and the election that are wanted.
    ///
    /// # Errors
    /// When a controller of the loop cannot be run, or was cut off at the end.
    pub async fn run(
        &self,
        manager: Manager,
        parts: Parts<'_>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ManagerError> {
        (self.add)(manager.name(self.name), parts).run(shutdown).await
    }
}

impl fmt::Debug for ControlLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlLoop").field("name", &self.name).field("account", &self.account).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_names_are_unique() {
        let names: Vec<&str> = ControlLoop::ALL.iter().map(|one| one.name).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    }

    #[test]
    fn loops_are_found_by_their_names_and_by_those_of_upstream() {
        let found = |name: &str| ControlLoop::named(name).map(|one| one.name);
        assert_eq!(found("deployment"), Some("deployment"));
        assert_eq!(found("deployment-controller"), Some("deployment"));
        assert_eq!(found("taint-eviction-controller"), Some("taint-eviction-controller"));
        assert_eq!(found("node-lifecycle-controller"), Some("nodelifecycle"));
        assert_eq!(found("nodelifecycle-controller"), None);
        assert_eq!(found("csrsigning"), Some("certificates"));
        for one in ControlLoop::ALL {
            assert_eq!((found(one.name), found(&one.upstream_name())), (Some(one.name), Some(one.name)));
        }
    }
}
