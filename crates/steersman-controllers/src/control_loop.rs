//! The table of control loops: their names, their users, and the functions that add them to a manager.
//!
//! Programs that run loops (the binary, the testkit) use [`ControlLoop::ALL`]. A loop gets informers that all loops
//! share, a client that acts as its [`Identity`], the user of kube-controller-manager's corresponding controller, and the
//! [`Settings`](crate::Settings) of the cluster. Each loop has a module of its own.

use crate::identity::Identity;
use crate::loops::access::certificates::serving_approver;
use crate::scheduler::Scheduler;
use crate::settings::Parts;
use std::borrow::Cow;
use std::fmt;
use steersman::{Manager, ManagerError};

/// A loop that a control plane may run.
pub struct ControlLoop {
    /// The name in `--controllers` and of the health check. Metrics and logs use the names of the loop's controllers.
    pub name: &'static str,
    /// Where the loop runs by default.
    pub activation: Activation,
    writer: Writer,
    /// The name of kube-controller-manager's controller, if it is not `name` with the suffix `-controller`.
    upstream: Option<&'static str>,
    /// A shorter name that kube-controller-manager accepts, if it is not `name`.
    alias: Option<&'static str>,
    add: Add,
}

type Add = fn(Manager, Parts<'_>) -> Manager;

/// Where a loop runs by default.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Activation {
    /// In every cluster.
    Always,
    /// In a cluster that nodes may join.
    WhereNodesJoin,
}

/// The user as whom a loop writes.
#[derive(Clone, Copy, Debug)]
enum Writer {
    /// A ServiceAccount in `kube-system`.
    Account(&'static str),
    /// A user of this name, with this `User-Agent`.
    User(&'static str, &'static str),
}

// === impl ControlLoop ===

impl ControlLoop {
    /// All loops, by name.
    pub const ALL: &[ControlLoop] = &[
        ControlLoop::new("bootstrapsigner", "bootstrap-signer", crate::loops::access::bootstrap_tokens::signer::add)
            .where_nodes_join()
            .upstream("bootstrap-signer-controller"),
        ControlLoop::new("certificates", "certificate-controller", crate::loops::access::certificates::add)
            .upstream("certificatesigningrequest-signing-controller")
            .alias("csrsigning"),
        ControlLoop::new("cronjob", "cronjob-controller", crate::loops::workloads::cron_job::add),
        ControlLoop::new("csrapproving", "certificate-controller", crate::loops::access::certificates::approver::add)
            .upstream("certificatesigningrequest-approving-controller"),
        ControlLoop::new("csrcleaner", "certificate-controller", crate::loops::access::certificates::cleaner::add)
            .upstream("certificatesigningrequest-cleaner-controller"),
        ControlLoop::new("daemonset", "daemon-set-controller", crate::loops::workloads::daemonset::add),
        ControlLoop::new("deployment", "deployment-controller", crate::loops::workloads::deployment::add),
        ControlLoop::new("disruption", "disruption-controller", crate::loops::scaling::disruption::add),
        ControlLoop::new("endpoint", "endpoint-controller", crate::loops::network::endpoints::add)
            .upstream("endpoints-controller"),
        ControlLoop::new("endpointslice", "endpointslice-controller", crate::loops::network::endpoint_slices::add),
        ControlLoop::new(
            "endpointslicemirroring",
            "endpointslicemirroring-controller",
            crate::loops::network::endpoint_slice_mirroring::add,
        )
        .upstream("endpointslice-mirroring-controller"),
        ControlLoop::new(
            "ephemeral-volume",
            "ephemeral-volume-controller",
            crate::loops::storage::volumes::ephemeral::add,
        ),
        ControlLoop::new(
            "garbagecollector",
            "generic-garbage-collector",
            crate::loops::cleanup::garbage_collector::add,
        )
        .upstream("garbage-collector-controller"),
        ControlLoop::new(
            "horizontalpodautoscaling",
            "horizontal-pod-autoscaler",
            crate::loops::scaling::horizontal_pod_autoscaler::add,
        )
        .upstream("horizontal-pod-autoscaler-controller"),
        ControlLoop::new("job", "job-controller", crate::loops::workloads::job::add),
        ControlLoop::of_user(
            serving_approver::NAME,
            (serving_approver::USER, serving_approver::NAME),
            serving_approver::add,
        )
        .where_nodes_join()
        .upstream(serving_approver::NAME),
        ControlLoop::new(
            "legacy-serviceaccount-token-cleaner",
            "legacy-service-account-token-cleaner",
            crate::loops::access::legacy_tokens::add,
        )
        .alias("legacy-service-account-token-cleaner"),
        ControlLoop::new("namespace", "namespace-controller", crate::loops::cleanup::namespace::add),
        ControlLoop::new("nodelifecycle", "node-controller", crate::loops::nodes::node_lifecycle::add)
            .upstream("node-lifecycle-controller"),
        ControlLoop::new(
            "persistentvolume-binder",
            "persistent-volume-binder",
            crate::loops::storage::volumes::binder::add,
        ),
        ControlLoop::new("podgc", "pod-garbage-collector", crate::loops::nodes::pod_gc::add)
            .upstream("pod-garbage-collector-controller"),
        ControlLoop::new(
            "pv-protection",
            "pv-protection-controller",
            crate::loops::storage::volumes::protection::add_for_volumes,
        )
        .upstream("persistentvolume-protection-controller"),
        ControlLoop::new(
            "pvc-protection",
            "pvc-protection-controller",
            crate::loops::storage::volumes::protection::add_for_claims,
        )
        .upstream("persistentvolumeclaim-protection-controller"),
        ControlLoop::new("replicaset", "replicaset-controller", crate::loops::workloads::replicas::add_sets),
        ControlLoop::new(
            "replicationcontroller",
            "replication-controller",
            crate::loops::workloads::replicas::add_controllers,
        ),
        ControlLoop::new("resourceclaim", "resource-claim-controller", crate::loops::storage::resource_claims::add)
            .alias("resource-claim-controller"),
        ControlLoop::new("resourcequota", "resourcequota-controller", crate::loops::cleanup::resource_quota::add),
        ControlLoop::new("root-ca-certificate-publisher", "root-ca-cert-publisher", crate::loops::access::root_ca::add)
            .alias("root-ca-cert-publisher"),
        ControlLoop::of_user(ControlLoop::SCHEDULER, (Scheduler::USER, Scheduler::AGENT), crate::scheduler::add)
            .where_nodes_join()
            .upstream("kube-scheduler"),
        ControlLoop::new("service-cidr", "service-cidrs-controller", crate::loops::network::service_cidr::add),
        ControlLoop::new("serviceaccount", "service-account-controller", crate::loops::access::service_account::add),
        ControlLoop::new("statefulset", "statefulset-controller", crate::loops::workloads::statefulset::add),
        ControlLoop::new("taint-eviction-controller", "node-controller", crate::loops::nodes::taint_eviction::add)
            .upstream("taint-eviction-controller"),
        ControlLoop::new("tokencleaner", "token-cleaner", crate::loops::access::bootstrap_tokens::cleaner::add)
            .where_nodes_join()
            .upstream("token-cleaner-controller"),
        ControlLoop::new("ttl", "ttl-controller", crate::loops::nodes::node_ttl::add),
        ControlLoop::new(
            "ttl-after-finished",
            "ttl-after-finished-controller",
            crate::loops::workloads::ttl_after_finished::add,
        ),
        ControlLoop::new(
            "volumeattributesclass-protection",
            "volumeattributesclass-protection-controller",
            crate::loops::storage::volumes::attributes::add,
        ),
    ];

