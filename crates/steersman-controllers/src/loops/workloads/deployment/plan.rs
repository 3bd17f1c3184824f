//! Plans the writes for a Deployment: which ReplicaSets are created, resized and deleted, and the resulting status.
//!
//! Reads and writes nothing. Follows upstream's `pkg/controller/deployment`. The consecutive writes of upstream for one
//! ReplicaSet (annotations, then the size) are one write here, and so are those for the Deployment.

#[cfg(test)]
mod tests;

use crate::loops::workloads::deployment::bounds::{self, Strategy};
use crate::loops::workloads::deployment::revision::{self, TEMPLATE_HASH};
use crate::loops::workloads::deployment::status;
use crate::loops::workloads::template_hash;
use crate::shared::dependents;
use crate::shared::note::Note;
use hashbrown::HashSet;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use std::cmp::Reverse;
use std::time::Duration;

/// The longest name of an object.
const NAME_BYTES_MAX: usize = 253;

/// The input of a plan.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) deployment: Deployment,
    /// The ReplicaSets that the Deployment controls.
    pub(crate) sets: Vec<ReplicaSet>,
    /// The uids of those ReplicaSets that have Pods which have not terminated. Only the strategy `Recreate` uses it.
    pub(crate) running: HashSet<String>,
    pub(crate) now: Timestamp,
}

/// The writes, in this order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) sets: Vec<SetWrite>,
    pub(crate) deployment: DeploymentWrite,
    /// Events to record after all writes.
    pub(crate) events: Vec<Note>,
    /// After how long progress is checked again.
    pub(crate) next_look: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) enum SetWrite {
    Create(Box<ReplicaSet>),
    Delete(Box<ReplicaSet>),
    /// With the Events to record after the update.
    Update(Box<ReplicaSet>, Vec<Note>),
}

#[derive(Clone, Debug, Default)]
pub(crate) enum DeploymentWrite {
    #[default]
    Nothing,
    /// The status and the annotations.
    Status(Box<Deployment>),
    /// All but the status.
    Whole(Box<Deployment>),
}

/// A ReplicaSet as it should be, with the change that leads there.
#[derive(Debug)]
struct Set {
    object: ReplicaSet,
    change: Change,
    notes: Vec<Note>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Change {
    Created,
    Deleted,
    None,
    Updated,
}

/// The plan in the making. ReplicaSets are identified by their index in `sets`, which are sorted by age.
#[derive(Debug)]
struct Draft<'a> {
    deployment: Deployment,
    state: &'a State,
    sets: Vec<Set>,
    newest: Option<usize>,
    /// The indices of changed sets, in the order of their first change.
    changed: Vec<usize>,
    events: Vec<Note>,
}

/// Plans the writes for a Deployment.
pub(crate) fn plan(state: &State) -> Plan {
    let mut draft = Draft::new(state);
    if draft.deployment.spec.selector == LabelSelector::default() {
        return draft.refuse_all();
    }
    if draft.deployment.metadata.deletion_timestamp.is_some() {
        draft.sync_revision();
        return draft.end_with_counts();
    }
    status::note_pause(&mut draft.deployment, state.now);
    draft.sync_revision();
    if draft.deployment.spec.paused == Some(true) {
        draft.scale();
        if revision::rollback_to(&draft.deployment).is_none() {
            draft.clean_up();
        }
        return draft.end_with_counts();
    }
    if let Some(revision) = revision::rollback_to(&draft.deployment) {
        draft.create_newest();
        return draft.roll_back(revision);
    }
    if draft.is_scaling() {
        draft.scale();
        return draft.end_with_counts();
    }
    match bounds::strategy(&draft.deployment) {
        Strategy::Recreate => draft.recreate(),
        Strategy::RollingUpdate => draft.roll(),
    }
    draft.end_with_rollout()
}

/// The name of a ReplicaSet: the name of its Deployment, truncated where it would be too long, and the hash of its
/// template.
fn set_name(deployment: &str, hash: &str) -> String {
    let n_bytes_max = NAME_BYTES_MAX.saturating_sub(hash.len() + 1);
    let end = deployment.floor_char_boundary(deployment.len().min(n_bytes_max));
    format!("{}-{hash}", &deployment[..end])
}

/// The Deployment with its collision count incremented, after the name with the template's hash was found to be taken
/// by another ReplicaSet.
pub(crate) fn count_collision(deployment: &Deployment) -> Deployment {
    let mut deployment = deployment.clone();
    let status = deployment.status.get_or_insert_default();
    status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
    deployment
}

