//! The node authorizer: a kubelet may read the objects that the pods on its node refer to, and write its own objects.
//! Follows kubernetes' `plugin/pkg/auth/authorizer/node`.
//!
//! A graph records which objects belong to a node; tasks of the server update it from the store (`follower`). As
//! upstream, it may lag for a moment: a kubelet that is refused tries again. The admission plugin NodeRestriction
//! further limits the content of the writes that are allowed here.

pub(crate) mod follower;
mod graph;

use crate::access::authz::node::graph::{Graph, Kind};
use crate::access::authz::{Authorizer, Decision, Rules, Verdict};
use crate::shared::operation::{Attributes, ResourceAttributes};
use futures::future::{self, BoxFuture};
use parking_lot::RwLock;
use std::borrow::Cow;
use steersman_kinds::user::User;
use tokio::sync::watch;

/// The namespace in which nodes renew their leases.
const LEASES: &str = "kube-node-lease";
const WRITES_OF_OWN: [&str; 5] = ["create", "delete", "get", "patch", "update"];
const READS: [&str; 3] = ["get", "list", "watch"];

/// The permissions of every node: groups, resource with subresource, verbs.
const OF_ALL: [(&[&str], &str, &[&str]); 9] = [
    (&["authentication.k8s.io"], "tokenreviews", &["create"]),
    (&["authorization.k8s.io"], "localsubjectaccessreviews", &["create"]),
    (&["authorization.k8s.io"], "subjectaccessreviews", &["create"]),
    (&[""], "services", &READS),
    (&["", "events.k8s.io"], "events", &["create", "patch", "update"]),
    (&[""], "endpoints", &["get"]),
    (&["certificates.k8s.io"], "certificatesigningrequests", &["create", "get", "list", "watch"]),
    (&["storage.k8s.io"], "csidrivers", &READS),
    (&["node.k8s.io"], "runtimeclasses", &READS),
];

/// The graph of the objects that belong to each node.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    graph: RwLock<Graph>,
    /// Notified when the graph has changed.
    changed: watch::Sender<()>,
}

/// Why a request is not allowed; empty where upstream gives no reason.
type Refusal = Cow<'static, str>;