    /// The user of the client for the shared informers of all loops.
    pub const READER: &str = "system:kube-controller-manager";

    /// The loop that binds Pods to nodes.
    pub const SCHEDULER: &str = "scheduler";

    /// The loop that approves the serving certificates of kubelets.
    pub const KUBELET_SERVING_APPROVER: &str = serving_approver::NAME;

    /// The user that the client for the shared informers must act as.
    pub fn reader() -> Identity {
        Identity::user(ControlLoop::READER, "kube-controller-manager")
    }

    const fn new(name: &'static str, account: &'static str, add: Add) -> ControlLoop {
        let (activation, writer) = (Activation::Always, Writer::Account(account));
        ControlLoop { name, activation, writer, upstream: None, alias: None, add }
    }

    /// A loop with a user of its own, given with the `User-Agent`.
    const fn of_user(name: &'static str, user: (&'static str, &'static str), add: Add) -> ControlLoop {
        ControlLoop { writer: Writer::User(user.0, user.1), ..ControlLoop::new(name, "", add) }
    }

    /// The same loop, which runs by default only where nodes may join.
    const fn where_nodes_join(self) -> ControlLoop {
        ControlLoop { activation: Activation::WhereNodesJoin, ..self }
    }

    /// The same loop, with another name of kube-controller-manager's controller.
    const fn upstream(self, name: &'static str) -> ControlLoop {
        ControlLoop { upstream: Some(name), ..self }
    }

    /// The same loop, with another name that kube-controller-manager accepts.
    const fn alias(self, name: &'static str) -> ControlLoop {
        ControlLoop { alias: Some(name), ..self }
    }

    /// The user that the loop's client must act as.
    pub fn identity(&self) -> Identity {
        match self.writer {
            Writer::Account(account) => Identity::controller(account),
            Writer::User(name, agent) => Identity::user(name, agent),
        }
    }

    /// The name of kube-controller-manager's corresponding controller, or of the program that does the same elsewhere.
    pub fn upstream_name(&self) -> Cow<'static, str> {
        self.upstream.map_or_else(|| format!("{}-controller", self.name).into(), Cow::Borrowed)
    }

    /// The loop with this name, or with a name that kube-controller-manager accepts for its controller: `deployment` or
    /// `deployment-controller`.
    pub fn named(name: &str) -> Option<&'static ControlLoop> {
        let has_name = |one: &&ControlLoop| one.name == name || one.upstream_name() == name || one.alias == Some(name);
        ControlLoop::ALL.iter().find(has_name)
    }

    /// Runs the loop until `shutdown` resolves; reconciles in progress end first. The manager must have the informers
    /// of all loops, and the metrics, health checks and election that are wanted.
    ///
    /// # Errors
    /// When a controller of the loop cannot run, or was cut off at the end.
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
        f.debug_struct("ControlLoop").field("name", &self.name).field("writer", &self.writer).finish_non_exhaustive()
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