/// The status and the Event after a ReplicaSet could not be created.
pub(crate) fn creation_failed(
    deployment: &Deployment,
    name: &str,
    why: &str,
    now: Timestamp,
) -> (Option<Deployment>, Note) {
    const REASON: &str = "ReplicaSetCreateError";
    let text = format!("Failed to create new replica set {name:?}: {why}");
    let note = Note::warning(REASON, &*text);
    if status::deadline(deployment).is_none() {
        return (None, note);
    }
    let mut changed = deployment.clone();
    status::set_progressing(&mut changed, "False", REASON, text, now);
    (Some(changed).filter(|changed| changed.status != deployment.status), note)
}

// === impl Draft: reading ===

impl<'a> Draft<'a> {
    fn new(state: &'a State) -> Draft<'a> {
        let mut objects = state.sets.clone();
        objects.sort_by_cached_key(|set| (set.metadata.creation_timestamp.clone(), set.metadata.name.clone()));
        let template = &state.deployment.spec.template;
        let is_newest = |set: &ReplicaSet| {
            set.spec.template.as_ref().is_some_and(|known| revision::is_same_template(known, template))
        };
        Draft {
            deployment: state.deployment.clone(),
            state,
            newest: objects.iter().position(is_newest),
            sets: objects.into_iter().map(|object| Set { object, change: Change::None, notes: Vec::new() }).collect(),
            changed: Vec::new(),
            events: Vec::new(),
        }
    }

    /// All sets but the newest template's, the oldest first.
    fn old(&self) -> Vec<usize> {
        (0..self.sets.len()).filter(|&at| Some(at) != self.newest).collect()
    }

    fn size(&self, at: usize) -> i32 {
        bounds::size(&self.sets[at].object)
    }

    /// How many Pods of a set will be available once it has its size: the status of a shrinking set still counts Pods
    /// that are about to be deleted.
    fn available(&self, at: usize) -> i32 {
        self.said_available(at).min(self.size(at))
    }

    fn said_available(&self, at: usize) -> i32 {
        self.sets[at].object.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
    }

    /// The number of replicas of all sets together.
    fn total(&self) -> i32 {
        bounds::total(self.sets.iter().map(|set| &set.object))
    }

    /// Whether the status of a set reflects its current spec.
    fn is_observed(&self, at: usize) -> bool {
        let object = &self.sets[at].object;
        let observed = object.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
        self.sets[at].change != Change::Created && object.metadata.generation.unwrap_or(0) <= observed
    }

    fn least_available(&self) -> i32 {
        bounds::wanted(&self.deployment).saturating_sub(bounds::max_unavailable(&self.deployment))
    }

    /// The sets among these that have replicas.
    fn active(&self, among: impl IntoIterator<Item = usize>) -> Vec<usize> {
        among.into_iter().filter(|&at| self.size(at) > 0).collect()
    }

    /// Whether the Deployment was scaled since its sets were last sized.
    fn is_scaling(&self) -> bool {
        let wanted = bounds::wanted(&self.deployment);
        self.active(0..self.sets.len()).into_iter().any(|at| {
            revision::number_in(&self.sets[at].object, revision::DESIRED_REPLICAS)
                .is_some_and(|desired| desired != wanted)
        })
    }

    fn known_status(&self) -> DeploymentStatus {
        self.state.deployment.status.clone().unwrap_or_default()
    }
}

// === impl Draft: steps ===

impl Draft<'_> {
    fn mark(&mut self, at: usize, change: Change) {
        if self.sets[at].change == Change::None {
            self.sets[at].change = change;
            self.changed.push(at);
        }
    }

    fn resize(&mut self, at: usize, size: i32) {
        let old = self.size(at);
        if old == size {
            return;
        }
        self.mark(at, Change::Updated);
        let direction = if old < size { "up" } else { "down" };
        let set = &mut self.sets[at];
        set.object.spec.replicas = Some(size);
        revision::annotate_size(&self.deployment, &mut set.object);
        let name = set.object.metadata.name.as_deref().unwrap_or_default();
        let text = format!("Scaled {direction} replica set {name} from {old} to {size}");
        set.notes.push(Note::normal("ScalingReplicaSet", text));
    }

