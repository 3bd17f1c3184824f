//! The kind Network. `crd.yaml` is made of this, and `client.rs` of `crd.yaml`.
//!
//! It has no status, as `+genclient:noStatus` says for Go.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// Describes a network with one subnet.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "samplecrd.k8s.io",
    version = "v1",
    kind = "Network",
    plural = "networks",
    namespaced,
    doc = "Network describes a Network resource.",
    annotation("api-approved.kubernetes.io", "unapproved, sample"),
    derive = "PartialEq",
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct NetworkSpec {
    /// The addresses of the subnet, such as 192.168.0.0/16.
    pub cidr: String,
    /// The address of its router.
    pub gateway: String,
}
