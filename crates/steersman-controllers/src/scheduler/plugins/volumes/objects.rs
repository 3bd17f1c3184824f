//! Claims and volumes as the scheduler keeps them.

use crate::scheduler::cluster::node::Node;
use crate::scheduler::plugins::resources;
use crate::scheduler::plugins::volumes::SELECTED_NODE;
use crate::scheduler::plugins::volumes::binding::{ClaimVersion, Reserved};
use crate::shared::labels::{Labels, NodeTerms, Selector};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use steersman::ObjectKey;

/// The annotation of a claim whose binding is complete.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The annotation with the class of a claim or volume, from before there was a field for it.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Claim {
    pub(super) uid: String,
    pub(super) version: String,
    pub(super) volume: String,
    pub(super) class: String,
    pub(super) is_bind_completed: bool,
    pub(super) is_lost: bool,
    pub(super) is_deleting: bool,
    pub(super) is_for_one_pod: bool,
    pub(super) selected_node: Option<String>,
    pub(super) access_modes: Vec<String>,
    pub(super) storage: Option<i64>,
    pub(super) selector: Option<Selector>,
    pub(super) mode: String,
    pub(super) attributes_class: String,
    /// The uid of the Pod that controls it.
    pub(super) pod: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) version: String,
    pub(super) labels: Labels,
    pub(super) nodes: Option<NodeTerms>,
    pub(super) class: String,
    pub(super) storage: i64,
    pub(super) access_modes: Vec<String>,
    pub(super) claim: Option<ClaimRef>,
    pub(super) is_available: bool,
    pub(super) is_deleting: bool,
    pub(super) mode: String,
    pub(super) attributes_class: String,
    pub(super) csi: Option<(String, String)>,
}

#[derive(Clone, Debug)]
pub(super) struct ClaimRef {
    namespace: String,
    name: String,
    pub(super) uid: String,
}

impl Claim {
    pub(super) fn read(claim: &PersistentVolumeClaim) -> Claim {
        let spec = claim.spec.as_ref();
        let annotations = claim.metadata.annotations.as_ref();
        let annotation = |name: &str| annotations.and_then(|all| all.get(name)).cloned();
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let access_modes = spec.and_then(|spec| spec.access_modes.clone()).unwrap_or_default();
        Claim {
            uid: text(claim.metadata.uid.as_ref()),
            version: text(claim.metadata.resource_version.as_ref()),
            volume: text(spec.and_then(|spec| spec.volume_name.as_ref())),
            class: annotation(CLASS).unwrap_or_else(|| text(spec.and_then(|spec| spec.storage_class_name.as_ref()))),
            is_bind_completed: annotation(BIND_COMPLETED).is_some(),
            is_lost: claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost"),
            is_deleting: claim.metadata.deletion_timestamp.is_some(),
            is_for_one_pod: access_modes.iter().any(|mode| mode == "ReadWriteOncePod"),
            selected_node: annotation(SELECTED_NODE),
            storage: resources::storage(
                spec.and_then(|spec| spec.resources.as_ref()).and_then(|resources| resources.requests.as_ref()),
            ),
            selector: spec.and_then(|spec| spec.selector.as_ref()).map(|selector| Selector::read(Some(selector))),
            mode: mode(spec.and_then(|spec| spec.volume_mode.as_ref())),
            attributes_class: text(spec.and_then(|spec| spec.volume_attributes_class_name.as_ref())),
            pod: claim
                .metadata
                .owner_references
                .iter()
                .flatten()
                .find(|owner| owner.controller == Some(true))
                .map(|owner| owner.uid.clone()),
            access_modes,
        }
    }

    pub(super) fn is_bound(&self) -> bool {
        !self.volume.is_empty() && self.is_bind_completed
    }

    pub(super) fn at_version(&self, key: &ObjectKey) -> ClaimVersion {
        ClaimVersion { key: key.clone(), uid: self.uid.clone(), version: self.version.clone() }
    }
}

fn mode(mode: Option<&String>) -> String {
    mode.cloned().unwrap_or_else(|| "Filesystem".to_owned())
}

impl Volume {
    pub(super) fn read(volume: &PersistentVolume) -> Volume {
        let spec = volume.spec.as_ref();
        let annotations = volume.metadata.annotations.as_ref();
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let class = annotations.and_then(|all| all.get(CLASS)).cloned();
        let required = spec.and_then(|spec| spec.node_affinity.as_ref()).and_then(|nodes| nodes.required.as_ref());
        Volume {
            version: text(volume.metadata.resource_version.as_ref()),
            labels: volume.metadata.labels.clone().unwrap_or_default(),
            nodes: required.map(NodeTerms::read),
            class: class.unwrap_or_else(|| text(spec.and_then(|spec| spec.storage_class_name.as_ref()))),
            storage: resources::storage(spec.and_then(|spec| spec.capacity.as_ref())).unwrap_or_default(),
            access_modes: spec.and_then(|spec| spec.access_modes.clone()).unwrap_or_default(),
            claim: spec.and_then(|spec| spec.claim_ref.as_ref()).map(ClaimRef::read),
            is_available: volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available"),
            is_deleting: volume.metadata.deletion_timestamp.is_some(),
            mode: mode(spec.and_then(|spec| spec.volume_mode.as_ref())),
            attributes_class: text(spec.and_then(|spec| spec.volume_attributes_class_name.as_ref())),
            csi: spec
                .and_then(|spec| spec.csi.as_ref())
                .map(|source| (source.driver.clone(), source.volume_handle.clone())),
        }
    }

    /// Whether the volume is reserved for this claim, by a user or the binder.
    pub(super) fn reserved(&self, key: &ObjectKey, claim: &Claim) -> Reserved {
        let Some(known) = &self.claim else { return Reserved::No };
        let is_name = Some(known.namespace.as_str()) == key.namespace() && known.name == key.name();
        match known.uid.as_str() {
            "" if is_name => Reserved::ByName,
            uid if is_name && uid == claim.uid => Reserved::Yes,
            _ => Reserved::No,
        }
    }

    pub(super) fn is_reachable(&self, node: &Node) -> bool {
        // A volume's terms match labels only, so the node's name is not needed.
        self.nodes.as_ref().is_none_or(|nodes| nodes.matches("", &node.facts().labels))
    }
}

impl ClaimRef {
    fn read(reference: &ObjectReference) -> ClaimRef {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        ClaimRef { namespace: text(&reference.namespace), name: text(&reference.name), uid: text(&reference.uid) }
    }
}
