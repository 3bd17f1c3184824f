//! The steps of `core/classic-patches.walk` and `seeds/sidecar-patch.walk`, and patches of kubectl.

use crate::patch::strategic::{Class, Error, apply, create_three_way, create_two_way};
use crate::{Definitions, Schema};
use expect_test::{Expect, expect};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::{Strategy, proptest};
use proptest::prop_assert_eq;
use serde_json::json;
use steersman_machinery::Value;

fn builtin(name: &str) -> &'static Schema {
    Definitions::builtin().schema(name).unwrap()
}

fn pod_template() -> &'static Schema {
    builtin("io.k8s.api.core.v1.PodTemplate")
}

fn deployment() -> &'static Schema {
    builtin("io.k8s.api.apps.v1.Deployment")
}

/// The PodTemplate of the walk.
fn template() -> Value {
    json!({
        "metadata": {"name": "t", "labels": {"a": "1"}, "finalizers": ["example.com/x"]},
        "template": {"spec": {
            "containers": [
                {"name": "c1", "image": "i1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
                {"name": "c2", "image": "i2"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "tolerations": [{"key": "k", "operator": "Exists"}]}}})
}

fn spec(spec: Value) -> Value {
    json!({"template": {"spec": spec}})
}

#[track_caller]
fn check(patch: Value, at: &str, want: Expect) {
    let patched = apply(pod_template(), template(), patch).unwrap();
    want.assert_eq(&patched.pointer(at).map(Value::to_string).unwrap_or_default());
}

#[track_caller]
fn check_refused(patch: Value, class: Class, want: Expect) {
    let error = apply(pod_template(), template(), patch).unwrap_err();
    assert_eq!(error.class(), class);
    want.assert_eq(&error.to_string());
}

#[test]
fn lists_merge_by_their_key_in_the_patchs_order() {
    let patch = spec(json!({"containers": [
        {"name": "c2", "image": "i2b"},
        {"name": "c1", "env": [{"name": "B", "value": "22"}, {"name": "C", "value": "3"}]}]}));
    check(
        patch,
        "/template/spec/containers",
        expect![[
            r#"[{"image":"i2b","name":"c2"},{"env":[{"name":"A","value":"1"},{"name":"B","value":"22"},{"name":"C","value":"3"}],"image":"i1","name":"c1"}]"#
        ]],
    );
}

#[test]
fn a_new_item_comes_in_front_of_what_the_patch_does_not_name() {
    let patch = spec(json!({"containers": [{"name": "envoy", "image": "e"}], "volumes": [{"name": "w"}]}));
    let patched = apply(pod_template(), template(), patch.clone()).unwrap();
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&patched["template"]["spec"]["containers"]), ["envoy", "c1", "c2"]);
    assert_eq!(names(&patched["template"]["spec"]["volumes"]), ["w", "v"]);
    // The same patch again changes nothing.
    assert_eq!(apply(pod_template(), patched.clone(), patch).unwrap(), patched);
}

#[test]
fn delete_takes_items_out() {
    let patch = spec(json!({"containers": [
        {"name": "c2", "$patch": "delete"},
        {"name": "c1", "env": [{"name": "A", "$patch": "delete"}]}]}));
    check(
        patch,
        "/template/spec/containers",
        expect![[r#"[{"env":[{"name":"B","value":"2"}],"image":"i1","name":"c1"}]"#]],
    );
}

#[test]
fn replace_replaces_a_list_or_a_map() {
    check(
        spec(json!({"containers": [{"name": "c1", "env": [{"$patch": "replace"}, {"name": "Z", "value": "9"}]}]})),
        "/template/spec/containers/0/env",
        expect![[r#"[{"name":"Z","value":"9"}]"#]],
    );
    check(
        json!({"metadata": {"labels": {"$patch": "replace", "z": "9"}}}),
        "/metadata/labels",
        expect![[r#"{"z":"9"}"#]],
    );
    check(json!({"metadata": {"labels": {"$patch": "delete"}}}), "/metadata/labels", expect!["{}"]);
}

#[test]
fn a_list_without_a_key_is_replaced_and_null_takes_away() {
    check(spec(json!({"tolerations": [{"key": "z"}]})), "/template/spec/tolerations", expect![[r#"[{"key":"z"}]"#]]);
    check(
        spec(json!({"tolerations": null, "hostPID": null})),
        "/template/spec",
        expect![[
            r#"{"containers":[{"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"image":"i1","name":"c1"},{"image":"i2","name":"c2"}],"volumes":[{"emptyDir":{},"name":"v"}]}"#
        ]],
    );
}

#[test]
fn an_order_may_be_set() {
    check(
        spec(json!({
            "$setElementOrder/containers": [{"name": "c1"}],
            "containers": [{
                "name": "c1",
                "$setElementOrder/env": [{"name": "Y"}, {"name": "B"}, {"name": "A"}],
                "env": [{"name": "Y", "value": "8"}]}]})),
        "/template/spec/containers/0/env",
        expect![[r#"[{"name":"Y","value":"8"},{"name":"B","value":"2"},{"name":"A","value":"1"}]"#]],
    );
    // This also applies to a list that the patch does not change. An item that the order does not name stays behind the
    // same item.
    check(
        spec(json!({"$setElementOrder/containers": [{"name": "c2"}, {"name": "c1"}]})),
        "/template/spec/containers/0/name",
        expect![[r#""c2""#]],
    );
    check(
        json!({"metadata": {"$setElementOrder/finalizers": ["b", "example.com/x"], "finalizers": ["b"]}}),
        "/metadata/finalizers",
        expect![[r#"["b","example.com/x"]"#]],
    );
}

#[test]
fn scalars_are_deleted_from_and_added_to_lists_that_merge() {
    check(
        json!({"metadata": {
            "$deleteFromPrimitiveList/finalizers": ["example.com/x"], "finalizers": ["example.com/y"]}}),
        "/metadata/finalizers",
        expect![[r#"["example.com/y"]"#]],
    );
    check(
        json!({"metadata": {"finalizers": ["example.com/y", "example.com/x"]}}),
        "/metadata/finalizers",
        expect![[r#"["example.com/y","example.com/x"]"#]],
    );
}

#[test]
fn retained_keys_are_all_that_is_left() {
    check(
        spec(json!({"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "cm"}}]})),
        "/template/spec/volumes",
        expect![[r#"[{"configMap":{"name":"cm"},"name":"v"}]"#]],
    );
}

#[test]
fn what_is_new_comes_without_directives_and_nulls() {
    check(
        spec(json!({"initContainers": [
            {"name": "i", "image": null, "env": [{"$patch": "replace"}, {"name": "A"}], "$setElementOrder/env": []},
            {"name": "gone", "$patch": "delete"}],
            "securityContext": {"$retainKeys": ["runAsUser"], "runAsUser": 1}})),
        "/template/spec",
        expect![[
            r#"{"containers":[{"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"image":"i1","name":"c1"},{"image":"i2","name":"c2"}],"initContainers":[{"env":[{"name":"A"}],"name":"i"}],"securityContext":{"runAsUser":1},"tolerations":[{"key":"k","operator":"Exists"}],"volumes":[{"emptyDir":{},"name":"v"}]}"#
        ]],
    );
}

#[test]
fn an_item_may_lose_its_key() {
    check(
        spec(json!({"containers": [{"name": null, "image": "x"}]})),
        "/template/spec/containers",
        expect![[
            r#"[{"image":"x"},{"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"image":"i1","name":"c1"},{"image":"i2","name":"c2"}]"#
        ]],
    );
}

#[test]
fn faults_are_told_in_a_sentence() {
    check_refused(
        spec(json!({"containers": [{"name": "c1", "$patch": "explode"}]})),
        Class::Malformed,
        expect![[r#"unknown $patch directive "explode": want "delete" or "replace""#]],
    );
    check_refused(
        spec(json!({"containers": [{"image": "x"}]})),
        Class::Malformed,
        expect![[r#"an item of the list lacks its merge key "name": {"image":"x"}"#]],
    );
    check_refused(
        spec(json!({"containers": ["x"]})),
        Class::Malformed,
        expect!["a list that merges has items of several types: object and string"],
    );
    check_refused(
        spec(json!({"$setElementOrder/containers": [{"name": "c2"}, {"name": "c1"}],
            "containers": [{"name": "c1"}, {"name": "c2"}]})),
        Class::Malformed,
        expect![[
            r#"the list [{"name":"c1"},{"name":"c2"}] is in another order than its $setElementOrder [{"name":"c2"},{"name":"c1"}]"#
        ]],
    );
    check_refused(
        spec(json!({"volumes": [{"name": "v", "$retainKeys": ["name"], "configMap": {}}]})),
        Class::Unprocessable,
        expect!["patch content doesn't match retainKeys list"],
    );
    check_refused(
        spec(json!({"volumes": [{"name": "v", "$retainKeys": "name"}]})),
        Class::Malformed,
        expect!["invalid patch format of retainKeys"],
    );
    check_refused(
        json!({"metadata": {"$setElementOrder": []}}),
        Class::Malformed,
        expect!["invalid patch format of setElementOrder list"],
    );
    check_refused(
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}}),
        Class::Malformed,
        expect!["invalid patch format of primitive list"],
    );
    check_refused(json!([1]), Class::Malformed, expect!["a strategic merge patch is an object, not array"]);
}

// === creating patches ===

#[track_caller]
fn check_two_way(schema: &Schema, old: Value, new: Value, want: Expect) {
    let patch = create_two_way(schema, &old, &new).unwrap();
    want.assert_eq(&patch.to_string());
    assert_eq!(apply(schema, old, patch).unwrap(), new);
}

#[test]
fn two_objects_differ_by_fields_and_items() {
    check_two_way(
        pod_template(),
        template(),
        json!({
            "metadata": {"name": "t", "labels": {"b": "2"}, "finalizers": ["example.com/y"]},
            "template": {"spec": {
                "containers": [
                    {"name": "c3", "image": "i3"},
                    {"name": "c1", "image": "i1", "env": [{"name": "B", "value": "22"}]}],
                "volumes": [{"name": "v", "configMap": {"name": "cm"}}],
                "tolerations": [{"key": "k"}]}}}),
        expect![[
            r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/x"],"$setElementOrder/finalizers":["example.com/y"],"finalizers":["example.com/y"],"labels":{"a":null,"b":"2"}},"template":{"spec":{"$setElementOrder/containers":[{"name":"c3"},{"name":"c1"}],"$setElementOrder/volumes":[{"name":"v"}],"containers":[{"image":"i3","name":"c3"},{"$setElementOrder/env":[{"name":"B"}],"env":[{"name":"B","value":"22"},{"$patch":"delete","name":"A"}],"name":"c1"},{"$patch":"delete","name":"c2"}],"tolerations":[{"key":"k"}],"volumes":[{"$retainKeys":["configMap","name"],"configMap":{"name":"cm"},"emptyDir":null,"name":"v"}]}}}"#
        ]],
    );
}

#[test]
fn a_map_that_retains_keys_says_them() {
    check_two_way(
        deployment(),
        json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
        json!({"spec": {"strategy": {"type": "Recreate"}}}),
        expect![[r#"{"spec":{"strategy":{"$retainKeys":["type"],"rollingUpdate":null,"type":"Recreate"}}}"#]],
    );
}

#[test]
fn equal_objects_need_no_patch() {
    check_two_way(pod_template(), template(), template(), expect!["{}"]);
}

#[test]
fn what_is_no_object_is_refused() {
    let error = create_two_way(pod_template(), &json!([]), &json!({})).unwrap_err();
    assert_eq!(error, Error::NotAnObject("array"));
}

/// `kubectl apply`: the image changed in the file, `replicas` were removed from it, and others added a sidecar and a
/// label.
#[test]
fn kubectl_apply_changes_what_is_wished_and_drops_what_was() {
    let deployment = deployment();
    let container = |image: &str| json!({"name": "nginx", "image": image, "ports": [{"containerPort": 80}]});
    let original = json!({"spec": {
        "replicas": 2,
        "template": {"spec": {"containers": [container("nginx:1.11"), {"name": "old", "image": "o"}]}}}});
    let modified = json!({"spec": {"template": {"spec": {"containers": [container("nginx:1.12")]}}}});
    let current = json!({
        "metadata": {"labels": {"touched": "yes"}},
        "spec": {
            "replicas": 8,
            "template": {"spec": {"containers": [
                {"name": "side", "image": "s"},
                {"name": "nginx", "image": "nginx:1.11", "ports": [{"containerPort": 80, "protocol": "TCP"}]},
                {"name": "old", "image": "o"}]}}}});
    let patch = create_three_way(deployment, &original, &modified, &current).unwrap();
    expect![[
        r#"{"spec":{"replicas":null,"template":{"spec":{"$setElementOrder/containers":[{"name":"nginx"}],"containers":[{"image":"nginx:1.12","name":"nginx"},{"$patch":"delete","name":"old"}]}}}}"#
    ]]
    .assert_eq(&patch.to_string());
    let applied = apply(deployment, current, patch).unwrap();
    assert_eq!(
        applied,
        json!({
            "metadata": {"labels": {"touched": "yes"}},
            "spec": {"template": {"spec": {"containers": [
                {"name": "side", "image": "s"},
                {"name": "nginx", "image": "nginx:1.12", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}}}})
    );
    // Applied again it changes nothing: the patch only has the order, because of the container that another writer
    // added.
    let again = create_three_way(deployment, &modified, &modified, &applied).unwrap();
    assert_eq!(again, spec_of(json!({"$setElementOrder/containers": [{"name": "nginx"}]})));
    assert_eq!(apply(deployment, applied.clone(), again).unwrap(), applied);
}

fn spec_of(pod_spec: Value) -> Value {
    json!({"spec": {"template": {"spec": pod_spec}}})
}

#[test]
fn kubectl_apply_retains_the_keys_of_the_wish() {
    let original = json!({"spec": {"template": {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}}});
    let modified = json!({"spec": {"template": {"spec": {"volumes": [{"name": "v", "configMap": {"name": "cm"}}]}}}});
    let patch = create_three_way(deployment(), &original, &modified, &original).unwrap();
    expect![[
        r#"{"spec":{"template":{"spec":{"$setElementOrder/volumes":[{"name":"v"}],"volumes":[{"$retainKeys":["configMap","name"],"configMap":{"name":"cm"},"emptyDir":null,"name":"v"}]}}}}"#
    ]]
    .assert_eq(&patch.to_string());
    assert_eq!(apply(deployment(), original, patch).unwrap(), modified);
}

// === properties ===

/// A Pod with few names.
fn pod() -> impl Strategy<Value = Value> {
    let texts = || option::of(btree_map("[a-c]", "[x-y]", 0..3));
    let named = |items: Vec<Value>| {
        let mut kept: Vec<Value> = Vec::new();
        for item in items {
            if kept.iter().all(|other| other["name"] != item["name"]) {
                kept.push(item);
            }
        }
        kept
    };
    let env = vec(("[A-C]", "[x-y]"), 0..3).prop_map(move |pairs| {
        named(pairs.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect())
    });
    let container = ("[c-f]", option::of("[x-y]"), option::of(env), option::of(vec("[x-z]", 0..3)))
        .prop_map(|(name, image, env, args)| some(json!({"name": name, "image": image, "env": env, "args": args})));
    let volume = ("[v-w]", 0..3).prop_map(|(name, source)| match source {
        0 => json!({"name": name, "emptyDir": {}}),
        1 => json!({"name": name, "configMap": {"name": "cm"}}),
        _ => json!({"name": name, "hostPath": {"path": "/"}}),
    });
    let finalizers = option::of(vec("[a-d]", 0..4).prop_map(|mut names| {
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names
    }));
    let spec = (
        vec(container, 0..4).prop_map(named),
        option::of(vec(volume, 0..3).prop_map(named)),
        texts(),
        option::of(
            vec("[a-b]", 0..2).prop_map(|keys| keys.into_iter().map(|key| json!({"key": key})).collect::<Vec<_>>()),
        ),
    );
    (texts(), finalizers, option::of(spec)).prop_map(|(labels, finalizers, spec)| {
        let spec = spec.map(|(containers, volumes, selector, tolerations)| {
            some(json!({"containers": containers, "volumes": volumes, "nodeSelector": selector, "tolerations": tolerations}))
        });
        some(json!({"metadata": some(json!({"labels": labels, "finalizers": finalizers})), "spec": spec}))
    })
}

/// The object without nulls.
fn some(mut object: Value) -> Value {
    object.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    object
}

fn pod_schema() -> &'static Schema {
    builtin("io.k8s.api.core.v1.Pod")
}

proptest! {
    #[test]
    fn a_difference_applied_to_the_old_is_the_new(old in pod(), new in pod()) {
        let patch = create_two_way(pod_schema(), &old, &new).unwrap();
        prop_assert_eq!(apply(pod_schema(), old, patch).unwrap(), new);
    }

    #[test]
    fn a_wish_that_nobody_touched_comes_true(original in pod(), wish in pod()) {
        let patch = create_three_way(pod_schema(), &original, &wish, &original).unwrap();
        prop_assert_eq!(apply(pod_schema(), original, patch).unwrap(), wish);
    }

    #[test]
    fn a_wish_that_came_true_needs_no_patch(wish in pod()) {
        prop_assert_eq!(create_three_way(pod_schema(), &wish, &wish, &wish).unwrap(), json!({}));
    }

    #[test]
    fn applying_twice_is_applying_once(old in pod(), patch in pod()) {
        let once = apply(pod_schema(), old, patch.clone()).unwrap();
        prop_assert_eq!(apply(pod_schema(), once.clone(), patch).unwrap(), once);
    }

    #[test]
    fn a_patch_never_panics(old in pod(), text in r#"\{("(spec|metadata|containers|finalizers|\$patch|\$retainKeys|\$setElementOrder/containers|name)":(null|1|"delete"|"c"|\[\]|\[\{"name":"c"\}\]|\{"finalizers":\["a"\]\}|\{"containers":\[\{"\$patch":"delete"\}\]\}),?){0,3}\}"#) {
        if let Ok(patch) = serde_json::from_str::<Value>(&text) {
            let _ = apply(pod_schema(), old, patch);
        }
    }
}
