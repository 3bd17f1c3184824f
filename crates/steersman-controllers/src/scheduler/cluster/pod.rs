//! Pods as the scheduler keeps them: [`Placed`], which is small and kept for every Pod, and [`Pending`], which adds the
//! Pod's constraints and is dropped with the binding.

use crate::scheduler::configuration::{Extender, Profile, Spread};
use crate::scheduler::plugins::resources::Requests;
use crate::scheduler::plugins::taints::Tolerations;
use crate::shared::host_port::HostPort;
use crate::shared::labels::{Labels, NodeTerm, RequiredNodes, Selector};
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodCondition, PodSpec, Volume, WeightedPodAffinityTerm};
use std::hash::{BuildHasher as _, Hasher, RandomState};
use std::io;
use std::sync::{Arc, LazyLock};
use steersman::ObjectKey;

/// The reason of the condition `DisruptionTarget` of a preempted Pod.
pub(crate) const PREEMPTED: &str = "PreemptionByScheduler";

/// The fields of a Pod that selectors match. Pods of one Deployment share it.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) namespace: String,
    pub(crate) labels: Labels,
}

/// A Pod with the resources that it takes, or would take, on a node.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Arc<str>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) priority: i32,
    pub(crate) requests: Requests,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) affinity: Option<Arc<PodAffinities>>,
    /// Names of the PersistentVolumeClaims that the Pod uses.
    pub(crate) claims: Vec<Arc<str>>,
    pub(crate) disks: Vec<Disk>,
    /// The start time in nanoseconds since the epoch; the greatest number if the Pod has not started.
    pub(crate) started: i128,
    pub(crate) is_deleting: bool,
    /// Whether the Pod is being deleted to make room for another.
    pub(crate) is_preempted: bool,
    pub(crate) generation: i64,
}

/// A Pod that waits for a node.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) pod: Arc<Placed>,
    pub(crate) profile: Arc<Profile>,
    pub(crate) nodes: RequiredNodes,
    pub(crate) preferred_nodes: Vec<(i64, NodeTerm)>,
    pub(crate) tolerations: Tolerations,
    pub(crate) spread: Vec<Spread>,
    /// Images of its containers and image volumes, with a tag.
    pub(crate) images: Vec<String>,
    pub(crate) n_containers: i64,
    pub(crate) volumes: Vec<ClaimUse>,
    pub(crate) preempts: Preempts,
    /// `status.nominatedNodeName`.
    pub(crate) nominated: Option<Arc<str>>,
    pub(crate) is_gated: bool,
    /// Whether it has resource claims.
    pub(crate) has_resource_claims: bool,
    /// The controller of the Pod.
    pub(crate) owner: Option<Owner>,
    /// The condition `PodScheduled`, which is written only when it changes.
    pub(crate) scheduled: Option<Scheduled>,
    /// The extenders that the Pod interests, in the order in which they are asked.
    pub(crate) extenders: Vec<Arc<Extender>>,
    /// A hash of the annotations and the spec, on which the answers of extenders may depend; 0 without extenders.
    pub(crate) content: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Preempts {
    LowerPriority,
    Never,
}

/// The content of the condition `PodScheduled`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Scheduled {
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) generation: Option<i64>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Owner {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// A claim of a Pod.
#[derive(Clone, Debug)]
pub(crate) struct ClaimUse {
    pub(crate) name: Arc<str>,
    /// Whether the claim is created for this Pod from a template in it.
    pub(crate) is_ephemeral: bool,
}

/// A volume in the Pod's spec that Pods on the same node may not share without restrictions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Disk {
    Aws { volume: String },
    Gce { name: String, read_only: bool },
    Iscsi { iqn: String, read_only: bool },
    Rbd { monitors: Vec<String>, pool: String, image: String, read_only: bool },
}

/// The affinity and anti-affinity terms of a Pod.
#[derive(Debug, Default)]
pub(crate) struct PodAffinities {
    pub(crate) required: Vec<PodTerm>,
    pub(crate) required_anti: Vec<PodTerm>,
    pub(crate) preferred: Vec<(i64, PodTerm)>,
    pub(crate) preferred_anti: Vec<(i64, PodTerm)>,
}

