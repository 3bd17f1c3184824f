//! Random histories against a server in memory: in any order of events, exactly the objects without an owner are
//! deleted.
//!
//! The server checks each change of the collector when it is made. Objects that must not remain are checked for at the
//! end, when all events have arrived and no work is left. Each kind has its own stream of events, which are delivered
//! whenever the history says so. Users also change objects between the requests of the collector.

use crate::loops::cleanup::garbage_collector::attempt::{self, Answer, Next, Server};
use crate::loops::cleanup::garbage_collector::graph::{Effects, FOREGROUND, Graph, ORPHAN};
use crate::loops::cleanup::garbage_collector::identity::{Identity, Kind, Uid};
use futures::FutureExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::api::PropagationPolicy;
use kube::discovery::Scope;
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;

const HOLD: &str = "example.com/hold";
/// Two namespaced kinds, and a cluster-scoped one.
const KINDS: [&str; 3] = ["Boat", "Crew", "Harbor"];
const NAMESPACES: [&str; 2] = ["north", "south"];
const NAMES: [&str; 2] = ["a", "b"];
/// Beyond this number of steps, the collector counts as never coming to rest.
const STEPS_MAX: usize = 5_000;

/// The position of an object: kind, namespace and name.
type Place = (usize, usize, usize);

#[derive(Clone, Debug)]
enum Reference {
    /// To the object at this position, if it exists, with its own name or a wrong one.
    Existing {
        place: Place,
        is_blocking: bool,
        is_misnamed: bool,
    },
    /// To the object that has the reference.
    Itself {
        is_blocking: bool,
    },
    Never {
        kind: usize,
        uid: u8,
    },
}

#[derive(Clone, Debug)]
enum Op {
    Create { place: Place, owners: Vec<Reference>, is_held: bool },
    Delete { place: Place, policy: PropagationPolicy },
    Deliver { kind: usize, n_events: usize },
    Release { place: Place },
    SetOwners { place: Place, owners: Vec<Reference> },
    Touch { place: Place },
    Work { n_keys: usize },
}

#[derive(Clone)]
enum Notice {
    Gone(ObjectMeta),
    Seen(ObjectMeta),
}

#[derive(Default)]
struct ApiServer {
    objects: BTreeMap<Place, ObjectMeta>,
    streams: [VecDeque<Notice>; 3],
    /// The changes of users between the requests of the collector.
    meanwhile: VecDeque<Option<Op>>,
    n_made: u64,
    /// The uids of owners that ever had the finalizer for orphaning or for foreground deletion: a user may remove it
    /// while the deletion is in progress.
    orphaning: BTreeSet<String>,
    waiting: BTreeSet<String>,
    version: u64,
    wrong: Vec<String>,
}

struct Model {
    graph: Mutex<Graph>,
    api_server: Mutex<ApiServer>,
    deletions: VecDeque<Uid>,
    orphanings: VecDeque<Uid>,
    later: Vec<(Turn, Uid)>,
    /// Whether some events are dropped, to prove that the checks notice it.
    is_lossy: bool,
}

#[derive(Clone, Copy)]
enum Turn {
    Delete,
    Orphan,
}

// === impl ApiServer ===

fn is_namespaced(kind: usize) -> bool {
    kind < 2
}

fn at((kind, namespace, name): Place) -> Place {
    (kind, if is_namespaced(kind) { namespace } else { 0 }, name)
}

fn has(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|one| one == finalizer)
}

fn is_deleting(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
}

fn is_waiting(metadata: &ObjectMeta) -> bool {
    is_deleting(metadata) && has(metadata, FOREGROUND)
}

fn kind_number(kind: &str) -> usize {
    KINDS.iter().position(|one| *one == kind).unwrap()
}

impl ApiServer {
    fn place_of(&self, kind: &str, namespace: Option<&str>, name: &str) -> Option<Place> {
        let kind = kind_number(kind);
        let namespace = namespace.unwrap_or_default();
        let namespace = if is_namespaced(kind) { NAMESPACES.iter().position(|one| *one == namespace)? } else { 0 };
        Some((kind, namespace, NAMES.iter().position(|one| *one == name)?))
    }

