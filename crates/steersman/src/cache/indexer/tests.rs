//! The cache by example, and its indexes against a scan.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use serde::de::Error;

use super::*;
use crate::cache::cached::{Keep, Packed};
use crate::cache::lister::LookupError;
use crate::cache::outcome::Finality;
use crate::list_watch::wire::meta;

fn object(key: &str, version: u32, color: &str) -> Entry<ConfigMap> {
    let key: ObjectKey = key.parse().unwrap();
    let mut object = ConfigMap::default();
    object.metadata.name = Some(key.name().to_owned());
    object.metadata.namespace = key.namespace().map(str::to_owned);
    object.metadata.resource_version = Some(version.to_string());
    object.data = Some(BTreeMap::from([("color".to_owned(), color.to_owned())]));
    // Half of the objects are held as bytes, which must make no difference.
    let object = if version.is_multiple_of(2) { Arc::new(object).into() } else { pack(&object) };
    Entry { key, object }
}

fn pack(object: &ConfigMap) -> Cached<ConfigMap> {
    let json = serde_json::to_string(object).expect("a ConfigMap can be written");
    let spans = meta::spans(json.as_bytes()).expect("what is written is an object");
    Cached::packed(Packed::new(&json, &spans))
}

fn broken(key: &str, version: u32) -> Arc<DecodeError> {
    Arc::new(DecodeError {
        resource: "configmaps".to_owned(),
        key: key.parse().ok(),
        resource_version: version.to_string(),
        source: serde_json::Error::custom("broken"),
    })
}

fn listed(entries: Vec<Entry<ConfigMap>>, undecodable: Vec<Arc<DecodeError>>) -> Vec<Delta<ConfigMap>> {
    let entries = entries.into_iter().map(Delta::Added);
    let items = entries.chain(undecodable.into_iter().map(Delta::Undecodable));
    let end = Delta::ListEnded { scope: Scope::All, resource_version: "99".to_owned() };
    std::iter::once(Delta::ListBegun { scope: Scope::All }).chain(items).chain([end]).collect()
}

fn colors(object: &ConfigMap) -> Vec<String> {
    object.data.iter().flat_map(|data| data.values()).flat_map(|color| color.split('+')).map(str::to_owned).collect()
}

fn describe(outcome: &Outcome<ConfigMap>) -> String {
    let version = |object: &Cached<ConfigMap>| object.resource_version().to_owned();
    match outcome {
        Outcome::Added(entry, _) => format!("+{}@{}", entry.key, version(&entry.object)),
        Outcome::Deleted { key, object, finality } => {
            let mark = if *finality == Finality::Reported { '@' } else { '~' };
            format!("-{key}{mark}{}", object.as_ref().map(version).unwrap_or_default())
        }
        Outcome::Filled => "filled".to_owned(),
        Outcome::Undecodable(error) => format!("!{}", error.key.as_ref().map_or("?", ObjectKey::as_str)),
        Outcome::Updated { key, old, new } => format!("{key}@{}>{}", version(old), version(new)),
    }
}

#[track_caller]
fn check(indexer: &Indexer<ConfigMap>, deltas: Vec<Delta<ConfigMap>>, expected: &[&str]) {
    let (mut batch, mut outcomes) = (deltas, Vec::new());
    indexer.apply(&mut batch, &mut outcomes);
    assert_eq!(outcomes.iter().map(describe).collect::<Vec<_>>(), expected);
}

fn deleted(key: &str, version: u32) -> Delta<ConfigMap> {
    let Entry { key, object } = object(key, version, "");
    Delta::Deleted { key, object: Some(object) }
}

#[test]
fn events_become_outcomes_with_the_state_before() {
    let indexer = Indexer::new();
    check(&indexer, vec![Delta::Added(object("a/x", 1, "red"))], &["+a/x@1"]);
    check(&indexer, vec![Delta::Modified(object("a/x", 2, "red"))], &["a/x@1>2"]);
    check(&indexer, vec![Delta::Added(object("a/x", 2, "red"))], &[]);
    check(&indexer, vec![Delta::Modified(object("a/y", 3, "red"))], &["+a/y@3"]);
    check(&indexer, vec![deleted("a/x", 4), deleted("a/x", 4)], &["-a/x@4"]);
    assert_eq!(indexer.resource_version(), "4");
    check(&indexer, vec![Delta::Bookmark { scope: Scope::All, resource_version: "9".to_owned() }], &[]);
    assert_eq!(indexer.resource_version(), "9");
}