/// Selects Pods in a topology.
#[derive(Debug)]
pub(crate) struct PodTerm {
    pub(crate) topology_key: String,
    selector: Selector,
    namespaces: Vec<String>,
    namespace_selector: Selector,
}

// === impl Placed ===

impl Placed {
    /// Reads a Pod. `identity` must be shared among Pods with equal ones.
    pub(crate) fn read(pod: &Pod, identity: Arc<Identity>) -> Placed {
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let is_deleting = pod.metadata.deletion_timestamp.is_some();
        let conditions = || status.into_iter().flat_map(|status| status.conditions.iter().flatten());
        let is_target = |condition: &PodCondition| {
            condition.type_ == "DisruptionTarget"
                && condition.status == "True"
                && condition.reason.as_deref() == Some(PREEMPTED)
        };
        let volumes = spec.and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        Placed {
            key: ObjectKey::of(pod),
            uid: pod.metadata.uid.as_deref().unwrap_or_default().into(),
            priority: spec.and_then(|spec| spec.priority).unwrap_or_default(),
            requests: Requests::read(pod),
            ports: spec.map(HostPort::of).unwrap_or_default(),
            affinity: spec.and_then(|spec| PodAffinities::read(spec, &identity.namespace)).map(Arc::new),
            claims: claims(pod, volumes).into_iter().map(|claim| claim.name).collect(),
            disks: volumes.iter().filter_map(Disk::read).collect(),
            started: status
                .and_then(|status| status.start_time.as_ref())
                .map_or(i128::MAX, |time| time.0.as_nanosecond()),
            is_preempted: is_deleting && conditions().any(is_target),
            is_deleting,
            generation: pod.metadata.generation.unwrap_or_default(),
            identity,
        }
    }

    /// The same Pod as preempted.
    pub(crate) fn with_preemption(&self) -> Placed {
        Placed { is_deleting: true, is_preempted: true, ..self.clone() }
    }

    /// The same Pod, marked as deleted if an earlier event or request has shown that: a deletion is never undone, so
    /// this state is older.
    pub(crate) fn with_deletion_of(self, earlier: &Placed) -> Placed {
        Placed {
            is_deleting: self.is_deleting || earlier.is_deleting,
            is_preempted: self.is_preempted || earlier.is_preempted,
            ..self
        }
    }

    pub(crate) fn required_anti(&self) -> &[PodTerm] {
        self.affinity.as_ref().map_or(&[], |affinity| &affinity.required_anti)
    }
}

fn claims(pod: &Pod, volumes: &[Volume]) -> Vec<ClaimUse> {
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let claim = |volume: &Volume| {
        if let Some(claim) = &volume.persistent_volume_claim {
            return Some(ClaimUse { name: claim.claim_name.as_str().into(), is_ephemeral: false });
        }
        volume.ephemeral.as_ref()?;
        Some(ClaimUse { name: format!("{pod_name}-{}", volume.name).into(), is_ephemeral: true })
    };
    volumes.iter().filter_map(claim).collect()
}

// === impl Pending ===

