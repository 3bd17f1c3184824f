//! The default classes: which IngressClass, PriorityClass and StorageClass an object gets that names none.
//!
//! A task for each resource follows its changes and keeps only the classes that are marked as a default, in order. So a write takes the first
//! one, however many classes exist. The plugins `default_class` and `priority` ask here; a request first waits until every change that could
//! be read is known (`shared::follower::compiled`).

use crate::shared::follower::{self, Followed, Progress};
use parking_lot::RwLock;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};
use steersman_kinds::catalog::Resource;
use steersman_kinds::projection::Projection;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{GroupResource, Object, Revision, Value};
use steersman_storage::{Event, Kind as EventKind, ReadError, Store};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The default classes in force.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    ingress: Followers,
    priority: Followers,
    storage: Followers,
}

/// A kind of classes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Ingress,
    Priority,
    Storage,
}

/// A class that is marked as a default.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Class {
    pub(crate) name: Box<str>,
    /// The priority of Pods of a PriorityClass; zero for other classes.
    pub(crate) value: i64,
    /// The preemption policy of a PriorityClass, if it has one.
    pub(crate) preemption_policy: Option<Box<str>>,
}

/// The marked classes of one kind.
#[derive(Debug, Default)]
struct Followers {
    marked: RwLock<Marked>,
    progress: Progress,
}

#[derive(Debug, Default)]
struct Marked {
    /// The first one is the default.
    ranked: BTreeMap<Rank, Class>,
    /// The key in `ranked` of every class in it, by the name of the class.
    ranks: HashMap<Box<str>, Rank>,
}

/// The order of marked classes: PriorityClasses by their value, others from the newest; then by name.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Rank {
    value: i64,
    created: Reverse<Box<str>>,
    name: Box<str>,
}

/// The follower of one kind. When it is dropped, even by a panic, requests do not wait for it any more.
struct Part {
    classes: Arc<Classes>,
    kind: Kind,
}

/// The fields of a class that are read.
static READ: LazyLock<Projection> = LazyLock::new(|| {
    Projection::of(&[
        "globalDefault",
        "metadata.annotations",
        "metadata.creationTimestamp",
        "metadata.name",
        "preemptionPolicy",
        "value",
    ])
});

/// Reads the classes of the store, and starts the tasks that follow them until the server stops.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn start(
    store: &Store,
    classes: &Arc<Classes>,
    stopping: &CancellationToken,
) -> Result<Vec<JoinHandle<()>>, ReadError> {
    let part = |kind| Box::new(Part { classes: classes.clone(), kind });
    Kind::ALL.into_iter().map(|kind| follower::start(store, part(kind), stopping)).collect()
}

// === impl Classes ===

impl Classes {
    /// The default class, which an object gets if it names none: the PriorityClass with the lowest value, or the newest class of another kind.
    pub(crate) fn default_of(&self, kind: Kind) -> Option<Class> {
        self.of(kind).marked.read().ranked.first_key_value().map(|(_, class)| class.clone())
    }

    /// The three resources, with the progress of following each.
    pub(crate) fn followed(&self) -> [(GroupResource, &Progress); 3] {
        Kind::ALL.map(|kind| (kind.resource(), &self.of(kind).progress))
    }

    /// If a resource is one of the three, waits until a write at a revision is in force. False if it never will be.
    pub(crate) async fn wait_for(&self, resource: &Resource, revision: Revision) -> bool {
        match Kind::ALL.into_iter().find(|kind| kind.resource() == resource.storage) {
            Some(kind) => self.of(kind).progress.wait_for(revision).await,
            None => true,
        }
    }

    fn of(&self, kind: Kind) -> &Followers {
        match kind {
            Kind::Ingress => &self.ingress,
            Kind::Priority => &self.priority,
            Kind::Storage => &self.storage,
        }
    }
}

// === impl Kind ===

impl Kind {
    const ALL: [Kind; 3] = [Kind::Ingress, Kind::Priority, Kind::Storage];