#[test]
fn a_list_deletes_what_it_does_not_name_at_its_end_and_repeats_nothing() {
    let indexer = Indexer::new();
    let first = vec![object("a/x", 1, ""), object("a/y", 2, ""), object("a/z", 3, "")];
    check(&indexer, listed(first, vec![]), &["+a/x@1", "+a/y@2", "+a/z@3", "filled"]);
    let second = vec![object("a/w", 7, ""), object("a/y", 2, ""), object("a/z", 8, "")];
    check(&indexer, listed(second, vec![]), &["+a/w@7", "a/z@3>8", "-a/x~1"]);
    assert_eq!(indexer.len(), 3);
}

#[test]
fn a_list_takes_effect_as_it_comes_and_covers_a_version_at_its_end() {
    let indexer = Indexer::new();
    let mut deltas = listed(vec![object("a/x", 1, ""), object("a/y", 2, "")], vec![]);
    let rest = deltas.split_off(2);
    check(&indexer, deltas, &["+a/x@1"]);
    assert_eq!((indexer.is_filled(), indexer.resource_version().as_str()), (false, ""));
    check(&indexer, rest, &["+a/y@2", "filled"]);
    assert_eq!((indexer.is_filled(), indexer.resource_version().as_str()), (true, "99"));
    let mut deltas = listed(vec![object("a/y", 102, ""), object("a/z", 101, "")], vec![]);
    let rest = deltas.split_off(2);
    check(&indexer, deltas, &["a/y@2>102"]);
    assert_eq!((indexer.len(), indexer.resource_version().as_str()), (2, "99"), "nothing is gone before the end");
    // The list broke off, and begins anew.
    drop(rest);
    check(&indexer, listed(vec![object("a/y", 102, "")], vec![]), &["-a/x~1"]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_an_object_hears_of_it_while_a_list_goes_on() {
    let indexer = Indexer::new();
    check(&indexer, listed(vec![object("a/x", 1, "")], vec![]), &["+a/x@1", "filled"]);
    let lister = crate::cache::lister::Lister::new(indexer.clone());
    let key = "a/x".parse().unwrap();
    let waiting = tokio::spawn(async move { lister.wait_for(&key, "105", Duration::from_secs(1)).await });
    tokio::task::yield_now().await;
    check(&indexer, vec![Delta::ListBegun { scope: Scope::All }, Delta::Added(object("a/x", 107, ""))], &["a/x@1>107"]);
    waiting.await.unwrap().unwrap();
}

/// As [`object`], with this uid.
fn object_of(uid: &str, key: &str, version: u32) -> Entry<ConfigMap> {
    let Entry { key, object } = object(key, version, uid);
    let mut object = Decoder::new("configmaps", Keep::AtMost(0)).decode(&key, &object).unwrap().as_ref().clone();
    object.metadata.uid = Some(uid.to_owned());
    let object = if version.is_multiple_of(2) { Arc::new(object).into() } else { pack(&object) };
    Entry { key, object }
}

#[test]
fn an_object_made_again_while_away_is_a_deletion_and_an_addition() {
    let indexer = Indexer::new();
    let by_color = indexer.add_index(colors);
    check(&indexer, listed(vec![object_of("u1", "a/x", 1)], vec![]), &["+a/x@1", "filled"]);
    check(&indexer, listed(vec![object_of("u2", "a/x", 9)], vec![]), &["-a/x~1", "+a/x@9"]);
    assert_eq!(by_color.keys("u1").unwrap(), []);
    assert_eq!(by_color.keys("u2").unwrap(), ["a/x".parse().unwrap()]);
    check(&indexer, vec![Delta::Modified(object_of("u3", "a/x", 12))], &["-a/x~9", "+a/x@12"]);
    assert_eq!(by_color.keys("u3").unwrap(), ["a/x".parse().unwrap()]);
    assert_eq!(indexer.len(), 1);
    // A relist counts the object that was created again as listed.
    check(&indexer, listed(vec![object_of("u3", "a/x", 12)], vec![]), &[]);
}

#[test]
fn a_deletion_of_an_object_that_was_never_seen_ends_the_one_that_was() {
    let indexer = Indexer::new();
    check(&indexer, listed(vec![object_of("u1", "a/x", 1)], vec![]), &["+a/x@1", "filled"]);
    let Entry { key, object } = object_of("u2", "a/x", 9);
    check(&indexer, vec![Delta::Deleted { key, object: Some(object) }], &["-a/x~1"]);
    assert_eq!(indexer.len(), 0);
}

#[test]
fn a_deletion_ends_the_state_that_readers_saw_behind_an_undecodable_one() {
    let indexer = Indexer::new();
    check(&indexer, listed(vec![object("a/x", 1, "red")], vec![]), &["+a/x@1", "filled"]);
    check(&indexer, vec![Delta::Undecodable(broken("a/x", 2))], &["!a/x"]);
    check(&indexer, vec![deleted("a/x", 3)], &["a/x@1>3", "-a/x@3"]);
}

#[test]
fn without_uids_an_object_made_again_while_away_is_an_update() {
    let indexer = Indexer::new();
    check(&indexer, listed(vec![object("a/x", 1, "")], vec![]), &["+a/x@1", "filled"]);
    check(&indexer, listed(vec![object("a/x", 9, "")], vec![]), &["a/x@1>9"]);
}

#[test]
fn an_undecodable_object_is_neither_absent_nor_deleted() {
    let indexer = Indexer::new();
    let key = "a/x".parse().unwrap();
    check(&indexer, listed(vec![object("a/x", 1, "")], vec![broken("a/y", 1)]), &["+a/x@1", "!a/y", "filled"]);
    check(&indexer, vec![Delta::Undecodable(broken("a/x", 2)), Delta::Undecodable(broken("a/x", 2))], &["!a/x"]);
    assert!(matches!(indexer.get(&key), Found::Undecodable(_)));
    assert_eq!(indexer.list().len(), 1, "the state last decoded is still listed");
    assert_eq!(indexer.keys().len(), 2);
    check(&indexer, listed(vec![], vec![broken("a/x", 2)]), &["-a/y~"]);
    check(&indexer, vec![Delta::Modified(object("a/x", 3, ""))], &["a/x@1>3"]);
    assert!(matches!(indexer.get(&key), Found::Object(_)));
    let gone = Delta::Deleted { key: key.clone(), object: None };
    check(&indexer, vec![gone], &["-a/x~3"]);
    assert!(matches!(indexer.get(&key), Found::Absent));
}

#[test]
fn a_relist_with_a_nameless_object_deletes_nothing() {
    let indexer = Indexer::new();
    check(&indexer, listed(vec![object("a/x", 1, "")], vec![]), &["+a/x@1", "filled"]);
    check(&indexer, listed(vec![], vec![broken("", 0)]), &["!?"]);
    assert_eq!(indexer.len(), 1);
}

#[test]
fn an_index_can_be_added_late_and_knows_nothing_before_the_first_list() {
    let indexer = Indexer::new();
    check(&indexer, vec![Delta::Added(object("a/x", 1, "red+blue"))], &["+a/x@1"]);
    let by_color = indexer.add_index(colors);
    assert!(matches!(by_color.get("blue"), Err(LookupError::NotSynced { .. })));
    check(&indexer, listed(vec![object("a/x", 1, "red+blue")], vec![]), &["filled"]);
    assert_eq!(by_color.get("blue").unwrap().len(), 1);
    check(&indexer, vec![Delta::Modified(object("a/x", 2, "green"))], &["a/x@1>2"]);
    assert_eq!(by_color.values().unwrap(), ["green"], "no empty sets are left behind");
    assert_eq!((by_color.count("green").unwrap(), by_color.count("blue").unwrap()), (1, 0));
}

#[test]
fn a_cache_that_was_large_gives_its_memory_back() {
    let indexer = Indexer::new();
    let by_color = indexer.add_index(colors);
    let key = |number: u32| format!("a/{number}");
    let objects = (0..5_000).map(|number| object(&key(number), number + 1, &format!("color-{}", number % 2_500)));
    indexer.apply(&mut listed(objects.collect(), vec![]), &mut Vec::new());
    assert!(5_000 <= indexer.core.read().room());
    indexer.apply(&mut (10..5_000).map(|number| deleted(&key(number), 9_000)).collect(), &mut Vec::new());
    let room = indexer.core.read().room();
    assert!(room < 2_000, "it has room for {room} objects and has 10");
    let again = (10..100).map(|number| Delta::Added(object(&key(number), 9_001, "green")));
    indexer.apply(&mut again.collect(), &mut Vec::new());
    assert_eq!((indexer.len(), by_color.count("green").unwrap(), by_color.count("color-3").unwrap()), (100, 90, 1));
}

/// A value that counts how often it is compared.
#[derive(Clone, Debug)]
struct Counted(u32);

static N_COMPARED: AtomicUsize = AtomicUsize::new(0);

impl PartialEq for Counted {
    fn eq(&self, other: &Counted) -> bool {
        N_COMPARED.fetch_add(1, Ordering::Relaxed);
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn an_object_with_very_many_values_is_not_compared_with_each_for_each() {
    let indexer = Indexer::new();
    let by_number = indexer.add_index(|_: &ConfigMap| (0..2_000).map(Counted).collect::<Vec<_>>());
    check(&indexer, listed(vec![object("a/x", 1, "")], vec![]), &["+a/x@1", "filled"]);
    let before = N_COMPARED.load(Ordering::Relaxed);
    check(&indexer, vec![Delta::Modified(object("a/x", 2, ""))], &["a/x@1>2"]);
    let n_compared = N_COMPARED.load(Ordering::Relaxed) - before;
    assert!(n_compared < 20_000, "{n_compared} comparisons");
    assert_eq!(by_number.count(&Counted(1_999)).unwrap(), 1);
}

#[test]
fn indexes_of_one_cache_have_values_of_types_of_their_own() {
    let indexer = Indexer::new();
    let by_color = indexer.add_index(colors);
    let by_length = indexer.add_index(|object: &ConfigMap| colors(object).first().map(String::len));
    let by_name = indexer.add_metadata_index(|metadata| [ObjectKey::cluster(metadata.name.as_deref().unwrap_or(""))]);
    let objects = vec![object("a/x", 1, "red"), object("a/y", 2, "blue"), object("b/x", 3, "teal+red")];
    check(&indexer, listed(objects, vec![]), &["+a/x@1", "+a/y@2", "+b/x@3", "filled"]);
    let sorted = |mut keys: Vec<ObjectKey>| {
        keys.sort();
        keys.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(sorted(by_color.keys("red").unwrap()), ["a/x", "b/x"]);
    assert_eq!(sorted(by_length.keys(&4).unwrap()), ["a/y", "b/x"]);
    assert_eq!(sorted(by_name.clone().keys(&ObjectKey::cluster("x")).unwrap()), ["a/x", "b/x"]);
    let in_b = by_name.get_where(&ObjectKey::cluster("x"), |metadata| metadata.namespace.as_deref() == Some("b"));
    assert_eq!(in_b.unwrap().len(), 1);
}

#[test]
fn a_panic_in_an_index_function_costs_the_object_its_place_in_that_index() {
    let indexer = Indexer::new();
    let picky = indexer.add_index(|object: &ConfigMap| {
        assert_ne!(colors(object), ["red"], "scripted");
        colors(object)
    });
    let objects = vec![object("a/x", 1, "red"), object("a/y", 2, "blue")];
    check(&indexer, listed(objects, vec![]), &["+a/x@1", "+a/y@2", "filled"]);
    assert_eq!(picky.values().unwrap(), ["blue"]);
    check(&indexer, vec![Delta::Modified(object("a/x", 3, "blue"))], &["a/x@1>3"]);
    assert_eq!(picky.get("blue").unwrap().len(), 2);
}

/// The deltas of a list of one namespace, as `listed` makes those of all.
fn listed_in(namespace: &str, version: u32, entries: Vec<Entry<ConfigMap>>) -> Vec<Delta<ConfigMap>> {
    let scope = Scope::Namespace(namespace.to_owned());
    let end = Delta::ListEnded { scope: scope.clone(), resource_version: version.to_string() };
    std::iter::once(Delta::ListBegun { scope }).chain(entries.into_iter().map(Delta::Added)).chain([end]).collect()
}

#[test]
fn of_several_namespaces_each_is_listed_and_covered_for_itself() {
    let indexer = Indexer::new().scoped(&Scope::namespaces(["a", "b"]));
    check(&indexer, listed_in("a", 10, vec![object("a/x", 1, ""), object("a/y", 2, "")]), &["+a/x@1", "+a/y@2"]);
    assert!(!indexer.is_filled(), "of b nothing is known");
    assert_eq!((indexer.version_in(Some("a")).as_str(), indexer.resource_version().as_str()), ("10", ""));
    check(&indexer, listed_in("b", 12, vec![object("b/x", 3, "")]), &["+b/x@3", "filled"]);
    assert_eq!(indexer.resource_version(), "10");
    check(&indexer, vec![Delta::Modified(object("a/x", 15, ""))], &["a/x@1>15"]);
    assert_eq!((indexer.version_in(Some("a")).as_str(), indexer.resource_version().as_str()), ("15", "12"));
    // Two lists at once: each sweeps only its own namespace.
    let (mut a, b) = (listed_in("a", 20, vec![object("a/x", 15, "")]), listed_in("b", 21, vec![]));
    let end = a.pop().unwrap();
    check(&indexer, a.into_iter().chain(b).collect(), &["-b/x~3"]);
    assert_eq!((indexer.version_in(Some("a")).as_str(), indexer.version_in(Some("b")).as_str()), ("15", "21"));
    check(&indexer, vec![end], &["-a/y~2"]);
    assert_eq!((indexer.resource_version().as_str(), indexer.keys()), ("20", vec!["a/x".parse().unwrap()]));
}

fn deltas() -> impl Strategy<Value = Vec<Vec<(u8, u8, u8)>>> {
    let delta = (0..5_u8, 0..6_u8, any::<u8>());
    proptest::collection::vec(proptest::collection::vec(delta, 0..6), 0..20)
}

fn key_of(number: u8) -> String {
    format!("ns{}/x{}", number % 2, number / 2)
}

proptest! {
    #[test]
    fn indexes_agree_with_a_scan_and_outcomes_with_the_cache(batches in deltas(), late in prop_oneof![0..20_usize]) {
        let indexer = Indexer::new();
        check(&indexer, listed(vec![], vec![]), &["filled"]);
        let mut by_color = None;
        let mut mirror: BTreeMap<ObjectKey, String> = BTreeMap::new();
        let mut version = 0;
        for (round, batch) in batches.into_iter().enumerate() {
            if round == late {
                by_color = Some(indexer.add_index(colors));
            }
            let mut deltas = Vec::new();
            for (kind, number, color) in batch {
                version += 1;
                let key = key_of(number);
                let color = ["", "red", "blue", "red+blue"][color as usize % 4];
                match kind {
                    0 => deltas.push(Delta::Added(object(&key, version, color))),
                    1 => deltas.push(deleted(&key, version)),
                    2 => deltas.push(Delta::Undecodable(broken(&key, version))),
                    3 => deltas.extend(listed((0..number).map(|other| object(&key_of(other), version, color)).collect(), vec![broken(&key, version)])),
                    // The beginning of a list that breaks off.
                    _ => deltas.extend([Delta::ListBegun { scope: Scope::All }, Delta::Added(object(&key, version, color))]),
                }
            }
            let mut outcomes = Vec::new();
            indexer.apply(&mut deltas, &mut outcomes);
            for outcome in outcomes {
                let version = |object: &Cached<ConfigMap>| object.resource_version().to_owned();
                match outcome {
                    Outcome::Added(entry, _) => {
                        assert_eq!(mirror.insert(entry.key, version(&entry.object)), None, "added twice");
                    }
                    Outcome::Updated { key, old, new } => {
                        assert_eq!(mirror.insert(key, version(&new)), Some(version(&old)), "old is not the state before");
                    }
                    Outcome::Deleted { key, .. } => drop(mirror.remove(&key)),
                    Outcome::Filled | Outcome::Undecodable(_) => {}
                }
            }
        }
        let listed: BTreeMap<ObjectKey, String> = indexer
            .list()
            .iter()
            .map(|object| (ObjectKey::of(&**object), object.metadata.resource_version.clone().unwrap()))
            .collect();
        assert_eq!(mirror, listed);
        for namespace in ["ns0", "ns1", "ns2"] {
            let indexed: BTreeSet<ObjectKey> =
                indexer.list_in(namespace).iter().map(|object| ObjectKey::of(&**object)).collect();
            let scanned = listed.keys().filter(|key| key.namespace() == Some(namespace)).cloned().collect();
            assert_eq!(indexed, scanned);
        }
        if let Some(by_color) = by_color {
            for color in ["", "red", "blue"] {
                let scanned = indexer.list().iter().filter(|object| colors(object).contains(&color.to_owned())).count();
                assert_eq!(by_color.get(color).unwrap().len(), scanned);
            }
        }
    }
}
