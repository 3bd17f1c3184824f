//! The objects that nodes, and kubeadm on them, expect in a cluster. They are those that `kubeadm init` makes
//! (`cmd/kubeadm/app/phases`), so that `kubeadm join` finds them too.

use crate::Failure;
use crate::commands::node::ClusterFacts;
use crate::commands::node::token::GROUP;
use crate::data_dir::kubeconfig::yaml;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt;

const PUBLIC: &str = "kube-public";
const SYSTEM: &str = "kube-system";
/// The domain of Services in DNS.
const DOMAIN: &str = "cluster.local";
const NODES: &str = "system:nodes";
/// The ConfigMap with the CA and the URL of the server, which the loop `bootstrapsigner` signs.
const CLUSTER_INFO: &str = "cluster-info";

/// The ClusterRoles that are bound to groups: the name of the binding, the role, and the group.
const BINDINGS: [(&str, &str, &str); 4] = [
    ("kubeadm:get-nodes", "kubeadm:get-nodes", GROUP),
    ("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", GROUP),
    ("kubeadm:node-autoapprove-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", GROUP),
    (
        "kubeadm:node-autoapprove-certificate-rotation",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        NODES,
    ),
];

/// A ConfigMap that some may read, with the role that allows it.
struct Readable {
    namespace: &'static str,
    role: &'static str,
    name: &'static str,
    key: &'static str,
    content: String,
    readers: Value,
}

/// Makes the objects unless they exist. An existing `cluster-info` gets the CA and the URL that are right now; the others
/// stay as they are, for administrators may have changed them.
pub(super) async fn apply(client: &Client, facts: &ClusterFacts) -> Result<(), Failure> {
    let rules = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]);
    create::<ClusterRole>(
        &Api::all(client.clone()),
        &json!({"metadata": {"name": "kubeadm:get-nodes"}, "rules": rules}),
    )
    .await?;
    for (name, role, group) in BINDINGS {
        let binding = json!({
            "metadata": {"name": name}, "roleRef": role_ref("ClusterRole", role), "subjects": [subject("Group", group)],
        });
        create::<ClusterRoleBinding>(&Api::all(client.clone()), &binding).await?;
    }
    for readable in readables(facts)? {
        readable.apply(client).await?;
    }
    Ok(())
}

fn readables(facts: &ClusterFacts) -> anyhow::Result<[Readable; 3]> {
    let found = json!({
        "apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster": facts.cluster()}],
        "contexts": [], "current-context": "", "preferences": {}, "users": [],
    });
    let kubeadm = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration",
        "clusterName": "kubernetes", "controlPlaneEndpoint": facts.host(), "kubernetesVersion": facts.version,
        "networking": {"dnsDomain": DOMAIN, "serviceSubnet": facts.services.to_string()},
    });
    let joining = || json!([subject("Group", GROUP), subject("Group", NODES)]);
    Ok([
        Readable {
            namespace: PUBLIC,
            role: "kubeadm:bootstrap-signer-clusterinfo",
            name: CLUSTER_INFO,
            key: "kubeconfig",
            content: yaml(&found)?,
            readers: json!([subject("User", "system:anonymous")]),
        },
        Readable {
            namespace: SYSTEM,
            role: "kubeadm:nodes-kubeadm-config",
            name: "kubeadm-config",
            key: "ClusterConfiguration",
            content: yaml(&kubeadm)?,
            readers: joining(),
        },
        Readable {
            namespace: SYSTEM,
            role: "kubeadm:kubelet-config",
            name: "kubelet-config",
            key: "kubelet",
            content: yaml(&kubelet_configuration(facts, "/etc/kubernetes/pki/ca.crt"))?,
            readers: joining(),
        },
    ])
}

/// The configuration of a kubelet whose CA lies in a file.
pub(super) fn kubelet_configuration(facts: &ClusterFacts, ca_file: &str) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": true}, "x509": {"clientCAFile": ca_file},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [facts.dns().to_string()],
        "clusterDomain": DOMAIN,
        "rotateCertificates": true,
        "serverTLSBootstrap": true,
    })
}

impl Readable {
    async fn apply(self, client: &Client) -> Result<(), Failure> {
        let Readable { namespace, role, name, key, content, readers } = self;
        let rules =
            json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name], "verbs": ["get"]}]);
        let metadata = json!({"name": role});
        create_in::<Role>(client, namespace, &json!({"metadata": metadata, "rules": rules})).await?;
        let binding = json!({"metadata": metadata, "roleRef": role_ref("Role", role), "subjects": readers});
        create_in::<RoleBinding>(client, namespace, &binding).await?;
        let data = json!({key: content});
        let is_new =
            create_in::<ConfigMap>(client, namespace, &json!({"metadata": {"name": name}, "data": data})).await?;
        if is_new || name != CLUSTER_INFO {
            return Ok(());
        }
        let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
        let patched = maps.patch(name, &PatchParams::default(), &Patch::Merge(json!({"data": data}))).await;
        patched.map(drop).map_err(|error| refused("written", name, &error))
    }
}

fn role_ref(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})
}

fn subject(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})
}

async fn create_in<K>(client: &Client, namespace: &str, object: &Value) -> Result<bool, Failure>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Serialize,
{
    create::<K>(&Api::namespaced(client.clone(), namespace), object).await
}

/// Creates an object, and says whether it is new.
async fn create<K>(api: &Api<K>, object: &Value) -> Result<bool, Failure>
where
    K: Clone + fmt::Debug + DeserializeOwned + Serialize,
{
    let typed: K = serde_json::from_value(object.clone()).map_err(anyhow::Error::from)?;
    match api.create(&PostParams::default(), &typed).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
        Err(error) => Err(refused("created", object["metadata"]["name"].as_str().unwrap_or_default(), &error)),
    }
}

fn refused(what: &str, name: &str, error: &kube::Error) -> Failure {
    Failure::Refused(format!("{name} cannot be {what}: {}", crate::chain(error)))
}