    /// Gives the newest set its revision, and copies it to the Deployment.
    fn sync_revision(&mut self) {
        let Some(at) = self.newest else { return };
        let next = self.next_revision();
        let min_ready_seconds = self.deployment.spec.min_ready_seconds;
        let set = &mut self.sets[at];
        let is_annotated = revision::annotate_newest(&self.deployment, &mut set.object, next);
        let is_later = set.object.spec.min_ready_seconds.unwrap_or(0) != min_ready_seconds.unwrap_or(0);
        set.object.spec.min_ready_seconds = min_ready_seconds;
        let (name, revision) = (
            set.object.metadata.name.clone().unwrap_or_default(),
            revision::annotation(&set.object, revision::REVISION).unwrap_or_default().to_owned(),
        );
        if is_annotated || is_later {
            self.mark(at, Change::Updated);
        }
        self.set_revision(revision);
        let is_said = self
            .deployment
            .status
            .as_ref()
            .is_some_and(|status| status::condition(status, status::PROGRESSING).is_some());
        if !is_said && status::deadline(&self.deployment).is_some() {
            let message = format!("Found new replica set {name:?}");
            status::set_progressing(&mut self.deployment, "True", "FoundNewReplicaSet", message, self.state.now);
        }
    }

    fn next_revision(&self) -> i64 {
        let old = self.old();
        revision::highest(old.iter().map(|&at| &self.sets[at].object)).saturating_add(1)
    }

    fn set_revision(&mut self, revision: String) {
        let annotations = self.deployment.metadata.annotations.get_or_insert_default();
        annotations.insert(revision::REVISION.to_owned(), revision);
    }

    /// Creates the set of the newest template, if it does not exist.
    fn create_newest(&mut self) -> usize {
        if let Some(at) = self.newest {
            return at;
        }
        let mut set = self.make_newest();
        let size = bounds::new_size(&self.deployment, 0, self.total());
        set.spec.replicas = Some(size);
        let next = self.next_revision();
        revision::annotate_newest(&self.deployment, &mut set, next);
        revision::annotate_size(&self.deployment, &mut set);
        let name = set.metadata.name.clone().unwrap_or_default();
        if size > 0 {
            let text = format!("Scaled up replica set {name} from 0 to {size}");
            self.events.push(Note::normal("ScalingReplicaSet", text));
        }
        self.set_revision(next.to_string());
        if status::deadline(&self.deployment).is_some() {
            let message = format!("Created new replica set {name:?}");
            status::set_progressing(&mut self.deployment, "True", "NewReplicaSetCreated", message, self.state.now);
        }
        let at = self.sets.len();
        self.sets.push(Set { object: set, change: Change::None, notes: Vec::new() });
        self.mark(at, Change::Created);
        self.newest = Some(at);
        at
    }