    /// The owner that a reference leads to.
    fn owner(&self, dependent: &ObjectMeta, reference: &OwnerReference) -> Option<&ObjectMeta> {
        let place = self.place_of(&reference.kind, dependent.namespace.as_deref(), &reference.name)?;
        self.objects.get(&place).filter(|owner| owner.uid.as_deref() == Some(&reference.uid))
    }

    /// Whether an object must stay because of a reference.
    fn keeps(&self, dependent: &ObjectMeta, reference: &OwnerReference) -> bool {
        let is_invalid = dependent.namespace.is_none() && is_namespaced(kind_number(&reference.kind));
        is_invalid || self.owner(dependent, reference).is_some_and(|owner| !is_waiting(owner))
    }

    fn is_garbage(&self, object: &ObjectMeta) -> bool {
        let owners = object.owner_references.as_deref().unwrap_or_default();
        !owners.is_empty() && !owners.iter().any(|owner| self.keeps(object, owner))
    }

    /// Whether it is wrong to treat the reference as dangling.
    fn must_keep(&self, dependent: &ObjectMeta, reference: &OwnerReference) -> bool {
        self.keeps(dependent, reference) && !self.waiting.contains(&reference.uid)
    }

    /// The objects with a reference that leads to the owner, and the references.
    fn dependents<'a>(&'a self, owner: &'a ObjectMeta) -> impl Iterator<Item = (&'a ObjectMeta, &'a OwnerReference)> {
        self.objects.values().flat_map(move |object| {
            let leads = move |reference: &&OwnerReference| {
                self.owner(object, reference).is_some_and(|found| found.uid == owner.uid)
            };
            object.owner_references.iter().flatten().filter(leads).map(move |reference| (object, reference))
        })
    }

    /// Whether events of an object have not been delivered yet.
    fn is_on_its_way(&self, object: &ObjectMeta) -> bool {
        self.streams.iter().flatten().any(|notice| {
            let (Notice::Gone(metadata) | Notice::Seen(metadata)) = notice;
            metadata.uid == object.uid
        })
    }

    fn blame(&mut self, what: impl Into<String>) {
        self.wrong.push(what.into());
    }

    fn write(&mut self, place: Place, mut metadata: ObjectMeta) {
        self.version += 1;
        metadata.resource_version = Some(self.version.to_string());
        let is_over = is_deleting(&metadata) && metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        if is_over {
            self.objects.remove(&place);
            self.streams[place.0].push_back(Notice::Gone(metadata));
        } else {
            self.objects.insert(place, metadata.clone());
            self.streams[place.0].push_back(Notice::Seen(metadata));
        }
    }

    /// The owner references of an object with this uid.
    fn references(&self, of: Place, uid: &str, references: &[Reference]) -> Option<Vec<OwnerReference>> {
        let itself = uid;
        let reference = |kind: usize, name: &str, uid: &str, is_blocking| OwnerReference {
            api_version: "v1".to_owned(),
            kind: KINDS[kind].to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            block_owner_deletion: Some(is_blocking),
            controller: None,
        };
        let all = references.iter().filter_map(|one| match one {
            Reference::Existing { place, is_blocking, is_misnamed } => {
                let uid = self.objects.get(&at(*place))?.uid.clone()?;
                let name = NAMES[if *is_misnamed { 1 - place.2 } else { place.2 }];
                Some(reference(place.0, name, &uid, *is_blocking))
            }
            Reference::Itself { is_blocking } => Some(reference(of.0, NAMES[of.2], itself, *is_blocking)),
            Reference::Never { kind, uid } => Some(reference(*kind, "a", &format!("never-{uid}"), false)),
        });
        let mut found: Vec<OwnerReference> = Vec::new();
        for one in all {
            if !found.iter().any(|known| known.uid == one.uid) {
                found.push(one);
            }
        }
        Some(found)
    }

    /// Carries out a change of a user.
    fn act(&mut self, op: &Op) {
        match op {
            Op::Create { place, owners, is_held } => {
                let place = at(*place);
                if self.objects.contains_key(&place) {
                    return;
                }
                self.n_made += 1;
                let uid = format!("{:08}", self.n_made);
                let metadata = ObjectMeta {
                    name: Some(NAMES[place.2].to_owned()),
                    namespace: is_namespaced(place.0).then(|| NAMESPACES[place.1].to_owned()),
                    finalizers: is_held.then(|| vec![HOLD.to_owned()]),
                    owner_references: self.references(place, &uid, owners),
                    uid: Some(uid),
                    ..ObjectMeta::default()
                };
                self.write(place, metadata);
            }
            Op::Delete { place, policy } => {
                let _ = self.delete(at(*place), policy);
            }
            Op::Release { place } => self.change(*place, |metadata| {
                metadata.finalizers.get_or_insert_default().retain(|one| one != HOLD);
            }),
            Op::SetOwners { place, owners } => {
                let Some(uid) = self.objects.get(&at(*place)).and_then(|found| found.uid.clone()) else { return };
                let owners = self.references(*place, &uid, owners);
                self.change(*place, |metadata| metadata.owner_references = owners);
            }
            Op::Touch { place } => self.change(*place, |_| {}),
            Op::Deliver { .. } | Op::Work { .. } => {}
        }
    }

    fn change(&mut self, place: Place, change: impl FnOnce(&mut ObjectMeta)) {
        if let Some(mut metadata) = self.objects.get(&at(place)).cloned() {
            change(&mut metadata);
            self.write(at(place), metadata);
        }
    }

    fn delete(&mut self, place: Place, policy: &PropagationPolicy) -> Answer {
        let Some(mut metadata) = self.objects.get(&place).cloned() else { return Answer::Gone };
        let finalizers = metadata.finalizers.get_or_insert_default();
        finalizers.retain(|one| one != FOREGROUND && one != ORPHAN);
        match policy {
            PropagationPolicy::Background => {}
            PropagationPolicy::Foreground => {
                finalizers.push(FOREGROUND.to_owned());
                self.waiting.extend(metadata.uid.clone());
            }
            PropagationPolicy::Orphan => {
                finalizers.push(ORPHAN.to_owned());
                self.orphaning.extend(metadata.uid.clone());
            }
        }
        metadata.deletion_timestamp.get_or_insert(Time(jiff::Timestamp::UNIX_EPOCH));
        self.write(place, metadata);
        Answer::Done
    }

    /// Receives a request of the collector, after the next change of a user.
    fn request(&mut self, object: &Identity) -> Option<(Place, ObjectMeta)> {
        if let Some(Some(op)) = self.meanwhile.pop_front() {
            self.act(&op);
        }
        let place = self.place_of(&object.kind.kind, Some(&object.namespace), &object.name)?;
        self.objects.get(&place).map(|found| (place, found.clone()))
    }

    fn is_meant(found: &ObjectMeta, object: &Identity) -> bool {
        found.uid.as_deref().map(Uid::from).as_ref() == Some(&object.uid)
    }

    /// Checks what must not be the case once no work is left.
    fn check_rest(&mut self) {
        let mut wrong = Vec::new();
        for (place, object) in &self.objects {
            if self.is_garbage(object) && !is_deleting(object) {
                wrong.push(format!("{place:?} is left without an owner"));
            }
            // A wrong reference blocks too, as long as the object that has it stays.
            let blocks = |reference: &OwnerReference| {
                Some(&reference.uid) == object.uid.as_ref() && reference.block_owner_deletion == Some(true)
            };
            let others = self.objects.values().filter(|other| other.uid != object.uid);
            let is_blocked = others.flat_map(|other| other.owner_references.iter().flatten()).any(blocks);
            let is_to_go = has(object, ORPHAN) || (has(object, FOREGROUND) && !is_blocked);
            if is_deleting(object) && is_to_go {
                wrong.push(format!("{place:?} waits for nothing"));
            }
        }
        self.wrong.extend(wrong);
    }
}

