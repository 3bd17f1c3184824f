//! Texts that are fragments, and texts that are not, with the mistake that is named.

use expect_test::{Expect, expect};
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::{collection, sample};

use super::*;

const DOCUMENT: &str = include_str!("../../../../../manifests/mesh/envoy-initializer.yaml");

/// The text of the document's ConfigMap.
fn document() -> String {
    let map: Value = serde_saphyr::from_str(DOCUMENT).unwrap();
    map["data"]["config"].as_str().unwrap().to_owned()
}

#[track_caller]
fn check(yaml: &str, expected: Expect) {
    expected.assert_eq(&Fragment::parse(yaml).unwrap_err().to_string());
}

#[test]
fn the_fragment_of_the_document_is_read_as_it_is() {
    let fragment = Fragment::parse(&document()).unwrap();
    assert_eq!(fragment.container_names().collect::<Vec<_>>(), ["envoy"]);
    assert_eq!(fragment.volumes, [json!({"name": "envoy-conf", "configMap": {"name": "envoy"}})]);
    assert_eq!(fragment.containers[0]["args"][0], "--concurrency 4");
}

#[test]
fn the_hash_is_of_the_content_and_not_of_the_text() {
    let one = Fragment::parse("containers: [{name: a, image: b, resources: {limits: {cpu: 1000m}}}]").unwrap();
    let same = "# A remark.\ncontainers:\n- image: b\n  name: a\n  resources: {limits: {cpu: '1'}}\nvolumes:\n";
    assert_eq!(Fragment::parse(same).unwrap(), one);
    let other = Fragment::parse("containers: [{name: a, image: c}]").unwrap();
    assert_ne!(other.hash(), one.hash());
    assert_eq!(one.hash().len(), 16);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    check("containers: [", expect!["it is not YAML: unclosed bracket '[' at line 1, column 13"]);
    check(
        "",
        expect![
            "it must be a map of containers, imagePullSecrets, initContainers, metadata, readinessGates, terminationGracePeriodSeconds, volumes"
        ],
    );
    check("volumes: []", expect!["containers: a fragment has at least one container, here or in initContainers"]);
    check(
        "hostNetwork: true",
        expect![
            "hostNetwork: a fragment has no such field: want one of containers, imagePullSecrets, initContainers, metadata, readinessGates, terminationGracePeriodSeconds, volumes"
        ],
    );
    check("containers: [{name: a, imag: b}]", expect![[r#"unknown field "containers[0].imag""#]]);
    check("containers: {name: a}", expect!["containers must be a list, not an object"]);
    check(
        "containers: [{name: a, image: b, ports: [{containerPort: x}]}]",
        expect![[r#"containers[0].ports[0].containerPort must be an integer, not the string "x""#]],
    );
    check("containers: [{name: a}]", expect!["containers[0].image: an image is missing"]);
    check(
        "containers: [{name: a, image: b, resources: {limits: {cpu: many}}}]",
        expect![
            "containers[0].resources.limits.cpu: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ],
    );
    check(
        "containers: [{name: a, image: b}]\nreadinessGates: [{conditionType: a/b}, {conditionType: a/b}]",
        expect![[r#"readinessGates[1].conditionType: "a/b" occurs twice"#]],
    );
    check(
        "containers: [{name: a, image: b}]\nimagePullSecrets: [{name: a.b}, {name: a.b}]",
        expect![[r#"imagePullSecrets[1].name: "a.b" occurs twice"#]],
    );
    check("containers: [{image: a}]", expect!["containers[0].name: a name is missing"]);
    check(
        "containers: [{name: A_b, image: a}]",
        expect![[
            r#"containers[0].name: "A_b" is no name: want at most 63 of a-z, 0-9 and -, and a letter or digit at both ends"#
        ]],
    );
    check(
        "containers: [{name: a, image: b}]\ninitContainers: [{name: a, image: b}]",
        expect![[r#"initContainers[0].name: "a" occurs twice"#]],
    );
    check(
        "containers: [{name: a, image: b, volumeMounts: [{name: v, mountPath: /v}]}]",
        expect![[r#"containers[0].volumeMounts[0].name: "v" is no volume of the fragment"#]],
    );
    check(
        "containers: [{name: a, image: b}]\nvolumes: [{name: v}]",
        expect!["volumes[0]: a volume has one source, such as configMap, and this has 0"],
    );
    check(
        "containers: [{name: a, image: b}]\nvolumes: [{name: v, emptyDir: {}}, {name: v, emptyDir: {}}]",
        expect![[r#"volumes[1].name: "v" occurs twice"#]],
    );
    check(
        "containers: [{name: a, image: b, ports: [{containerPort: 80}]}, {name: c, image: b, ports: [{containerPort: 80, protocol: TCP}]}]",
        expect!["containers[1]: has the same port 80/TCP as containers[0]"],
    );
    check(
        "containers: [{name: a, image: b}]\nmetadata: {name: x}",
        expect!["metadata.name: a fragment may have labels and annotations"],
    );
    check(
        "containers: [{name: a, image: b}]\nmetadata: {labels: {mesh.steersman.dev/inject: 'false'}}",
        expect!["metadata.labels: mesh.steersman.dev/inject is the injector's own"],
    );
    check(
        "containers: [{name: a, image: b}]\nreadinessGates: [{}]",
        expect!["readinessGates[0].conditionType: a gate names a condition"],
    );
    check(
        "containers: [{name: a, image: b}]\nreadinessGates: [{conditionType: a b}]",
        expect![[
            r#"readinessGates[0].conditionType: "a b" is not possible: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#
        ]],
    );
    check(
        "containers: [{name: a, image: b}]\nmetadata: {labels: {-a: b}}",
        expect![[
            r#"metadata.labels: "-a" is not possible: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#
        ]],
    );
    check(
        "containers: [{name: a, image: b}]\nmetadata: {labels: {a: b c}}",
        expect![[
            r#"metadata.labels.a: "b c" is not possible: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#
        ]],
    );
    check(
        "containers: [{name: a, image: b}]\nmetadata: {annotations: {a/b/c: d}}",
        expect![[
            r#"metadata.annotations: "a/b/c" is not possible: a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"#
        ]],
    );
    let upper = "containers: [{name: a, image: b}]\nmetadata: {annotations: {Example.COM/a: 'any text'}}";
    assert!(Fragment::parse(upper).is_ok());
    // Only the beginning of a path is the Pod's.
    check("containers: [{name: a, image: b, 'spec.x': c}]", expect![[r#"unknown field "containers[0].spec.x""#]]);
    check(
        "containers: [{name: a, image: b}]\nmetadata: {labels: {spec.a: []}}",
        expect!["metadata.labels.spec.a must be a string, not a list"],
    );
    check(
        "containers: [{name: a, image: b}]\nterminationGracePeriodSeconds: -1",
        expect!["terminationGracePeriodSeconds: want 0 or more"],
    );
}

#[test]
fn directives_of_patches_are_refused_wherever_they_are() {
    check(
        "containers: [{name: a, image: b, $patch: delete}]",
        expect!["containers[0].$patch: a fragment has no directives of patches"],
    );
    check(
        "containers: [{name: a, image: b}]\nmetadata: {labels: {$patch: replace}}",
        expect!["metadata.labels.$patch: a fragment has no directives of patches"],
    );
    check(
        "$setElementOrder/containers: []",
        expect!["$setElementOrder/containers: a fragment has no directives of patches"],
    );
}

#[test]
fn a_fragment_is_bounded() {
    let containers = |n: usize| (0..n).map(|at| format!("{{name: c{at}, image: i}}")).collect::<Vec<_>>().join(", ");
    assert!(Fragment::parse(&format!("containers: [{}]", containers(CONTAINERS_MAX))).is_ok());
    check(&format!("containers: [{}]", containers(17)), expect!["containers: 17 containers are more than 16"]);
    let long = format!("containers: [{}] #{}", containers(1), "-".repeat(BYTES_MAX));
    check(&long, expect!["it has 65572 bytes, and may have 65536"]);
    let aliases = "a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]\n";
    assert!(Fragment::parse(aliases).is_err());
}

/// Trees out of the words of fragments, of which few are one.
fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i32>().prop_map(Value::from),
        sample::select(vec!["a", "b", "", "$patch", "é"]).prop_map(Value::from),
        sample::select(vec![json!(null), json!(true), json!({}), json!([])]),
    ];
    let words = vec![
        "containers",
        "initContainers",
        "volumes",
        "metadata",
        "labels",
        "name",
        "image",
        "ports",
        "containerPort",
        "volumeMounts",
        "emptyDir",
        "readinessGates",
        "conditionType",
        "$patch",
        "mesh.steersman.dev/x",
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        let words = words.clone();
        prop_oneof![
            collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            collection::btree_map(sample::select(words), inner, 0..4)
                .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

/// A container that is one, but for a field that may be anything.
fn nearly() -> impl Strategy<Value = Value> {
    let field = sample::select(vec!["name", "image", "ports", "volumeMounts", "restartPolicy", "x"]);
    (field, tree()).prop_map(|(field, value)| {
        let mut container = json!({"name": "a", "image": "b"});
        container[field] = value;
        json!({"containers": [container], "volumes": [{"name": "a", "emptyDir": {}}]})
    })
}

proptest! {
    #[test]
    fn any_text_is_a_fragment_or_is_refused_in_a_sentence(text in any::<String>(), tree in prop_oneof![tree(), nearly()]) {
        for text in [text, tree.to_string()] {
            match Fragment::parse(&text) {
                Ok(fragment) => {
                    prop_assert!(0 < fragment.container_names().count());
                    prop_assert_eq!(Fragment::parse(&text).unwrap(), fragment);
                }
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
