//! Tests of the graph with given events.

use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};

struct Scene {
    graph: Graph,
    n_writes: u64,
}

fn uids(names: &[&str]) -> Vec<Uid> {
    names.iter().map(|name| Uid::from(*name)).collect()
}

fn reference(owner: &str, is_blocking: bool) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: owner.to_owned(),
        uid: owner.to_owned(),
        block_owner_deletion: Some(is_blocking),
        controller: None,
    }
}

/// An object with this name, which is also its uid, in a namespace.
fn object(namespace: &str, name: &str, owners: &[OwnerReference]) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        uid: Some(name.to_owned()),
        owner_references: Some(owners.to_vec()),
        ..ObjectMeta::default()
    }
}

fn deleting(object: ObjectMeta, finalizer: &str) -> ObjectMeta {
    ObjectMeta {
        deletion_timestamp: Some(Time(jiff::Timestamp::UNIX_EPOCH)),
        finalizers: Some(vec![finalizer.to_owned()]),
        ..object
    }
}

impl Scene {
    fn new() -> Scene {
        Scene { graph: Graph::new(), n_writes: 0 }
    }

    fn kind(&mut self) -> Arc<Kind> {
        self.graph.names().kind("v1", "ConfigMap")
    }

    fn see(&mut self, mut metadata: ObjectMeta) -> Effects {
        self.n_writes += 1;
        metadata.resource_version = Some(self.n_writes.to_string());
        let kind = self.kind();
        self.graph.observe(&kind, &metadata)
    }

    fn lose(&mut self, metadata: &ObjectMeta) -> Effects {
        let kind = self.kind();
        self.graph.gone(&kind, metadata)
    }

    fn plan(&mut self, name: &str) -> Plan {
        self.graph.plan(&Uid::from(name))
    }
}

#[test]
fn an_owner_that_was_not_seen_is_looked_up_and_stays_for_its_dependents_only() {
    let mut scene = Scene::new();
    let child = object("shop", "child", &[reference("owner", false)]);
    assert_eq!(scene.see(child.clone()).delete, uids(&["owner"]));
    assert!(matches!(scene.plan("owner"), Plan::Look(node) if node.is_virtual()));
    assert_eq!(scene.graph.len(), 2);
    assert_eq!(scene.lose(&child), Effects::default());
    assert_eq!(scene.graph.len(), 0);
}

#[test]
fn dependents_of_an_owner_that_is_gone_are_deleted_in_the_version_that_was_seen() {
    let mut scene = Scene::new();
    let owner = object("shop", "owner", &[]);
    scene.see(owner.clone());
    assert_eq!(scene.see(object("shop", "child", &[reference("owner", true)])), Effects::default());
    assert_eq!(scene.plan("child"), Plan::Nothing, "its owner exists");
    assert_eq!(scene.lose(&owner).delete, uids(&["child"]));
    let Plan::Delete { version, policy, .. } = scene.plan("child") else { panic!("it has no owner") };
    assert_eq!((version.as_str(), policy), ("2", PropagationPolicy::Background));
}

#[test]
fn one_owner_that_may_exist_has_the_server_asked() {
    let mut scene = Scene::new();
    let owner = object("shop", "owner", &[]);
    scene.see(owner.clone());
    scene.see(object("shop", "other", &[]));
    scene.see(object("shop", "child", &[reference("owner", false), reference("other", false)]));
    scene.lose(&owner);
    assert!(matches!(scene.plan("child"), Plan::Look(_)));
}

#[test]
fn in_the_foreground_the_last_dependent_that_blocks_releases_the_owner() {
    let mut scene = Scene::new();
    let (one, two) =
        (object("shop", "one", &[reference("owner", true)]), object("shop", "two", &[reference("owner", true)]));
    scene.see(object("shop", "owner", &[]));
    scene.see(one.clone());
    scene.see(two.clone());
    scene.see(object("shop", "loose", &[reference("owner", false)]));
    let effects = scene.see(deleting(object("shop", "owner", &[]), FOREGROUND));
    assert_eq!(effects.delete, uids(&["loose", "one", "two", "owner"]));
    assert_eq!(scene.plan("owner"), Plan::Nothing);
    assert!(matches!(scene.plan("one"), Plan::Delete { .. }), "its owner waits for it");
    assert_eq!(scene.lose(&one), Effects::default());
    let unblocked = object("shop", "two", &[reference("owner", false)]);
    assert_eq!(scene.see(unblocked).delete, uids(&["owner"]));
    assert!(matches!(scene.plan("owner"), Plan::Release(_)));
    let late = scene.see(object("shop", "late", &[reference("owner", true)]));
    assert_eq!(late.delete, uids(&["late"]));
    assert_eq!(scene.plan("owner"), Plan::Nothing);
}

#[test]
fn orphaning_begins_once() {
    let mut scene = Scene::new();
    let owner = deleting(object("shop", "owner", &[]), ORPHAN);
    assert_eq!(scene.see(owner.clone()).orphan, uids(&["owner"]));
    assert_eq!(scene.see(owner), Effects::default());
    assert_eq!(scene.plan("owner"), Plan::Nothing);
}

#[test]
fn an_owner_in_another_namespace_is_reported_in_both_orders() {
    let child = object("shop", "child", &[reference("owner", false)]);
    let mut scene = Scene::new();
    scene.see(object("bank", "owner", &[]));
    let after = scene.see(child.clone());
    let mut scene = Scene::new();
    scene.see(child);
    let before = scene.see(object("bank", "owner", &[]));
    for effects in [after, before] {
        assert_eq!(effects.delete, uids(&["child"]));
        let [invalid] = &effects.invalid[..] else { panic!("one is invalid: {effects:?}") };
        assert_eq!(invalid.owner.to_string(), "[v1/ConfigMap, namespace: shop, name: owner, uid: owner]");
    }
}