    pub(crate) fn resource(self) -> GroupResource {
        match self {
            Kind::Ingress => GroupResource::new("networking.k8s.io", "ingressclasses"),
            Kind::Priority => GroupResource::new("scheduling.k8s.io", "priorityclasses"),
            Kind::Storage => GroupResource::new("storage.k8s.io", "storageclasses"),
        }
    }

    /// Whether a class is marked as a default.
    fn marks(self, class: &Value) -> bool {
        let has = |mark: &str| str_at(class, &["metadata", "annotations", mark]) == Some("true");
        match self {
            Kind::Ingress => has("ingressclass.kubernetes.io/is-default-class"),
            Kind::Priority => at(class, &["globalDefault"]) == Some(&Value::Bool(true)),
            Kind::Storage => {
                has("storageclass.kubernetes.io/is-default-class")
                    || has("storageclass.beta.kubernetes.io/is-default-class")
            }
        }
    }

    /// The rank of a class, if it is marked. One that cannot be read is not.
    fn read(self, object: &Object) -> Option<(Rank, Class)> {
        let class = READ.read(object.json());
        let class = class.inspect_err(|error| {
            tracing::error!(key = %object.key, %error, "a class cannot be read, and is no default");
        });
        let class = class.ok().filter(|class| self.marks(class))?;
        let read = Class::read(&class);
        let created = match self {
            Kind::Priority => "",
            Kind::Ingress | Kind::Storage => str_at(&class, &["metadata", "creationTimestamp"]).unwrap_or_default(),
        };
        Some((Rank { value: read.value, created: Reverse(created.into()), name: read.name.clone() }, read))
    }
}

// === impl Class, Marked ===

impl Class {
    /// Reads a stored class.
    pub(crate) fn read(class: &Value) -> Class {
        Class {
            name: str_at(class, &["metadata", "name"]).unwrap_or_default().into(),
            value: at(class, &["value"]).and_then(Value::as_i64).unwrap_or(0),
            preemption_policy: str_at(class, &["preemptionPolicy"]).map(Box::from),
        }
    }
}

impl Marked {
    fn put(&mut self, (rank, class): (Rank, Class)) {
        self.remove(&class.name);
        self.ranks.insert(class.name.clone(), rank.clone());
        self.ranked.insert(rank, class);
    }

    fn remove(&mut self, name: &str) {
        if let Some(rank) = self.ranks.remove(name) {
            self.ranked.remove(&rank);
        }
    }
}

// === impl Part ===

impl Followed for Part {
    fn resource(&self) -> GroupResource {
        self.kind.resource()
    }

    fn replace(&self, objects: &[Arc<Object>], revision: Revision) {
        let mut marked = Marked::default();
        objects.iter().filter_map(|object| self.kind.read(object)).for_each(|read| marked.put(read));
        let followers = self.classes.of(self.kind);
        *followers.marked.write() = marked;
        followers.progress.report(revision);
    }