impl Pending {
    pub(crate) fn read(pod: &Pod, placed: Arc<Placed>, profile: &Arc<Profile>) -> Pending {
        let none = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&none);
        let status = pod.status.as_ref();
        let node_affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let preferred = node_affinity
            .and_then(|node| node.preferred_during_scheduling_ignored_during_execution.as_deref())
            .unwrap_or_default();
        let volumes = spec.volumes.as_deref().unwrap_or_default();
        let init = spec.init_containers.as_deref().unwrap_or_default();
        let of_containers = init.iter().chain(&spec.containers).filter_map(|container| container.image.as_deref());
        let of_volumes = volumes.iter().filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
        let scheduled = status
            .and_then(|status| status.conditions.iter().flatten().find(|condition| condition.type_ == "PodScheduled"));
        let owners = pod.metadata.owner_references.iter().flatten();
        let extenders: Vec<Arc<Extender>> = match &*profile.extenders {
            [] => Vec::new(),
            all => all.iter().filter(|extender| extender.is_interested_in(spec)).cloned().collect(),
        };
        Pending {
            nodes: pod.spec.as_ref().map(RequiredNodes::read).unwrap_or_default(),
            preferred_nodes: preferred
                .iter()
                .filter(|term| term.weight != 0)
                .filter_map(|term| Some((i64::from(term.weight), NodeTerm::read(&term.preference)?)))
                .collect(),
            tolerations: Tolerations::read(spec.tolerations.as_deref().unwrap_or_default()),
            spread: spec
                .topology_spread_constraints
                .iter()
                .flatten()
                .map(|constraint| Spread::read(constraint, &placed.identity.labels))
                .collect(),
            images: of_containers.chain(of_volumes).map(with_tag).collect(),
            n_containers: i64::try_from(init.len().saturating_add(spec.containers.len())).unwrap_or(i64::MAX),
            volumes: claims(pod, volumes),
            preempts: match spec.preemption_policy.as_deref() {
                Some("Never") => Preempts::Never,
                _ => Preempts::LowerPriority,
            },
            nominated: status
                .and_then(|status| status.nominated_node_name.as_deref())
                .filter(|name| !name.is_empty())
                .map(Arc::from),
            is_gated: profile.honors_gates && spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
            has_resource_claims: spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()),
            owner: owners.filter(|owner| owner.controller == Some(true)).map(Owner::read).next(),
            scheduled: scheduled.map(|condition| Scheduled {
                status: condition.status.clone(),
                reason: condition.reason.clone().unwrap_or_default(),
                message: condition.message.clone().unwrap_or_default(),
                generation: condition.observed_generation,
            }),
            content: if extenders.is_empty() { 0 } else { content_hash(pod) },
            extenders,
            profile: Arc::clone(profile),
            pod: placed,
        }
    }

    /// The same Pod with another nominated node.
    pub(crate) fn with_nominated(&self, nominated: Option<Arc<str>>) -> Pending {
        Pending { nominated, ..self.clone() }
    }

    /// The same Pod with the spread constraints of its profile, for a Pod that has none.
    pub(crate) fn with_spread(&self, defaults: &[Spread], selector: &Selector) -> Pending {
        let of = |spread: &Spread| Spread { selector: selector.clone(), ..spread.clone() };
        Pending { spread: defaults.iter().map(of).collect(), ..self.clone() }
    }

    /// Whether an extender is to be asked about feasible nodes, of which there are this many.
    pub(crate) fn asks_about_nodes(&self, n_nodes: usize) -> bool {
        let asks =
            |extender: &Arc<Extender>| extender.filter.is_some() || (1 < n_nodes && extender.prioritize.is_some());
        0 < n_nodes && self.extenders.iter().any(asks)
    }

    /// Whether an extender is to be asked before Pods are preempted.
    pub(crate) fn asks_about_victims(&self) -> bool {
        self.extenders.iter().any(|extender| extender.preempt.is_some())
    }

    /// The extender that binds the Pod in place of the scheduler.
    pub(crate) fn binder(&self) -> Option<&Arc<Extender>> {
        self.extenders.iter().find(|extender| extender.bind.is_some())
    }

    /// Whether a node matches the Pod's own requirements and those of its profile.
    pub(crate) fn matches_nodes(&self, name: &str, labels: &Labels) -> bool {
        self.nodes.matches(name, labels)
            && self.profile.added_nodes.required.as_ref().is_none_or(|terms| terms.matches(name, labels))
    }

    pub(crate) fn required_spread(&self) -> impl Iterator<Item = &Spread> {
        self.spread.iter().filter(|spread| spread.is_required)
    }
}

/// The hash of a Pod's annotations and spec. Its keys are random, so that no user can make two contents with one hash.
fn content_hash(pod: &Pod) -> u64 {
    struct Sink<'h, H>(&'h mut H);
    impl<H: Hasher> io::Write for Sink<'_, H> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let mut hasher = KEYS.build_hasher();
    let content = (&pod.metadata.annotations, &pod.spec);
    serde_json::to_writer(Sink(&mut hasher), &content).expect("invariant: a Pod can be written as JSON into a hash");
    hasher.finish()
}

impl Owner {
    fn read(owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference) -> Owner {
        Owner {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        }
    }
}

/// The name of an image in the form that nodes report.
pub(crate) fn with_tag(image: &str) -> String {
    let (colon, slash) = (image.rfind(':'), image.rfind('/'));
    if colon <= slash { format!("{image}:latest") } else { image.to_owned() }
}