impl Server for Mutex<ApiServer> {
    type Error = Infallible;

    fn scope(&self, kind: &Kind) -> Option<Scope> {
        Some(if is_namespaced(kind_number(&kind.kind)) { Scope::Namespaced } else { Scope::Cluster })
    }

    async fn get(&self, object: &Identity) -> Result<Option<ObjectMeta>, Infallible> {
        Ok(self.lock().request(object).map(|(_, metadata)| metadata))
    }

    async fn delete(
        &self,
        object: &Identity,
        version: Option<&str>,
        policy: PropagationPolicy,
    ) -> Result<Answer, Infallible> {
        let mut api_server = self.lock();
        let Some((place, found)) = api_server.request(object) else { return Ok(Answer::Gone) };
        if !ApiServer::is_meant(&found, object)
            || version.is_some_and(|one| found.resource_version.as_deref() != Some(one))
        {
            return Ok(Answer::Conflict);
        }
        let owners = found.owner_references.as_deref().unwrap_or_default();
        if owners.is_empty() || owners.iter().any(|owner| api_server.must_keep(&found, owner)) {
            api_server.blame(format!("{place:?} has an owner and is deleted"));
        }
        Ok(api_server.delete(place, &policy))
    }

    async fn remove_owners(
        &self,
        object: &Identity,
        version: Option<&str>,
        owners: &[Uid],
    ) -> Result<Answer, Infallible> {
        let mut api_server = self.lock();
        let Some((place, mut found)) = api_server.request(object) else { return Ok(Answer::Gone) };
        if !ApiServer::is_meant(&found, object)
            || version.is_some_and(|one| found.resource_version.as_deref() != Some(one))
        {
            return Ok(Answer::Conflict);
        }
        let before = found.clone();
        let is_removed = |reference: &OwnerReference| owners.contains(&Uid::from(reference.uid.as_str()));
        for reference in before.owner_references.iter().flatten().filter(|reference| is_removed(reference)) {
            let is_orphaning = api_server.orphaning.contains(&reference.uid);
            if api_server.must_keep(&before, reference) && !is_orphaning {
                api_server.blame(format!("{place:?} loses an owner that exists"));
            }
        }
        found.owner_references.get_or_insert_default().retain(|reference| !is_removed(reference));
        if found != before {
            api_server.write(place, found);
        }
        Ok(Answer::Done)
    }

