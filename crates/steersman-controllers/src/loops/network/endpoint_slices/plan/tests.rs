//! The slices that are written for given Pods, and how few writes are needed.

use super::*;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

static NAMES: AtomicUsize = AtomicUsize::new(0);

fn service(spec: Value) -> Service {
    let metadata = json!({"name": "web", "namespace": "shop", "uid": "s", "labels": {"tier": "front"}});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn web() -> Service {
    service(json!({"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
        "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]}))
}

fn pod(n: usize, is_ready: bool) -> Arc<Pod> {
    let status = if is_ready { "True" } else { "False" };
    let pod = json!({
        "metadata": {"name": format!("p{n:04}"), "namespace": "shop", "uid": format!("u{n}")},
        "spec": {"nodeName": "n", "containers": []},
        "status": {"phase": "Running", "podIP": "10.1.0.1", "podIPs": [{"ip": format!("10.1.{}.{}", n / 250, n % 250)}],
            "conditions": [{"type": "Ready", "status": status}]},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn nodes() -> Nodes {
    Nodes::from_iter([("n".to_owned(), Some("east".to_owned()))])
}

/// The changes of one pass, and the resulting slices.
fn pass(
    service: &Service,
    pods: &[Arc<Pod>],
    existing: &[Arc<EndpointSlice>],
) -> (Vec<usize>, Vec<Arc<EndpointSlice>>) {
    let mut divided = HashSet::new();
    let mut hinting = Hinting { zones: None, divided: &mut divided };
    let plan = plan(service, pods, existing, &nodes(), &mut hinting);
    assert_eq!(plan.skipped, Vec::<String>::new());
    let mut after: Vec<Arc<EndpointSlice>> = existing.to_vec();
    let mut counts = vec![0, 0, 0];
    for changes in plan.changes {
        let Changes { create, update, delete } = changes;
        [create.len(), update.len(), delete.len()].iter().zip(&mut counts).for_each(|(n, count)| *count += n);
        after.retain(|slice| !delete.iter().any(|deleted| Arc::ptr_eq(deleted, slice)));
        for new in update {
            let old = after.iter_mut().find(|slice| slice.metadata.name == new.metadata.name).unwrap();
            *old = Arc::new(new);
        }
        for mut new in create {
            new.metadata.name = Some(format!("web-{}", NAMES.fetch_add(1, Ordering::Relaxed)));
            after.push(Arc::new(new));
        }
    }
    (counts, after)
}

fn sizes(slices: &[Arc<EndpointSlice>]) -> Vec<usize> {
    slices.iter().map(|slice| len(slice)).collect()
}

#[test]
fn a_service_without_pods_has_an_empty_slice_which_is_filled_when_pods_come() {
    let (counts, slices) = pass(&web(), &[], &[]);
    assert_eq!((counts, sizes(&slices)), (vec![1, 0, 0], vec![0]));
    assert_eq!(pass(&web(), &[], &slices).0, [0, 0, 0]);
    let (counts, slices) = pass(&web(), &[pod(1, true)], &slices);
    assert_eq!((counts, sizes(&slices)), (vec![0, 1, 0], vec![1]));
    let (counts, slices) = pass(&web(), &[], &slices);
    assert_eq!((counts, sizes(&slices)), (vec![0, 1, 0], vec![0]));
    assert!(slices[0].ports.as_ref().unwrap().is_empty());
}

#[test]
fn a_new_slice_says_whose_it_is_and_what_each_endpoint_is() {
    let (_, slices) = pass(&web(), &[pod(1, true), pod(2, false)], &[]);
    let slice = serde_json::to_value(&*slices[0]).unwrap();
    assert_eq!(slice["metadata"]["generateName"], "web-");
    assert_eq!(
        slice["metadata"]["labels"],
        json!({"tier": "front", "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"})
    );
    assert_eq!(slice["metadata"]["ownerReferences"][0]["controller"], true);
    assert_eq!(slice["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    let endpoint = &slice["endpoints"][1];
    assert_eq!(endpoint["conditions"], json!({"ready": false, "serving": false, "terminating": false}));
    assert_eq!((&endpoint["zone"], &endpoint["nodeName"]), (&json!("east"), &json!("n")));
    assert_eq!(endpoint["targetRef"], json!({"kind": "Pod", "namespace": "shop", "name": "p0002", "uid": "u2"}));
}

#[test]
fn endpoints_stay_where_they_are_and_new_ones_go_where_something_changes_anyway() {
    let pods: Vec<_> = (0..250).map(|n| pod(n, true)).collect();
    let (counts, slices) = pass(&web(), &pods, &[]);
    assert_eq!((counts, sizes(&slices)), (vec![3, 0, 0], vec![100, 100, 50]));
    assert_eq!(pass(&web(), &pods, &slices).0, [0, 0, 0], "nothing changed");
    let more: Vec<_> = (0..260).map(|n| pod(n, true)).collect();
    let (counts, after) = pass(&web(), &more, &slices);
    assert_eq!((counts, sizes(&after)), (vec![0, 1, 0], vec![100, 100, 60]), "one has room");
    let moved: Vec<_> = (10..260).map(|n| pod(n, true)).collect();
    let (counts, after) = pass(&web(), &moved, &slices);
    assert_eq!((counts, sizes(&after)), (vec![0, 1, 0], vec![100, 100, 50]), "the one that loses some takes others");
    let unready: Vec<_> = (0..250).map(|n| pod(n, n != 120)).collect();
    let (counts, after) = pass(&web(), &unready, &slices);
    assert_eq!((counts, sizes(&after)), (vec![0, 1, 0], vec![100, 100, 50]));
}

#[test]
fn labels_follow_the_service_but_for_the_three_that_are_reserved() {
    let (_, slices) = pass(&web(), &[pod(1, true)], &[]);
    let mut service = web();
    service.metadata.labels.get_or_insert_default().insert("kubernetes.io/service-name".to_owned(), "x".to_owned());
    assert_eq!(pass(&service, &[pod(1, true)], &slices).0, [0, 0, 0]);
    service.metadata.labels.get_or_insert_default().insert("tier".to_owned(), "back".to_owned());
    let (counts, slices) = pass(&service, &[pod(1, true)], &slices);
    assert_eq!(counts, [0, 1, 0]);
    assert_eq!(slices[0].metadata.labels.as_ref().unwrap()["tier"], "back");
}

#[test]
fn a_slice_of_a_service_before_is_left_to_go_and_another_one_made() {
    let (_, slices) = pass(&web(), &[pod(1, true)], &[]);
    let mut again = web();
    again.metadata.uid = Some("again".to_owned());
    let (counts, slices) = pass(&again, &[pod(1, true)], &slices);
    assert_eq!((counts, sizes(&slices)), (vec![1, 0, 1], vec![1]));
}

#[test]
fn a_headless_service_of_two_families_has_slices_of_both() {
    let service = service(json!({"clusterIP": "None", "ipFamilies": ["IPv4", "IPv6"], "selector": {"app": "web"}}));
    let (counts, slices) = pass(&service, &[pod(1, true)], &[]);
    assert_eq!((counts, sizes(&slices)), (vec![2, 0, 0], vec![1, 0]));
    assert_eq!(slices[1].address_type, "IPv6");
    assert_eq!(slices[0].metadata.labels.as_ref().unwrap()["service.kubernetes.io/headless"], "");
    assert_eq!(pass(&service, &[pod(1, true)], &slices).0, [0, 0, 0]);
}

#[test]
fn a_pod_on_a_node_that_is_not_there_is_left_out_and_named() {
    let mut lost = Pod::clone(&pod(1, true));
    lost.spec.as_mut().unwrap().node_name = Some("gone".to_owned());
    let mut divided = HashSet::new();
    let mut hinting = Hinting { zones: None, divided: &mut divided };
    let plan = plan(&web(), &[Arc::new(lost)], &[], &nodes(), &mut hinting);
    assert_eq!(plan.skipped, ["skipping Pod p0001 for Service shop/web: Node gone Not Found"]);
    assert_eq!(len(&plan.changes[0].create[0]), 0);
}

#[test]
fn a_traffic_distribution_gives_hints_which_go_with_it() {
    let mut service = web();
    let (_, slices) = pass(&service, &[pod(1, true), pod(2, false)], &[]);
    service.spec.as_mut().unwrap().traffic_distribution = Some("PreferSameNode".to_owned());
    let (counts, slices) = pass(&service, &[pod(1, true), pod(2, false)], &slices);
    assert_eq!(counts, [0, 1, 0]);
    let endpoints = serde_json::to_value(&slices[0].endpoints).unwrap();
    assert_eq!(endpoints[0]["hints"], json!({"forNodes": [{"name": "n"}], "forZones": [{"name": "east"}]}));
    assert_eq!(endpoints[1]["hints"], Value::Null, "only those that are ready");
    assert_eq!(pass(&service, &[pod(1, true), pod(2, false)], &slices).0, [0, 0, 0]);
    service.spec.as_mut().unwrap().traffic_distribution = None;
    let (counts, slices) = pass(&service, &[pod(1, true), pod(2, false)], &slices);
    assert_eq!((counts, slices[0].endpoints.as_ref().unwrap()[0].hints.is_none()), (vec![0, 1, 0], true));
}

#[test]
fn the_annotation_divides_endpoints_among_zones_by_their_cpus() {
    let mut service = web();
    let annotation = ("service.kubernetes.io/topology-mode".to_owned(), "Auto".to_owned());
    service.metadata.annotations = Some(BTreeMap::from([annotation]));
    let mut divided = HashSet::new();
    let zones = |list: &[(&str, f64)]| list.iter().map(|(zone, share)| ((*zone).to_owned(), *share)).collect();
    let pods: Vec<_> = (0..8).map(|n| pod(n, true)).collect();
    let mut plan_with = |list: &[(&str, f64)]| {
        let mut hinting = Hinting { zones: Some(zones(list)), divided: &mut divided };
        plan(&service, &pods, &[], &nodes(), &mut hinting)
    };
    let done = plan_with(&[("east", 0.5), ("west", 0.5)]);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for endpoint in done.changes[0].create[0].endpoints.iter().flatten() {
        let zone = &endpoint.hints.as_ref().unwrap().for_zones.as_ref().unwrap()[0].name;
        *counts.entry(zone.clone()).or_default() += 1;
    }
    assert_eq!(counts, BTreeMap::from([("east".to_owned(), 4), ("west".to_owned(), 4)]));
    assert_eq!(done.events[0].text, "Topology Aware Hints has been enabled, addressType: IPv4");
    let many: Vec<(String, f64)> = (0..9).map(|n| (format!("z{n}"), 1.0 / 9.0)).collect();
    let many: Vec<(&str, f64)> = many.iter().map(|(zone, share)| (&**zone, *share)).collect();
    let none = plan_with(&many);
    assert_eq!(none.events[0].text, "Insufficient number of endpoints (8 endpoints, 9 zones), addressType: IPv4");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 32, ..Default::default() })]

    #[test]
    fn after_any_changes_each_pod_is_in_one_slice_and_nothing_is_left_to_do(
        rounds in proptest::collection::vec(proptest::collection::btree_map(0_usize..350, proptest::bool::ANY, 0..300), 1..6)
    ) {
        let mut slices = Vec::new();
        for round in rounds {
            let pods: Vec<_> = round.iter().map(|(n, is_ready)| pod(*n, *is_ready)).collect();
            let (_, after) = pass(&web(), &pods, &slices);
            let endpoints = after.iter().flat_map(|slice| slice.endpoints.iter().flatten());
            let found: BTreeMap<String, bool> = endpoints
                .clone()
                .map(|one| {
                    let name = one.target_ref.as_ref().and_then(|target| target.name.clone()).unwrap();
                    (name, one.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap())
                })
                .collect();
            let wanted: BTreeMap<String, bool> =
                round.iter().map(|(n, is_ready)| (format!("p{n:04}"), *is_ready)).collect();
            proptest::prop_assert_eq!(endpoints.count(), wanted.len());
            proptest::prop_assert_eq!(found, wanted);
            proptest::prop_assert!(sizes(&after).iter().all(|size| *size <= ENDPOINTS_MAX));
            proptest::prop_assert_eq!(pass(&web(), &pods, &after).0, [0, 0, 0]);
            slices = after;
        }
    }
}