#[test]
fn a_wrong_name_does_not_take_the_owner_of_others_away() {
    let mut scene = Scene::new();
    scene.see(object("shop", "owner", &[]));
    scene.see(object("shop", "right", &[reference("owner", false)]));
    let misnamed = OwnerReference { name: "nobody".to_owned(), ..reference("owner", false) };
    assert_eq!(scene.see(object("shop", "wrong", std::slice::from_ref(&misnamed))).delete, uids(&["wrong"]));
    let kind = scene.kind();
    let absent = Identity { kind, namespace: "shop".into(), name: "nobody".into(), uid: Uid::from("owner") };
    assert_eq!(scene.graph.is_absent(&absent).delete, uids(&["wrong"]));
    assert!(matches!(scene.plan("wrong"), Plan::Delete { .. }));
    assert_eq!(scene.plan("right"), Plan::Nothing, "its owner exists");
}

#[test]
fn an_owner_that_nobody_has_seen_is_looked_up_under_each_of_its_names() {
    let mut scene = Scene::new();
    let second = OwnerReference { name: "second".to_owned(), ..reference("owner", false) };
    scene.see(object("shop", "one", &[reference("owner", false)]));
    scene.see(object("shop", "two", std::slice::from_ref(&second)));
    let kind = scene.kind();
    let named = |name: &str| Identity {
        kind: Arc::clone(&kind),
        namespace: "shop".into(),
        name: name.into(),
        uid: Uid::from("owner"),
    };
    let effects = scene.graph.is_absent(&named("owner"));
    assert_eq!((effects.delete, effects.delete_later), (uids(&["one"]), uids(&["owner"])));
    assert!(matches!(scene.plan("owner"), Plan::Look(node) if node.identity == named("second")));
    assert_eq!(scene.graph.is_absent(&named("second")).delete, uids(&["one", "two"]));
    assert!(matches!(scene.plan("one"), Plan::Delete { .. }));
    assert!(matches!(scene.plan("two"), Plan::Delete { .. }));
}

#[test]
fn what_is_not_watched_any_more_is_not_taken_for_gone() {
    let mut scene = Scene::new();
    scene.see(object("shop", "owner", &[]));
    scene.see(object("shop", "alone", &[]));
    scene.see(object("shop", "child", &[reference("owner", true)]));
    let kind = scene.kind();
    scene.graph.unwatch(&kind);
    assert_eq!(scene.graph.len(), 2);
    assert!(matches!(scene.plan("child"), Plan::Look(node) if node.is_virtual()));
    scene.see(object("shop", "owner", &[]));
    assert_eq!(scene.plan("owner"), Plan::Nothing);
}

#[test]
fn what_blocks_itself_is_released_after_its_last_other_dependent() {
    let mut scene = Scene::new();
    let child = object("shop", "child", &[reference("owner", true)]);
    let owner = object("shop", "owner", &[reference("owner", true)]);
    scene.see(owner.clone());
    scene.see(child.clone());
    scene.see(deleting(owner, FOREGROUND));
    assert_eq!(scene.plan("owner"), Plan::Nothing);
    assert_eq!(scene.lose(&child).delete, uids(&["owner"]));
    assert!(matches!(scene.plan("owner"), Plan::Release(_)));
}

#[test]
fn nobody_is_asked_about_what_has_no_owner_or_owners_that_stay() {
    let mut scene = Scene::new();
    scene.see(object("shop", "owner", &[]));
    scene.see(object("shop", "child", &[reference("owner", true)]));
    assert_eq!((scene.plan("owner"), scene.plan("child")), (Plan::Nothing, Plan::Nothing));
    scene.see(deleting(object("shop", "owner", &[]), FOREGROUND));
    assert!(matches!(scene.plan("child"), Plan::Delete { .. }));
    let misnamed = OwnerReference { name: "nobody".to_owned(), ..reference("owner", false) };
    scene.see(object("shop", "wrong", &[misnamed]));
    assert!(matches!(scene.plan("wrong"), Plan::Look(_)));
}

#[test]
fn owners_that_only_users_know_leave_nothing_behind_when_their_dependents_are_gone() {
    const LONG: usize = 1 << 20;
    let mut scene = Scene::new();
    let kind = scene.kind();
    for n in 0..200 {
        let text = |what: &str| format!("{what}-{n}-{}", "x".repeat(LONG));
        let owner = OwnerReference {
            api_version: text("group"),
            kind: text("Kind"),
            name: text("name"),
            uid: text("uid"),
            block_owner_deletion: None,
            controller: None,
        };
        let uid = Uid::from(owner.uid.as_str());
        let dependent = object("shop", "dependent", &[owner]);
        let effects = scene.see(dependent.clone());
        assert_eq!(effects.delete, std::slice::from_ref(&uid));
        scene.graph.wait_until_served(&uid);
        assert_eq!(scene.graph.unserved.len(), 1);
        let assumed = scene.graph.nodes[&uid].identity.clone();
        if n % 2 == 0 {
            scene.graph.is_absent(&assumed);
        }
        scene.graph.gone(&kind, &dependent);
        // A worker may process it only after it is gone.
        scene.graph.wait_until_served(&uid);
        assert_eq!((scene.graph.nodes.len(), scene.graph.unserved.len()), (0, 0));
    }
    assert!(scene.graph.names.n_bytes_of_kinds() < LONG, "{}", scene.graph.names.n_bytes_of_kinds());
    assert!(scene.graph.absent.n_bytes() <= 8 * LONG, "{}", scene.graph.absent.n_bytes());
}