    async fn unblock_owners(
        &self,
        object: &Identity,
        references: &[OwnerReference],
    ) -> Result<Option<ObjectMeta>, Infallible> {
        let mut api_server = self.lock();
        let Some((place, mut found)) = api_server.request(object) else { return Ok(None) };
        if !ApiServer::is_meant(&found, object) {
            return Ok(None);
        }
        for owner in found.owner_references.iter_mut().flatten() {
            if references.iter().any(|reference| reference.uid == owner.uid) {
                owner.block_owner_deletion = Some(false);
            }
        }
        api_server.write(place, found);
        Ok(api_server.objects.get(&place).cloned())
    }

    async fn set_finalizers(
        &self,
        object: &Identity,
        version: &str,
        finalizers: &[String],
    ) -> Result<Answer, Infallible> {
        let mut api_server = self.lock();
        let Some((place, mut found)) = api_server.request(object) else { return Ok(Answer::Gone) };
        if found.resource_version.as_deref() != Some(version) {
            return Ok(Answer::Conflict);
        }
        let loses = |finalizer: &str| has(&found, finalizer) && !finalizers.iter().any(|one| one == finalizer);
        let known: Vec<bool> = api_server
            .dependents(&found)
            .filter(|(dependent, _)| dependent.uid != found.uid && !api_server.is_on_its_way(dependent))
            .map(|(_, reference)| reference.block_owner_deletion == Some(true))
            .collect();
        if loses(FOREGROUND) && known.contains(&true) {
            api_server.blame(format!("{place:?} goes before a dependent that blocks it"));
        }
        if loses(ORPHAN) && !known.is_empty() {
            api_server.blame(format!("{place:?} goes before a dependent is orphaned"));
        }
        found.finalizers = Some(finalizers.to_vec());
        api_server.write(place, found);
        Ok(Answer::Done)
    }
}

// === impl Model ===