impl Nodes {
    /// Notified when what belongs to nodes has changed.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn verdict(&self, user: &User, attributes: &Attributes<'_>) -> Verdict {
        let Some(node) = user.node_name() else { return Verdict::NO_OPINION };
        let checked = match attributes {
            _ if node.is_empty() => Err(format!("unknown node for user {:?}", user.name).into()),
            Attributes::NonResource { .. } => Err(Refusal::Borrowed("")),
            Attributes::Resource(asked) => self.check(node, asked),
        };
        match checked {
            Ok(()) => Verdict::ALLOW,
            Err(why) => Verdict { decision: Decision::NoOpinion, reason: why.into_owned().into(), error: None },
        }
    }

    fn check(&self, node: &str, asked: &ResourceAttributes<'_>) -> Result<(), Refusal> {
        let subresource = asked.subresource.unwrap_or_default();
        match (asked.group, asked.resource) {
            ("", "secrets") => self.check_read(node, Kind::Secret, asked),
            ("", "configmaps") => self.check_read(node, Kind::ConfigMap, asked),
            ("", "persistentvolumeclaims") if subresource == "status" => match asked.verb {
                "patch" | "update" => self.check_related(node, Kind::Claim, asked),
                _ => Err("can only get/update/patch this type".into()),
            },
            ("", "persistentvolumeclaims") => self.check_get(node, Kind::Claim, asked),
            ("", "persistentvolumes") => self.check_get(node, Kind::Volume, asked),
            ("resource.k8s.io", "resourceclaims") => self.check_get(node, Kind::ResourceClaim, asked),
            ("storage.k8s.io", "volumeattachments") => self.check_get(node, Kind::Attachment, asked),
            ("", "serviceaccounts") => self.check_account(node, asked),
            ("coordination.k8s.io", "leases") => check_lease(node, asked),
            ("storage.k8s.io", "csinodes") => check_csi_node(node, asked),
            ("resource.k8s.io", "resourceslices") => self.check_slice(node, asked),
            ("", "nodes") => check_node(node, asked),
            ("", "pods") => self.check_pod(node, asked),
            (group, resource) => {
                let is_it = |(groups, of, verbs): &(&[&str], &str, &[&str])| {
                    groups.contains(&group) && *of == resource && subresource.is_empty() && verbs.contains(&asked.verb)
                };
                if OF_ALL.iter().any(is_it) { Ok(()) } else { Err("".into()) }
            }
        }
    }

    /// Whether an object belongs to the node.
    fn check_related(&self, node: &str, kind: Kind, asked: &ResourceAttributes<'_>) -> Result<(), Refusal> {
        let Some(name) = asked.name.filter(|name| !name.is_empty()) else {
            return Err("No Object name found".into());
        };
        let namespace = asked.namespace.unwrap_or_default();
        if self.graph.read().is_related(node, kind, namespace, name) {
            return Ok(());
        }
        Err(format!("no relationship found between node '{node}' and this object").into())
    }

    fn check_get(&self, node: &str, kind: Kind, asked: &ResourceAttributes<'_>) -> Result<(), Refusal> {
        if asked.verb != "get" {
            return Err("can only get individual resources of this type".into());
        }
        if asked.subresource.is_some() {
            return Err("cannot get subresource".into());
        }
        self.check_related(node, kind, asked)
    }

    fn check_read(&self, node: &str, kind: Kind, asked: &ResourceAttributes<'_>) -> Result<(), Refusal> {
        if !READS.contains(&asked.verb) {
            return Err("can only read resources of this type".into());
        }
        if asked.subresource.is_some() {
            return Err("cannot read subresource".into());
        }
        if asked.namespace.is_none_or(str::is_empty) {
            return Err("can only read namespaced object of this type".into());
        }
        self.check_related(node, kind, asked)
    }

    fn check_account(&self, node: &str, asked: &ResourceAttributes<'_>) -> Result<(), Refusal> {
        if asked.verb == "get" && asked.subresource.is_none() {
            return self.check_read(node, Kind::ServiceAccount, asked);
        }
        if asked.verb != "create" || asked.name.is_none_or(str::is_empty) {
            return Err("can only create tokens for individual service accounts".into());
        }
        if asked.subresource != Some("token") {
            return Err("can only create token subresource of serviceaccount".into());
        }
        self.check_related(node, Kind::ServiceAccount, asked)
    }

    fn check_slice(&self, node: &str, asked: &ResourceAttributes<'_>) -> Result<(), Refusal> {
        if asked.subresource.is_some() {
            return Err("cannot authorize ResourceSlice subresources".into());
        }
        match asked.verb {
            // NodeRestriction checks the node that the new object names.
            "create" => Ok(()),
            "delete" | "get" | "patch" | "update" => self.check_related(node, Kind::Slice, asked),
            "deletecollection" | "list" | "watch" if selects(asked, "spec.nodeName", node) => Ok(()),
            "deletecollection" | "list" | "watch" => {
                Err("can only list/watch/deletecollection resourceslices with nodeName field selector".into())
            }
            _ => Err("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection".into()),
        }
    }

    fn check_pod(&self, node: &str, asked: &ResourceAttributes<'_>) -> Result<(), Refusal> {
        match (asked.subresource.unwrap_or_default(), asked.verb) {
            ("", "get") => self.check_get(node, Kind::Pod, asked),
            ("", "list" | "watch") if selects(asked, "spec.nodeName", node) => Ok(()),
            ("", "list" | "watch") if asked.name.is_some() => self.check_related(node, Kind::Pod, asked),
            ("", "list" | "watch") => Err("can only list/watch pods with spec.nodeName field selector".into()),
            // NodeRestriction checks that the pod is on the node.
            ("", "create" | "delete") | ("eviction", "create") | ("status", "patch" | "update") => Ok(()),
            _ => Err("".into()),
        }
    }
}