    fn make_newest(&self) -> ReplicaSet {
        let deployment = &self.deployment;
        let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
        let hash = template_hash::compute(&deployment.spec.template, collisions);
        let mut template = deployment.spec.template.clone();
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(TEMPLATE_HASH.to_owned(), hash.clone());
        let labels = labels.clone();
        let mut selector = deployment.spec.selector.clone();
        selector.match_labels.get_or_insert_default().insert(TEMPLATE_HASH.to_owned(), hash.clone());
        ReplicaSet {
            metadata: ObjectMeta {
                labels: Some(labels),
                name: Some(set_name(deployment.metadata.name.as_deref().unwrap_or_default(), &hash)),
                namespace: deployment.metadata.namespace.clone(),
                owner_references: dependents::reference_to(deployment).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: ReplicaSetSpec {
                min_ready_seconds: deployment.spec.min_ready_seconds,
                replicas: None,
                selector,
                template: Some(template),
            },
            status: None,
        }
    }

    /// Sizes the sets when the Deployment was scaled or is paused: the only active set gets all replicas, or each set
    /// its share.
    fn scale(&mut self) {
        let wanted = bounds::wanted(&self.deployment);
        let active = self.active(0..self.sets.len());
        let only = match *active {
            // Without an active set, the newest one.
            [] => match self.newest.or_else(|| self.old().last().copied()) {
                Some(at) => Some(at),
                None => return,
            },
            [at] => Some(at),
            _ => None,
        };
        if let Some(at) = only {
            return self.resize(at, wanted);
        }
        if self.newest.is_some_and(|at| self.is_saturated(at)) {
            for at in self.active(self.old()) {
                self.resize(at, 0);
            }
        } else if bounds::strategy(&self.deployment) == Strategy::RollingUpdate {
            self.share(active);
        }
    }

    /// Whether a set has all wanted Pods, and its annotation says so.
    fn is_saturated(&self, at: usize) -> bool {
        let wanted = bounds::wanted(&self.deployment);
        self.size(at) == wanted
            && revision::number_in(&self.sets[at].object, revision::DESIRED_REPLICAS) == Some(wanted)
            && self.said_available(at) == wanted
    }

    fn share(&mut self, mut active: Vec<usize>) {
        let wanted = bounds::wanted(&self.deployment);
        let allowed = if wanted > 0 { bounds::max_total(&self.deployment) } else { 0 };
        let to_add = allowed.saturating_sub(bounds::total(active.iter().map(|&at| &self.sets[at].object)));
        // Larger sets come first; of equal ones the newer grows first, and the older shrinks first. Indices are by age.
        if to_add > 0 {
            active.sort_by_key(|&at| (Reverse(self.size(at)), Reverse(at)));
        } else if to_add < 0 {
            active.sort_by_key(|&at| (Reverse(self.size(at)), at));
        }
        let mut added = 0_i32;
        let mut sizes = Vec::with_capacity(active.len());
        for &at in &active {
            let part = bounds::proportion(&self.deployment, &self.sets[at].object, to_add, added);
            added = added.saturating_add(part);
            sizes.push((at, self.size(at).saturating_add(part)));
        }
        if let Some((_, size)) = sizes.first_mut().filter(|_| to_add != 0) {
            *size = size.saturating_add(to_add.saturating_sub(added)).max(0);
        }
        for (at, size) in sizes {
            self.resize(at, size);
            // A set whose size stays is annotated too with the total that its size is a share of.
            if revision::annotate_size(&self.deployment, &mut self.sets[at].object) {
                self.mark(at, Change::Updated);
            }
        }
    }

    /// Deletes sets of earlier revisions that are empty and over the history limit.
    fn clean_up(&mut self) {
        let Some(limit) = status::history_limit(&self.deployment) else { return };
        let mut old = self.old();
        old.retain(|&at| self.sets[at].object.metadata.deletion_timestamp.is_none());
        let Some(n_over) = old.len().checked_sub(limit) else { return };
        // The lower revision first, then the older set; an unreadable revision counts as the lowest.
        old.sort_by_key(|&at| (revision::of(&self.sets[at].object).unwrap_or(0), at));
        for at in old.into_iter().take(n_over) {
            let n_pods = self.sets[at].object.status.as_ref().map_or(0, |status| status.replicas);
            if n_pods == 0 && self.size(at) == 0 && self.is_observed(at) {
                self.mark(at, Change::Deleted);
            }
        }
    }

    fn roll(&mut self) {
        let newest = self.create_newest();
        let wanted = bounds::wanted(&self.deployment);
        let before = self.size(newest);
        let size = if before > wanted { wanted } else { bounds::new_size(&self.deployment, before, self.total()) };
        if size != before {
            return self.resize(newest, size);
        }
        if self.shrink_old(newest) {
            return;
        }
        if status::is_complete(&self.deployment, &self.known_status()) {
            self.clean_up();
        }
    }

    /// Scales old sets down as far as enough Pods stay available, unavailable Pods first. Returns whether any set was
    /// scaled.
    fn shrink_old(&mut self, newest: usize) -> bool {
        let old = self.active(self.old());
        let least = self.least_available();
        let unavailable_new = self.size(newest).saturating_sub(self.available(newest));
        let most = self.total().saturating_sub(least).saturating_sub(unavailable_new);
        // The status of a set that was resized since may count Pods that are gone.
        let is_known = old.iter().chain([&newest]).all(|&at| self.is_observed(at));
        if old.is_empty() || most <= 0 || !is_known {
            return false;
        }
        let mut left = most;
        for &at in &old {
            let unavailable = self.size(at).saturating_sub(self.available(at));
            let n = left.min(unavailable);
            if n > 0 {
                self.resize(at, self.size(at) - n);
                left -= n;
            }
        }
        let mut spare = self.total_available_of(&old, newest).saturating_sub(least);
        for &at in &old {
            let n = spare.min(self.size(at));
            if n > 0 {
                self.resize(at, self.size(at) - n);
                spare -= n;
            }
        }
        self.changed.iter().any(|at| old.contains(at))
    }

    fn total_available_of(&self, old: &[usize], newest: usize) -> i32 {
        old.iter().chain([&newest]).fold(0, |sum: i32, &at| sum.saturating_add(self.available(at)))
    }

    /// Deletes all old Pods, and creates new ones only after that.
    fn recreate(&mut self) {
        let old = self.active(self.old());
        for &at in &old {
            self.resize(at, 0);
        }
        if !old.is_empty() || self.is_old_running() {
            return;
        }
        let newest = self.create_newest();
        self.resize(newest, bounds::wanted(&self.deployment));
        if status::is_complete(&self.deployment, &self.known_status()) {
            self.clean_up();
        }
    }

    fn is_old_running(&self) -> bool {
        self.old().into_iter().any(|at| {
            let object = &self.sets[at].object;
            let is_counted = object.status.as_ref().is_some_and(|status| status.replicas > 0);
            is_counted || object.metadata.uid.as_ref().is_some_and(|uid| self.state.running.contains(uid))
        })
    }
}

// === impl Draft: ends ===

impl Draft<'_> {
    fn refuse_all(mut self) -> Plan {
        let text = "This deployment is selecting all pods. A non-empty selector is required.".to_owned();
        self.events.push(Note::warning("SelectingAll", text));
        let mut status = self.known_status();
        status.observed_generation = status.observed_generation.max(self.deployment.metadata.generation);
        self.end(status, None)
    }