// === impl Disk ===

impl Disk {
    fn read(volume: &Volume) -> Option<Disk> {
        if let Some(disk) = &volume.gce_persistent_disk {
            let read_only = disk.read_only.unwrap_or_default();
            return Some(Disk::Gce { name: disk.pd_name.clone(), read_only });
        }
        if let Some(disk) = &volume.aws_elastic_block_store {
            return Some(Disk::Aws { volume: disk.volume_id.clone() });
        }
        if let Some(disk) = &volume.iscsi {
            return Some(Disk::Iscsi { iqn: disk.iqn.clone(), read_only: disk.read_only.unwrap_or_default() });
        }
        let disk = volume.rbd.as_ref()?;
        Some(Disk::Rbd {
            monitors: disk.monitors.clone(),
            pool: disk.pool.clone().unwrap_or_default(),
            image: disk.image.clone(),
            read_only: disk.read_only.unwrap_or_default(),
        })
    }

    /// Whether two Pods on one node may not have both.
    pub(crate) fn conflicts(&self, other: &Disk) -> bool {
        match (self, other) {
            (Disk::Aws { volume }, Disk::Aws { volume: other }) => volume == other,
            (Disk::Gce { name, read_only }, Disk::Gce { name: other, read_only: also }) => {
                name == other && !(*read_only && *also)
            }
            (Disk::Iscsi { iqn, read_only }, Disk::Iscsi { iqn: other, read_only: also }) => {
                iqn == other && !(*read_only && *also)
            }
            (
                Disk::Rbd { monitors, pool, image, read_only },
                Disk::Rbd { monitors: others, pool: other_pool, image: other_image, read_only: also },
            ) => {
                monitors.iter().any(|monitor| others.contains(monitor))
                    && pool == other_pool
                    && image == other_image
                    && !(*read_only && *also)
            }
            (Disk::Aws { .. } | Disk::Gce { .. } | Disk::Iscsi { .. } | Disk::Rbd { .. }, _) => false,
        }
    }
}

// === impl PodAffinities ===

impl PodAffinities {
    fn read(spec: &PodSpec, namespace: &str) -> Option<PodAffinities> {
        let affinity = spec.affinity.as_ref()?;
        let terms = |terms: &Option<Vec<PodAffinityTerm>>| -> Vec<PodTerm> {
            terms.iter().flatten().map(|term| PodTerm::read(term, namespace)).collect()
        };
        let weighted = |terms: &Option<Vec<WeightedPodAffinityTerm>>| -> Vec<(i64, PodTerm)> {
            let read = |one: &WeightedPodAffinityTerm| {
                (i64::from(one.weight), PodTerm::read(&one.pod_affinity_term, namespace))
            };
            terms.iter().flatten().map(read).collect()
        };
        let mut all = PodAffinities::default();
        if let Some(affinity) = &affinity.pod_affinity {
            all.required = terms(&affinity.required_during_scheduling_ignored_during_execution);
            all.preferred = weighted(&affinity.preferred_during_scheduling_ignored_during_execution);
        }
        if let Some(anti) = &affinity.pod_anti_affinity {
            all.required_anti = terms(&anti.required_during_scheduling_ignored_during_execution);
            all.preferred_anti = weighted(&anti.preferred_during_scheduling_ignored_during_execution);
        }
        let is_empty = all.required.is_empty()
            && all.required_anti.is_empty()
            && all.preferred.is_empty()
            && all.preferred_anti.is_empty();
        (!is_empty).then_some(all)
    }
}

impl PodTerm {
    fn read(term: &PodAffinityTerm, namespace: &str) -> PodTerm {
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(namespace.to_owned());
        }
        PodTerm {
            topology_key: term.topology_key.clone(),
            selector: Selector::read(term.label_selector.as_ref()),
            namespaces,
            namespace_selector: Selector::read(term.namespace_selector.as_ref()),
        }
    }

    /// Whether the term selects Pods of this identity. `namespace` has the labels of their namespace.
    pub(crate) fn matches(&self, identity: &Identity, namespace: &Labels) -> bool {
        (self.namespaces.contains(&identity.namespace) || self.namespace_selector.matches(namespace))
            && self.selector.matches(&identity.labels)
    }
}