fn check_lease(node: &str, asked: &ResourceAttributes<'_>) -> Result<(), Refusal> {
    if !WRITES_OF_OWN.contains(&asked.verb) {
        return Err("can only get, create, update, patch, or delete a node lease".into());
    }
    if asked.namespace != Some(LEASES) {
        return Err(format!("can only access leases in the {LEASES:?} system namespace").into());
    }
    // The name of a new object is in the body, which NodeRestriction checks.
    if asked.verb != "create" && asked.name != Some(node) {
        return Err("can only access node lease with the same name as the requesting node".into());
    }
    Ok(())
}

fn check_csi_node(node: &str, asked: &ResourceAttributes<'_>) -> Result<(), Refusal> {
    if !WRITES_OF_OWN.contains(&asked.verb) {
        return Err("can only get, create, update, patch, or delete a CSINode".into());
    }
    if asked.subresource.is_some() {
        return Err("cannot authorize CSINode subresources".into());
    }
    if asked.verb != "create" && asked.name != Some(node) {
        return Err("can only access CSINode with the same name as the requesting node".into());
    }
    Ok(())
}

fn check_node(node: &str, asked: &ResourceAttributes<'_>) -> Result<(), Refusal> {
    match (asked.subresource.unwrap_or_default(), asked.verb) {
        // NodeRestriction checks that it is the node's own object.
        ("", "create" | "patch" | "update") | ("status", "patch" | "update") => Ok(()),
        // By the name alone: a kubelet reads its Node before that exists.
        ("", "get" | "list" | "watch") => match asked.name.unwrap_or_default() {
            "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object").into()),
            name if name == node => Ok(()),
            name => Err(format!("node '{node}' cannot read '{name}', only its own Node object").into()),
        },
        _ => Err("".into()),
    }
}

/// Whether a field selector restricts a request to the objects of a node.
fn selects(asked: &ResourceAttributes<'_>, field: &str, node: &str) -> bool {
    let requirements = asked.field_selector.into_iter().flat_map(|fields| &fields.requirements);
    requirements.into_iter().any(|one| one.field == field && one.equal && one.value == node)
}

impl Authorizer for Nodes {
    fn authorize_now(&self, user: &User, attributes: &Attributes<'_>) -> Option<Verdict> {
        Some(self.verdict(user, attributes))
    }

    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Verdict> {
        Box::pin(future::ready(self.verdict(user, attributes)))
    }