    fn change(&self, events: &[Arc<Event>]) {
        let followers = self.classes.of(self.kind);
        for event in events {
            let read = match event.kind {
                EventKind::Added | EventKind::Modified => self.kind.read(&event.object),
                EventKind::Deleted => None,
            };
            let mut marked = followers.marked.write();
            match read {
                Some(read) => marked.put(read),
                None => marked.remove(&event.object.key.name),
            }
        }
        if let Some(last) = events.last() {
            followers.progress.report(last.revision);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.classes.of(self.kind).progress.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use steersman_machinery::{Draft, ObjectKey};
    use steersman_storage::{Memory, Options};

    /// A store whose classes are followed.
    struct FollowedClasses {
        store: Store,
        classes: Arc<Classes>,
        kind: Kind,
        _stopping: tokio_util::sync::DropGuard,
    }

    impl FollowedClasses {
        async fn new(kind: Kind) -> FollowedClasses {
            let store = Store::open(Arc::new(Memory::new()), Options::default()).await.unwrap();
            let (classes, stopping) = (Arc::new(Classes::default()), CancellationToken::new());
            start(&store, &classes, &stopping).unwrap();
            FollowedClasses { store, classes, kind, _stopping: stopping.drop_guard() }
        }

        /// Stores a class, and waits until it is in force.
        async fn put(&self, name: &str, mut class: Value) {
            class["metadata"]["name"] = name.into();
            let (resource, key) = (self.kind.resource(), ObjectKey::cluster(name));
            let draft = Draft::read(class.to_string().into()).unwrap();
            let stored = match self.store.get(&resource, &key).await.unwrap() {
                None => self.store.create_with(&resource, &key, draft, &[]).await.unwrap(),
                Some(before) => self.store.update_with(&resource, &key, before.revision, draft, &[]).await.unwrap(),
            };
            assert!(self.classes.of(self.kind).progress.wait_for(stored.revision).await);
        }

        async fn delete(&self, name: &str) {
            let (resource, key) = (self.kind.resource(), ObjectKey::cluster(name));
            let before = self.store.get(&resource, &key).await.unwrap().unwrap();
            let gone = self.store.delete(&resource, &key, before.revision).await.unwrap();
            assert!(self.classes.of(self.kind).progress.wait_for(gone.revision).await);
        }

        fn default(&self) -> Option<String> {
            self.classes.default_of(self.kind).map(|class| class.name.into())
        }
    }

    #[tokio::test]
    async fn the_newest_of_the_marked_classes_is_the_default_and_of_the_same_age_the_first_by_name() {
        let followed_classes = FollowedClasses::new(Kind::Storage).await;
        let class = |created: &str, mark: &str, is_default: &str| json!({"metadata": {"creationTimestamp": created, "annotations": {mark: is_default}}});
        let (mark, older) =
            ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class");
        assert_eq!(followed_classes.default(), None);
        followed_classes.put("old", class("2026-01-01T00:00:00Z", mark, "true")).await;
        followed_classes.put("b", class("2026-01-02T00:00:00Z", older, "true")).await;
        followed_classes.put("a", class("2026-01-02T00:00:00Z", mark, "true")).await;
        followed_classes.put("newest", class("2026-01-03T00:00:00Z", mark, "false")).await;
        assert_eq!(followed_classes.default().as_deref(), Some("a"));
        followed_classes.put("a", class("2026-01-02T00:00:00Z", mark, "false")).await;
        assert_eq!(followed_classes.default().as_deref(), Some("b"));
        followed_classes.delete("b").await;
        assert_eq!(followed_classes.default().as_deref(), Some("old"));
        assert_eq!(followed_classes.classes.default_of(Kind::Ingress), None);
    }

    #[tokio::test]
    async fn the_priority_of_pods_that_name_no_class_is_the_lowest_of_the_global_defaults() {
        let followed_classes = FollowedClasses::new(Kind::Priority).await;
        let class = |value: i64, is_default: bool| json!({"metadata": {}, "value": value, "globalDefault": is_default, "preemptionPolicy": "Never"});
        followed_classes.put("plain", class(1, false)).await;
        followed_classes.put("high", class(30, true)).await;
        followed_classes.put("low", class(3, true)).await;
        let low = Class { name: "low".into(), value: 3, preemption_policy: Some("Never".into()) };
        assert_eq!(followed_classes.classes.default_of(Kind::Priority), Some(low));
        followed_classes.put("low", class(50, true)).await;
        assert_eq!(followed_classes.default().as_deref(), Some("high"));
    }

    #[tokio::test]
    async fn classes_that_were_stored_before_the_start_are_known() {
        let followed_classes = FollowedClasses::new(Kind::Ingress).await;
        let annotations = json!({"ingressclass.kubernetes.io/is-default-class": "true"});
        followed_classes.put("usual", json!({"metadata": {"annotations": annotations}})).await;
        let again = Arc::new(Classes::default());
        start(&followed_classes.store, &again, &CancellationToken::new()).unwrap();
        assert_eq!(again.default_of(Kind::Ingress).map(|class| class.name), Some("usual".into()));
    }
}