/// The output of a future that gives way to others, but waits for nothing.
fn done<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let done = (0..10_000).find_map(|_| future.as_mut().now_or_never());
    done.expect("the model answers at once")
}

impl Model {
    fn new(meanwhile: Vec<Option<Op>>) -> Model {
        let api_server = ApiServer { meanwhile: meanwhile.into(), ..ApiServer::default() };
        Model {
            graph: Mutex::new(Graph::remembering(6)),
            api_server: Mutex::new(api_server),
            deletions: VecDeque::new(),
            orphanings: VecDeque::new(),
            later: Vec::new(),
            is_lossy: false,
        }
    }

    fn apply(&mut self, effects: Effects) {
        self.deletions.extend(effects.delete);
        self.orphanings.extend(effects.orphan);
        self.later.extend(effects.delete_later.into_iter().map(|uid| (Turn::Delete, uid)));
    }

    fn deliver(&mut self, kind: usize, n_events: usize) {
        for _ in 0..n_events {
            let Some(notice) = self.api_server.get_mut().streams[kind].pop_front() else { return };
            let graph = self.graph.get_mut();
            let name = graph.names().kind("v1", KINDS[kind]);
            let effects = match notice {
                Notice::Gone(_) if self.is_lossy => continue,
                Notice::Gone(metadata) => graph.gone(&name, &metadata),
                Notice::Seen(metadata) => graph.observe(&name, &metadata),
            };
            self.apply(effects);
        }
    }

    /// Works on one key. Returns `false` if there is none.
    fn work(&mut self) -> bool {
        if let Some(uid) = self.orphanings.pop_front() {
            if done(attempt::to_orphan(&self.graph, &self.api_server, &uid)).unwrap() == Next::Later {
                self.later.push((Turn::Orphan, uid));
            }
            return true;
        }
        let Some(uid) = self.deletions.pop_front() else { return false };
        let (effects, next) = done(attempt::to_delete(&self.graph, &self.api_server, &uid)).unwrap();
        self.apply(effects);
        if next == Next::Later {
            self.later.push((Turn::Delete, uid));
        }
        true
    }

    fn act(&mut self, op: &Op) {
        match op {
            Op::Deliver { kind, n_events } => self.deliver(*kind, *n_events),
            Op::Work { n_keys } => {
                for _ in 0..*n_keys {
                    self.work();
                }
            }
            op => self.api_server.get_mut().act(op),
        }
    }

    /// Delivers all events and does all work, and returns the faults.
    fn rest(mut self) -> Vec<String> {
        for _ in 0..STEPS_MAX {
            let has_worked = self.work();
            let n_waiting: usize = self.api_server.get_mut().streams.iter().map(VecDeque::len).sum();
            (0..KINDS.len()).for_each(|kind| self.deliver(kind, usize::MAX));
            let later = std::mem::take(&mut self.later);
            if !has_worked && n_waiting == 0 && later.is_empty() {
                let mut api_server = self.api_server.into_inner();
                api_server.check_rest();
                return api_server.wrong;
            }
            for (turn, uid) in later {
                match turn {
                    Turn::Delete => self.deletions.push_back(uid),
                    Turn::Orphan => self.orphanings.push_back(uid),
                }
            }
        }
        vec!["it never comes to rest".to_owned()]
    }
}

fn run(history: &[Op], meanwhile: Vec<Option<Op>>) -> Vec<String> {
    let mut model = Model::new(meanwhile);
    history.iter().for_each(|op| model.act(op));
    model.rest()
}

fn place() -> impl Strategy<Value = Place> {
    (0..KINDS.len(), 0..NAMESPACES.len(), 0..NAMES.len())
}

fn owners() -> impl Strategy<Value = Vec<Reference>> {
    let existing = (place(), any::<bool>(), prop::bool::weighted(0.1))
        .prop_map(|(place, is_blocking, is_misnamed)| Reference::Existing { place, is_blocking, is_misnamed });
    let never = (0..KINDS.len(), 0..2_u8).prop_map(|(kind, uid)| Reference::Never { kind, uid });
    let itself = any::<bool>().prop_map(|is_blocking| Reference::Itself { is_blocking });
    prop::collection::vec(prop_oneof![6 => existing, 1 => itself, 1 => never], 0..3)
}