    /// No rules: those of nodes are not listed, and other users get none from this authorizer.
    fn rules_for<'a>(&'a self, user: &'a User, _: &'a str) -> BoxFuture<'a, Rules> {
        let error = user.node_name().map(|_| "node authorizer does not support user rule resolution".to_owned());
        Box::pin(future::ready(Rules { is_incomplete: error.is_some(), error, ..Rules::default() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use steersman_machinery::{ObjectKey, selector};

    fn nodes() -> Nodes {
        let nodes = Nodes::default();
        let pod: Value = json!({"metadata": {"name": "p"}, "spec": {
            "nodeName": "n1", "serviceAccountName": "a",
            "volumes": [{"name": "s", "secret": {"secretName": "s"}}, {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}],
        }});
        let volume = json!({"spec": {
            "claimRef": {"namespace": "team", "name": "c"}, "csi": {"nodeStageSecretRef": {"namespace": "storage", "name": "stage"}},
        }});
        let mut graph = nodes.graph.write();
        graph.set_pod(ObjectKey::namespaced("team", "p"), &pod);
        graph.set_volume("v", &volume);
        drop(graph);
        nodes
    }

    #[track_caller]
    fn check(name: &str, asked: ResourceAttributes<'_>, want: Result<(), &str>) {
        let user = User::authenticated(name, ["system:nodes".to_owned()]);
        let verdict = nodes().verdict(&user, &Attributes::Resource(asked));
        let got = if verdict.is_allowed() { Ok(()) } else { Err(verdict.reason.to_string()) };
        assert_eq!(got, want.map_err(str::to_owned));
    }

    fn asked<'a>(verb: &'a str, resource: &'a str, namespace: &'a str, name: &'a str) -> ResourceAttributes<'a> {
        let given = |text: &'a str| Some(text).filter(|text| !text.is_empty());
        let (namespace, name) = (given(namespace), given(name));
        ResourceAttributes { verb, resource, namespace, name, ..ResourceAttributes::default() }
    }

    const N1: &str = "system:node:n1";
    const N2: &str = "system:node:n2";

    #[test]
    fn a_node_reads_what_its_pods_refer_to() {
        let unrelated = Err("no relationship found between node 'n2' and this object");
        for (resource, name) in [("secrets", "s"), ("persistentvolumeclaims", "c")] {
            check(N1, asked("get", resource, "team", name), Ok(()));
            check(N2, asked("get", resource, "team", name), unrelated);
        }
        check(N1, asked("get", "persistentvolumes", "", "v"), Ok(()));
        check(N2, asked("get", "persistentvolumes", "", "v"), unrelated);
        check(N1, asked("watch", "secrets", "storage", "stage"), Ok(()));
        check(N2, asked("watch", "secrets", "storage", "stage"), unrelated);
        let other = Err("no relationship found between node 'n1' and this object");
        check(N1, asked("get", "secrets", "other", "s"), other);
        check(N1, asked("list", "secrets", "team", ""), Err("No Object name found"));
        check(N1, asked("list", "secrets", "", ""), Err("can only read namespaced object of this type"));
        check(N1, asked("delete", "secrets", "team", "s"), Err("can only read resources of this type"));
        let token =
            ResourceAttributes { subresource: Some("token"), ..asked("create", "serviceaccounts", "team", "a") };
        check(N1, token, Ok(()));
        check(N2, token, unrelated);
    }

    #[test]
    fn a_node_lists_its_own_pods_and_no_others() {
        let own = selector::Fields::parse("spec.nodeName=n1").unwrap();
        let narrowed = ResourceAttributes { field_selector: Some(&own), ..asked("list", "pods", "", "") };
        check(N1, narrowed, Ok(()));
        let refused = Err("can only list/watch pods with spec.nodeName field selector");
        check(N2, narrowed, refused);
        check(N1, asked("list", "pods", "", ""), refused);
        check(N1, asked("get", "pods", "team", "p"), Ok(()));
    }

    #[test]
    fn a_node_has_one_lease_and_one_node() {
        let lease = |verb, namespace, name| ResourceAttributes {
            group: "coordination.k8s.io",
            ..asked(verb, "leases", namespace, name)
        };
        check(N1, lease("update", "kube-node-lease", "n1"), Ok(()));
        check(
            N1,
            lease("update", "kube-node-lease", "n2"),
            Err("can only access node lease with the same name as the requesting node"),
        );
        check(
            N1,
            lease("get", "default", "n1"),
            Err("can only access leases in the \"kube-node-lease\" system namespace"),
        );
        check(N1, asked("get", "nodes", "", "n1"), Ok(()));
        check(N1, asked("get", "nodes", "", "n2"), Err("node 'n1' cannot read 'n2', only its own Node object"));
        check(N1, asked("list", "nodes", "", ""), Err("node 'n1' cannot read all nodes, only its own Node object"));
        check(N1, asked("delete", "nodes", "", "n1"), Err(""));
    }

    #[test]
    fn who_is_no_node_is_left_to_others() {
        let mut user = User::authenticated(N1, []);
        let asked = Attributes::Resource(asked("list", "services", "", ""));
        assert_eq!(nodes().verdict(&user, &asked), Verdict::NO_OPINION);
        user.groups.push("system:nodes".to_owned());
        assert!(nodes().verdict(&user, &asked).is_allowed());
        check("system:node:", ResourceAttributes::default(), Err("unknown node for user \"system:node:\""));
    }
}
