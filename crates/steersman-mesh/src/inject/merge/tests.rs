//! Pods with a fragment: chosen ones, and random ones that keep what they have.

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::{collection, option, sample};
use steersman_schema::Edition;

use super::*;
use crate::inject::initializer::released;
use crate::inject::{CONFIGURED, INITIALIZER};

fn fragment(yaml: &str) -> Fragment {
    Fragment::parse(yaml).unwrap()
}

fn envoy() -> Fragment {
    fragment(
        "containers: [{name: envoy, image: e, ports: [{containerPort: 80}]}]\nvolumes: [{name: envoy-conf, configMap: {name: envoy}}]",
    )
}

fn names(pod: &Value, list: &str) -> Vec<String> {
    let list = pod["spec"][list].as_array().into_iter().flatten();
    list.filter_map(name).map(str::to_owned).collect()
}

#[test]
fn the_sidecar_comes_last_and_a_native_one_first() {
    let pod = json!({"spec": {"containers": [{"name": "b"}, {"name": "a"}], "initContainers": [{"name": "z"}, {"name": "y"}]}});
    let fragment = fragment(
        "containers: [{name: agent, image: e}]\ninitContainers: [{name: proxy, image: e, restartPolicy: Always}]",
    );
    let injected = inject(&pod, &fragment).unwrap();
    assert_eq!(names(&injected, "containers"), ["b", "a", "agent"]);
    assert_eq!(names(&injected, "initContainers"), ["proxy", "z", "y"]);
    assert_eq!(injected["metadata"]["annotations"][FRAGMENT], fragment.hash());
    let record = injected["metadata"]["annotations"][RECORD].as_str().unwrap();
    assert_eq!(record, r#"{"containers":["agent"],"initContainers":["proxy"],"volumes":[]}"#);
}

#[test]
fn a_pod_with_a_container_of_that_name_is_left_alone() {
    let pod = json!({"spec": {"containers": [{"name": "envoy", "image": "mine"}]}});
    let unchanged = Unchanged::Present { container: "envoy".to_owned() };
    assert_eq!(plan(&pod, &envoy()).unwrap(), Plan::Leave(unchanged));
    let pod = json!({"spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "envoy"}]}});
    assert!(matches!(plan(&pod, &envoy()), Ok(Plan::Leave(Unchanged::Present { .. }))));
}

#[test]
fn ports_and_volumes_in_use_are_refused_in_a_sentence() {
    let pod = json!({"spec": {"containers": [{"name": "web", "ports": [{"containerPort": 80}]}]}});
    assert_eq!(
        inject(&pod, &envoy()).unwrap_err().to_string(),
        "the sidecar's container envoy and the Pod's container web both listen on port 80/TCP: change one"
    );
    let pod = json!({"spec": {"containers": [{"name": "web", "ports": [{"containerPort": 80, "protocol": "UDP"}]}]}});
    assert!(inject(&pod, &envoy()).is_ok());
    let pod = json!({"spec": {"containers": [{"name": "web"}], "volumes": [{"name": "envoy-conf", "emptyDir": {}}]}});
    assert_eq!(
        inject(&pod, &envoy()).unwrap_err().to_string(),
        "the Pod has a volume envoy-conf, which is the name of a volume of the sidecar: rename it"
    );
}

#[test]
fn an_init_container_that_ends_is_in_the_way_of_a_native_sidecar_only() {
    let pod = json!({"spec": {"containers": [{"name": "web"}], "initContainers": [{"name": "init", "ports": [{"containerPort": 80}]}]}});
    assert!(inject(&pod, &envoy()).is_ok());
    let native =
        fragment("initContainers: [{name: envoy, image: e, restartPolicy: Always, ports: [{containerPort: 80}]}]");
    assert!(matches!(inject(&pod, &native), Err(Conflict::Port { .. })));
}

#[test]
fn what_the_pod_says_of_itself_stays() {
    let fragment = fragment(
        "containers: [{name: envoy, image: e}]\nmetadata: {labels: {a: ours, b: ours}, annotations: {c: ours}}\nreadinessGates: [{conditionType: mesh.steersman.dev/configured}]\nimagePullSecrets: [{name: one}, {name: two}]\nterminationGracePeriodSeconds: 45",
    );
    let pod = json!({
        "metadata": {"labels": {"a": "mine"}, "annotations": {"c": "mine"}},
        "spec": {
            "containers": [{"name": "web"}], "readinessGates": [{"conditionType": "x/y"}],
            "imagePullSecrets": [{"name": "two"}], "terminationGracePeriodSeconds": 30,
        }
    });
    let injected = inject(&pod, &fragment).unwrap();
    assert_eq!(injected["metadata"]["labels"], json!({"a": "mine", "b": "ours"}));
    assert_eq!(injected["metadata"]["annotations"]["c"], "mine");
    assert_eq!(injected["spec"]["readinessGates"], json!([{"conditionType": "x/y"}, {"conditionType": CONFIGURED}]));
    assert_eq!(names(&injected, "imagePullSecrets"), ["two", "one"]);
    assert_eq!(injected["spec"]["terminationGracePeriodSeconds"], 45);
    let longer = json!({"spec": {"containers": [{"name": "web"}], "terminationGracePeriodSeconds": 60}});
    assert_eq!(inject(&longer, &fragment).unwrap()["spec"]["terminationGracePeriodSeconds"], 60);
}

#[test]
fn a_sidecar_that_another_webhook_has_broken_is_refused_and_one_that_is_gone_is_added_anew() {
    let two =
        fragment("containers: [{name: envoy, image: e}, {name: agent, image: e}]\nvolumes: [{name: v, emptyDir: {}}]");
    let mut pod = inject(&json!({"spec": {"containers": [{"name": "web"}]}}), &two).unwrap();
    assert!(is_injected(&pod));
    pod["spec"]["containers"].as_array_mut().unwrap().retain(|container| container["name"] != "agent");
    assert_eq!(
        inject(&pod, &two).unwrap_err().to_string(),
        "the Pod's sidecar is incomplete: container agent was removed, but envoy is still there"
    );
    pod["spec"]["containers"].as_array_mut().unwrap().retain(|container| container["name"] != "envoy");
    let again = inject(&pod, &two).unwrap();
    assert_eq!(names(&again, "containers"), ["web", "envoy", "agent"]);
    assert_eq!(names(&again, "volumes"), ["v"]);
}

#[test]
fn a_container_that_joins_later_must_not_listen_on_the_sidecars_port() {
    let mut pod = inject(&json!({"spec": {"containers": [{"name": "web"}]}}), &envoy()).unwrap();
    pod["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "late", "ports": [{"containerPort": 80}]}));
    assert!(matches!(inject(&pod, &envoy()), Err(Conflict::Port { theirs, .. }) if theirs == "late"));
}

#[test]
fn an_old_fragment_is_not_mixed_with_a_new_one() {
    let old = inject(&json!({"spec": {"containers": [{"name": "web"}]}}), &envoy()).unwrap();
    let new = fragment("containers: [{name: envoy, image: new}, {name: agent, image: e}]");
    assert_eq!(inject(&old, &new).unwrap(), old);
}

#[test]
fn what_the_server_will_refuse_is_left_to_it() {
    for pod in [
        json!({}),
        json!({"spec": {"containers": {"a": 1}}}),
        json!({"spec": {"containers": [{"image": "x"}]}}),
        json!({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}),
        json!({"spec": {"containers": [{"name": "a"}], "volumes": [1]}}),
        json!({"metadata": {"labels": []}, "spec": {"containers": [{"name": "a"}]}}),
    ] {
        assert_eq!(plan(&pod, &envoy()).unwrap(), Plan::Leave(Unchanged::Malformed), "{pod}");
    }
}

/// The Pod as both ways make it.
#[track_caller]
fn each_way(pod: &Value, fragment: &Fragment) -> Value {
    let Plan::Patch(patch) = plan(pod, fragment).unwrap() else { panic!("left as it is: {pod}") };
    let by_webhook = inject(pod, fragment).unwrap();
    let mut waiting = pod.clone();
    waiting["metadata"]["initializers"] = json!({"pending": [{"name": INITIALIZER}]});
    let schema = steersman_schema::Definitions::of(Edition::WithInitializers).schema("io.k8s.api.core.v1.Pod").unwrap();
    let mut by_initializer = strategic::apply(schema, waiting, released(patch)).unwrap();
    by_initializer["metadata"].as_object_mut().unwrap().remove("initializers");
    assert_eq!(by_initializer, by_webhook);
    by_webhook
}

#[test]
fn pull_secrets_that_the_server_accepts_do_not_keep_the_sidecar_away() {
    let with_secret = fragment("containers: [{name: envoy, image: e}]\nimagePullSecrets: [{name: mirror}]");
    let pod = |secrets: Value| json!({"metadata": {}, "spec": {"containers": [{"name": "web"}], "imagePullSecrets": secrets}});
    for secrets in [json!([{"name": "a"}, {"name": "a"}]), json!([{}]), json!([{"name": ""}, {"name": ""}])] {
        let made = each_way(&pod(secrets.clone()), &envoy());
        assert_eq!(names(&made, "containers"), ["web", "envoy"]);
        assert_eq!(made["spec"]["imagePullSecrets"], secrets);
    }
    let made = each_way(&pod(json!([{"name": "a"}, {"name": "a"}])), &with_secret);
    let mut secrets = names(&made, "imagePullSecrets");
    secrets.sort();
    assert_eq!(secrets, ["a", "a", "mirror"]);
    assert_eq!(
        inject(&pod(json!([{"name": "a"}, {}])), &with_secret).unwrap_err().to_string(),
        "the sidecar's imagePullSecrets cannot be added: imagePullSecrets[1] of the Pod has no name; name it or remove it"
    );
    // There is nothing to add.
    each_way(&pod(json!([{"name": "mirror"}, {}])), &with_secret);
}

#[test]
fn a_volume_that_is_left_over_is_replaced_and_not_merged() {
    let record = r#"{"containers":["envoy"],"volumes":["envoy-conf"]}"#;
    let pod = |volume: Value| {
        json!({
            "metadata": {"annotations": {RECORD: record}},
            "spec": {"containers": [{"name": "web"}], "volumes": [volume, {"name": "own", "emptyDir": {}}]},
        })
    };
    for old in [
        json!({"name": "envoy-conf", "emptyDir": {}}),
        json!({"name": "envoy-conf", "configMap": {"name": "old", "optional": true}}),
        json!({"name": "envoy-conf", "configMap": {"name": "envoy"}}),
    ] {
        let made = each_way(&pod(old), &envoy());
        let wanted = json!([
            {"name": "own", "emptyDir": {}},
            {"name": "envoy-conf", "configMap": {"name": "envoy"}},
        ]);
        assert_eq!(made["spec"]["volumes"], wanted);
    }
}

#[test]
fn a_forged_record_does_not_give_the_pods_own_volume_away() {
    let mut pod = json!({
        "metadata": {"annotations": {RECORD: r#"{"volumes":["envoy-conf"]}"#}},
        "spec": {"containers": [{"name": "web"}], "volumes": [{"name": "envoy-conf", "emptyDir": {}}]},
    });
    assert!(inject(&pod, &envoy()).is_ok());
    for (list, mounts) in [("containers", "volumeMounts"), ("initContainers", "volumeDevices")] {
        let mut used = pod.clone();
        used["spec"]["initContainers"] = json!([{"name": "init"}]);
        used["spec"][list][0][mounts] = json!([{"name": "envoy-conf"}]);
        let volume = "envoy-conf".to_owned();
        assert_eq!(inject(&used, &envoy()).unwrap_err(), Conflict::Volume { volume }, "{list}");
    }
    pod["metadata"]["annotations"][RECORD] = "{}".into();
    assert!(matches!(inject(&pod, &envoy()), Err(Conflict::Volume { .. })));
}

#[test]
fn a_record_that_is_no_record_counts_as_none() {
    for record in ["", "{", "[]", "{\"containers\": 1}", "{\"containers\": []}", &"x".repeat(100_000)] {
        let pod = json!({"metadata": {"annotations": {RECORD: record}}, "spec": {"containers": [{"name": "web"}]}});
        assert!(!is_injected(&pod), "{record}");
        let injected = inject(&pod, &envoy()).unwrap();
        assert!(is_injected(&injected));
    }
}

// Random Pods and fragments: few names and ports, so that they meet.

fn name_of() -> impl Strategy<Value = String> {
    sample::select(vec!["web", "db", "envoy", "agent", "proxy", "log"]).prop_map(str::to_owned)
}

fn container() -> impl Strategy<Value = Value> {
    let ports = collection::vec((sample::select(vec![80, 443, 8080, 15000]), option::of(Just("UDP"))), 0..3);
    (name_of(), ports, any::<bool>(), option::of("[a-z]{1,4}")).prop_map(|(name, ports, is_native, argument)| {
        let ports: Vec<Value> = ports
            .into_iter()
            .map(|(number, protocol)| match protocol {
                Some(protocol) => json!({"containerPort": number, "protocol": protocol}),
                None => json!({"containerPort": number}),
            })
            .collect();
        let mut container = json!({"name": name, "image": "i", "ports": ports});
        if is_native {
            container["restartPolicy"] = "Always".into();
        }
        if let Some(argument) = argument {
            container["args"] = json!([argument]);
        }
        container
    })
}

/// Items with different names.
fn named(items: Vec<Value>) -> Vec<Value> {
    let mut known = HashSet::new();
    items.into_iter().filter(|item| known.insert(name(item).map(str::to_owned))).collect()
}

fn volume() -> impl Strategy<Value = Value> {
    (sample::select(vec!["v", "w", "envoy-conf"]), any::<bool>()).prop_map(|(name, is_empty)| match is_empty {
        true => json!({"name": name, "emptyDir": {}}),
        false => json!({"name": name, "configMap": {"name": "c"}}),
    })
}

fn metadata() -> impl Strategy<Value = Value> {
    let map = || collection::btree_map("[ab]", "[xy]", 0..3);
    (map(), map()).prop_map(|(labels, annotations)| json!({"labels": labels, "annotations": annotations}))
}

fn gates() -> impl Strategy<Value = Vec<Value>> {
    let gate = sample::select(vec!["a/b", "c/d", CONFIGURED]).prop_map(|it| json!({"conditionType": it}));
    collection::vec(gate, 0..3)
}

fn parts() -> impl Strategy<Value = Value> {
    let lists =
        (collection::vec(container(), 0..4), collection::vec(container(), 0..3), collection::vec(volume(), 0..3));
    (lists, gates(), metadata(), option::of(0_i64..90)).prop_map(|(lists, gates, metadata, grace)| {
        let (containers, inits, volumes) = lists;
        let n_containers = containers.len();
        // A name is one container's, wherever it is.
        let mut all = named(containers.into_iter().chain(inits).collect());
        let inits = all.split_off(n_containers.min(all.len()));
        let mut parts = json!({
            "containers": all, "initContainers": inits, "volumes": named(volumes), "readinessGates": gates,
            "imagePullSecrets": [{"name": "s"}], "metadata": metadata,
        });
        if let Some(grace) = grace {
            parts["terminationGracePeriodSeconds"] = grace.into();
        }
        parts
    })
}

fn pod() -> impl Strategy<Value = Value> {
    parts().prop_map(|mut spec| {
        let metadata = spec["metadata"].take();
        spec.as_object_mut().unwrap().remove("metadata");
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    })
}

fn any_fragment() -> impl Strategy<Value = Fragment> {
    prop_oneof![Just(envoy()), parts().prop_filter_map("no fragment", |parts| Fragment::parse(&parts.to_string()).ok()),]
}

/// The items of a list that are not the fragment's, in their order.
fn own(pod: &Value, list: &str, ours: &[Value]) -> Vec<Value> {
    let ours: HashSet<&str> = ours.iter().filter_map(name).collect();
    let items = pod["spec"][list].as_array().into_iter().flatten();
    items.filter(|item| name(item).is_none_or(|name| !ours.contains(name))).cloned().collect()
}

proptest! {
    #[test]
    fn the_pod_keeps_what_it_has_and_gets_all_of_the_fragment(pod in pod(), fragment in any_fragment()) {
        if let Ok(Plan::Patch(patch)) = plan(&pod, &fragment) {
            let injected = apply(pod.clone(), patch).unwrap();
            for (list, ours) in [
                ("containers", &fragment.containers),
                ("initContainers", &fragment.init_containers),
                ("volumes", &fragment.volumes),
            ] {
                let before = pod["spec"][list].as_array().unwrap();
                prop_assert_eq!(&own(&injected, list, ours), before);
                let added: Vec<&Value> =
                    injected["spec"][list].as_array().unwrap().iter().filter(|item| ours.contains(item)).collect();
                prop_assert_eq!(added, ours.iter().collect::<Vec<_>>());
            }
            for part in ["labels", "annotations"] {
                for (key, value) in pod["metadata"][part].as_object().unwrap() {
                    prop_assert_eq!(&injected["metadata"][part][key], value);
                }
            }
            let gates = injected["spec"]["readinessGates"].as_array().unwrap();
            for gate in pod["spec"]["readinessGates"].as_array().unwrap().iter().chain(&fragment.readiness_gates) {
                prop_assert!(gates.contains(gate));
            }
            prop_assert!(is_injected(&injected));
        }
    }

    #[test]
    fn injecting_twice_gives_the_same_bytes(pod in pod(), fragment in any_fragment(), other in any_fragment()) {
        if let Ok(once) = inject(&pod, &fragment) {
            let twice = inject(&once, &fragment).unwrap();
            prop_assert_eq!(serde_json::to_vec(&once).unwrap(), serde_json::to_vec(&twice).unwrap());
            if is_injected(&once) {
                prop_assert_eq!(inject(&once, &other).unwrap(), once);
            }
        }
    }

    #[test]
    fn the_initializer_and_the_webhook_give_the_same_bytes(pod in pod(), fragment in any_fragment()) {
        if let Ok(Plan::Patch(patch)) = plan(&pod, &fragment) {
            let by_webhook = inject(&pod, &fragment).unwrap();
            let mut waiting = pod.clone();
            waiting["metadata"]["initializers"] = json!({"pending": [{"name": INITIALIZER}, {"name": "other.example.com"}]});
            let schema = steersman_schema::Definitions::of(Edition::WithInitializers).schema("io.k8s.api.core.v1.Pod").unwrap();
            let mut by_initializer = strategic::apply(schema, waiting, released(patch)).unwrap();
            let rest = by_initializer["metadata"].as_object_mut().unwrap().remove("initializers").unwrap();
            prop_assert_eq!(rest, json!({"pending": [{"name": "other.example.com"}]}));
            prop_assert_eq!(serde_json::to_vec(&by_initializer).unwrap(), serde_json::to_vec(&by_webhook).unwrap());
        }
    }
}