fn policy() -> impl Strategy<Value = PropagationPolicy> {
    prop_oneof![
        Just(PropagationPolicy::Background),
        Just(PropagationPolicy::Foreground),
        Just(PropagationPolicy::Orphan)
    ]
}

/// A change of a user. Only the collector removes its finalizers.
fn user_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (place(), owners(), prop::bool::weighted(0.2))
            .prop_map(|(place, owners, is_held)| Op::Create { place, owners, is_held }),
        3 => (place(), policy()).prop_map(|(place, policy)| Op::Delete { place, policy }),
        1 => place().prop_map(|place| Op::Release { place }),
        2 => (place(), owners()).prop_map(|(place, owners)| Op::SetOwners { place, owners }),
        1 => place().prop_map(|place| Op::Touch { place }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => user_op(),
        3 => (0..KINDS.len(), 1..4_usize).prop_map(|(kind, n_events)| Op::Deliver { kind, n_events }),
        3 => (1..4_usize).prop_map(|n_keys| Op::Work { n_keys }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_has_no_owner_goes_and_nothing_else(
        history in prop::collection::vec(op(), 1..50),
        meanwhile in prop::collection::vec(prop::option::weighted(0.2, user_op()), 0..40),
    ) {
        prop_assert_eq!(run(&history, meanwhile), Vec::<String>::new());
    }
}

#[test]
fn an_owner_that_is_seen_after_it_was_found_to_be_absent_keeps_nothing() {
    let (owner, dependent) = ((1, 1, 1), (0, 1, 0));
    let reference = Reference::Existing { place: owner, is_blocking: false, is_misnamed: false };
    let history = [
        Op::Create { place: owner, owners: Vec::new(), is_held: false },
        Op::Create { place: dependent, owners: vec![reference], is_held: false },
        Op::Delete { place: owner, policy: PropagationPolicy::Background },
        Op::Deliver { kind: 0, n_events: 1 },
        Op::Work { n_keys: 1 },
        Op::Deliver { kind: 1, n_events: 1 },
    ];
    assert_eq!(run(&history, Vec::new()), Vec::<String>::new());
}

#[test]
fn what_loses_the_reference_that_kept_it_goes() {
    // Nothing is known of a namespaced owner that a cluster-scoped object refers to, so the reference keeps the object.
    let (absent, invalid) = (Reference::Never { kind: 2, uid: 0 }, Reference::Never { kind: 0, uid: 1 });
    let place = (2, 0, 1);
    let history = [
        Op::Create { place, owners: vec![absent.clone(), invalid], is_held: false },
        Op::Deliver { kind: 2, n_events: 1 },
        Op::Work { n_keys: 3 },
        Op::SetOwners { place, owners: vec![absent] },
    ];
    assert_eq!(run(&history, Vec::new()), Vec::<String>::new());
}

#[test]
fn a_lost_event_is_noticed() {
    let history = |model: &mut Model| {
        let (owner, dependent) = ((0, 0, 0), (1, 0, 0));
        let reference = Reference::Existing { place: owner, is_blocking: false, is_misnamed: false };
        model.act(&Op::Create { place: owner, owners: Vec::new(), is_held: false });
        model.act(&Op::Create { place: dependent, owners: vec![reference], is_held: false });
        model.act(&Op::Deliver { kind: 0, n_events: 9 });
        model.act(&Op::Deliver { kind: 1, n_events: 9 });
        model.act(&Op::Work { n_keys: 9 });
        model.act(&Op::Delete { place: owner, policy: PropagationPolicy::Background });
    };
    let mut whole = Model::new(Vec::new());
    history(&mut whole);
    assert_eq!(whole.rest(), Vec::<String>::new());
    let mut lossy = Model { is_lossy: true, ..Model::new(Vec::new()) };
    history(&mut lossy);
    assert_eq!(lossy.rest(), ["(1, 0, 0) is left without an owner"]);
}