    fn end_with_counts(self) -> Plan {
        let objects: Vec<&ReplicaSet> = self.sets.iter().map(|set| &set.object).collect();
        let newest = self.newest.map(|at| &self.sets[at].object);
        let status = status::calculate(&self.deployment, &objects, newest, self.state.now);
        self.end(status, None)
    }

    fn end_with_rollout(self) -> Plan {
        let objects: Vec<&ReplicaSet> = self.sets.iter().map(|set| &set.object).collect();
        let newest = self.newest.map(|at| &self.sets[at].object);
        let known = self.known_status();
        let status = status::of_rollout(&self.deployment, &known, &objects, newest, self.state.now);
        let next_look = status::next_look(&self.deployment, &status, self.state.now);
        self.end(status, next_look)
    }

    /// Gives the Deployment the template of an earlier revision.
    fn roll_back(mut self, revision: i64) -> Plan {
        const NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";
        let objects: Vec<&ReplicaSet> = self.sets.iter().map(|set| &set.object).collect();
        let wanted = if revision == 0 { revision::last(objects.iter().copied()) } else { revision };
        let found = objects.iter().find(|set| wanted != 0 && revision::of(**set) == Some(wanted));
        let mut deployment = self.deployment.clone();
        let name = deployment.metadata.name.clone().unwrap_or_default();
        let note = match found {
            None if wanted == 0 => Note::warning(NOT_FOUND, "Unable to find last revision."),
            None => Note::warning(NOT_FOUND, "Unable to find the revision to rollback to."),
            Some(set)
                if set
                    .spec
                    .template
                    .as_ref()
                    .is_some_and(|template| revision::is_same_template(template, &deployment.spec.template)) =>
            {
                let text = format!("The rollback revision contains the same template as current deployment {name:?}");
                Note::warning("DeploymentRollbackTemplateUnchanged", text)
            }
            Some(set) => {
                revision::take_back(&mut deployment, set);
                let text = format!("Rolled back deployment {name:?} to revision {wanted}");
                Note::normal("DeploymentRollback", text)
            }
        };
        if let Some(annotations) = &mut deployment.metadata.annotations {
            annotations.remove(revision::ROLLBACK_TO);
        }
        self.events.push(note);
        let mut plan = self.end_sets();
        plan.deployment = DeploymentWrite::Whole(Box::new(deployment));
        plan
    }

    fn end(self, status: DeploymentStatus, next_look: Option<Duration>) -> Plan {
        let known = &self.state.deployment;
        let is_annotated = known.metadata.annotations.as_ref().and_then(|all| all.get(revision::REVISION))
            != self.deployment.metadata.annotations.as_ref().and_then(|all| all.get(revision::REVISION));
        let is_changed = is_annotated || known.status.clone().unwrap_or_default() != status;
        let deployment = Deployment { status: Some(status), ..self.deployment.clone() };
        let mut plan = self.end_sets();
        if is_changed {
            plan.deployment = DeploymentWrite::Status(Box::new(deployment));
        }
        plan.next_look = next_look;
        plan
    }

    fn end_sets(self) -> Plan {
        let mut sets: Vec<Option<Set>> = self.sets.into_iter().map(Some).collect();
        let changed = self.changed.into_iter().filter_map(|at| sets[at].take());
        let writes = changed.map(|Set { object, change, notes }| match change {
            Change::Created => SetWrite::Create(Box::new(object)),
            Change::Deleted => SetWrite::Delete(Box::new(object)),
            Change::None | Change::Updated => SetWrite::Update(Box::new(object), notes),
        });
        Plan { sets: writes.collect(), events: self.events, ..Plan::default() }
    }
}
