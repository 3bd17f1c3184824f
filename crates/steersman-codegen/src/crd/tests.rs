//! Manifests and the definitions that are read from them, and the messages for invalid ones.

use expect_test::{Expect, expect};
use serde_json::json;

use crate::crd::{ListType, SchemaType, Scope, from_list, read};

const NETWORK_V1: &str = include_str!("../../../../manifests/crd/network-v1.yaml");
const NETWORK_V1BETA1: &str = include_str!("../../../../manifests/crd/network.yaml");

#[track_caller]
fn refused(text: &str, expected: Expect) {
    let error = read("crds.yaml", text).unwrap_err();
    expected.assert_eq(&error.to_string());
}

#[test]
fn v1_has_names_scope_columns_and_schema() {
    let definitions = read("network-v1.yaml", NETWORK_V1).unwrap();
    let [definition] = definitions.as_slice() else { panic!("{definitions:?}") };
    assert_eq!(definition.name, "networks.samplecrd.k8s.io");
    assert_eq!(definition.group, "samplecrd.k8s.io");
    assert_eq!(definition.names.kind, "Network");
    assert_eq!(definition.names.list_kind, "NetworkList");
    assert_eq!(definition.names.short_names, ["net"]);
    assert_eq!(definition.scope, Scope::Namespaced);
    let version = definition.storage_version().unwrap();
    assert!(version.has_status && version.is_served && version.scale.is_none());
    assert_eq!(version.columns[0].json_path, ".spec.cidr");
    assert_eq!(version.columns[2].priority, 1);
    let conditions = &version.schema.properties["status"].properties["conditions"];
    assert_eq!(conditions.list_type, Some(ListType::Map));
    assert_eq!(conditions.list_map_keys, ["type"]);
    let item = conditions.items.as_ref().unwrap();
    assert_eq!(item.properties["lastTransitionTime"].format.as_deref(), Some("date-time"));
    assert_eq!(item.properties["status"].enumeration.len(), 3);
    assert!(version.schema.required.contains("spec"));
}

#[test]
fn v1beta1_without_a_schema_preserves_everything() {
    let definitions = read("network.yaml", NETWORK_V1BETA1).unwrap();
    let version = &definitions[0].versions[0];
    assert_eq!(version.name, "v1");
    assert!(version.is_storage && version.is_served);
    assert!(version.schema.preserves_unknown);
    assert_eq!(definitions[0].names.list_kind, "NetworkList");
    assert_eq!(definitions[0].names.singular, "network");
}

#[test]
fn v1beta1_versions_take_from_the_spec_what_they_lack() {
    let text = "
apiVersion: apiextensions.k8s.io/v1beta1
kind: CustomResourceDefinition
metadata: {name: boxes.example.com}
spec:
  group: example.com
  names: {kind: Box, plural: boxes}
  subresources:
    status: {}
    scale: {specReplicasPath: .spec.n, statusReplicasPath: .status.n}
  additionalPrinterColumns: [{name: Size, type: integer, JSONPath: .spec.n}]
  validation:
    openAPIV3Schema:
      properties: {spec: {properties: {n: {type: integer}}}}
  versions: [{name: v2, served: true, storage: true}, {name: v1, served: false, storage: false}]
";
    let definitions = read("boxes.yaml", text).unwrap();
    assert_eq!(definitions[0].scope, Scope::Namespaced);
    for version in &definitions[0].versions {
        assert!(version.has_status, "{version:?}");
        assert_eq!(version.scale.as_ref().unwrap().spec_replicas, ".spec.n");
        assert_eq!(version.columns[0].json_path, ".spec.n");
        let spec = &version.schema.properties["spec"];
        assert_eq!(spec.schema_type, Some(SchemaType::Object), "the type is seen from the properties");
        assert_eq!(spec.properties["n"].schema_type, Some(SchemaType::Integer));
    }
    let served: Vec<_> =
        definitions[0].versions.iter().map(|version| (version.name.as_str(), version.is_served)).collect();
    assert_eq!(served, [("v2", true), ("v1", false)]);
}

#[test]
fn documents_of_other_kinds_are_passed_over_and_lists_are_taken_apart() {
    let definition = |plural: &str, kind: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "spec": {"group": "example.com", "scope": "Cluster", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": true, "storage": true}]}})
    };
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [definition("bs", "B"), definition("cs", "C")]});
    let text = format!("---\n---\nkind: Namespace\n---\n{}\n---\n{list}\n", definition("as", "A"));
    let definitions = read("all.yaml", &text).unwrap();
    let kinds: Vec<_> = definitions.iter().map(|definition| definition.names.kind.as_str()).collect();
    assert_eq!(kinds, ["A", "B", "C"]);
    assert_eq!(definitions[0].name, "as.example.com");
}

#[test]
fn items_of_a_server_need_no_kind() {
    let items = json!([{"metadata": {"name": "as.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"kind": "A", "plural": "as"}, "versions": [{"name": "v1", "served": true, "storage": true}]}}]);
    assert_eq!(from_list("https://server", items).unwrap()[0].scope, Scope::Cluster);
}

/// Names end up in comments, identifiers and file names: a newline would be code, and a slash another directory.
#[test]
fn names_that_no_server_takes_are_refused() {
    #[track_caller]
    fn check(pointer: &str, value: &str, path: &str) {
        let mut object = json!({"kind": "CustomResourceDefinition", "metadata": {"name": "as.e.com"}, "spec": {
            "group": "e.com", "scope": "Cluster",
            "names": {"kind": "A", "listKind": "AList", "plural": "as", "singular": "a", "shortNames": ["x"],
                "categories": ["all"]},
            "versions": [{"name": "v1", "served": true, "storage": true}]}});
        from_list("test", object.clone()).unwrap();
        *object.pointer_mut(pointer).unwrap() = json!(value);
        let error = from_list("test", object).unwrap_err().to_string();
        assert!(error.contains(&format!("{path} is {value:?}: want ")), "{error}");
    }
    for name in ["../../as", "/tmp/as", "as\nfn main() {}", "as..e", "As", "as.e.com.", "a*"] {
        check("/metadata/name", name, "metadata.name");
        check("/spec/group", name, "spec.group");
        check("/spec/names/plural", name, "spec.names.plural");
        check("/spec/names/singular", name, "spec.names.singular");
        check("/spec/names/shortNames/0", name, "spec.names.shortNames");
        check("/spec/names/categories/0", name, "spec.names.categories");
        check("/spec/versions/0/name", name, "spec.versions[0].name");
    }
    for name in ["../A", "A\n", "A B", "名", "1A", "-A", "A/B", "A\"B"] {
        check("/spec/names/kind", name, "spec.names.kind");
        check("/spec/names/listKind", name, "spec.names.listKind");
    }
}

#[test]
fn int_or_string_is_known_in_its_older_forms() {
    let schema = |schema: serde_json::Value| {
        let object = json!({"kind": "CustomResourceDefinition", "spec": {"group": "e.com", "scope": "Cluster",
            "names": {"kind": "A", "plural": "as"}, "versions": [{"name": "v1", "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"a": schema}}}}]}});
        from_list("test", object).unwrap()[0].versions[0].schema.properties["a"].is_int_or_string
    };
    assert!(schema(json!({"x-kubernetes-int-or-string": true})));
    assert!(schema(json!({"anyOf": [{"type": "integer"}, {"type": "string"}]})));
    assert!(schema(json!({"oneOf": [{"type": "string"}, {"type": "integer"}]})));
    assert!(schema(json!({"type": "string", "format": "int-or-string"})));
    assert!(!schema(json!({"anyOf": [{"type": "integer"}, {"type": "boolean"}]})));
    assert!(!schema(json!({"type": "string", "anyOf": [{"type": "integer"}, {"type": "string"}]})));
}

#[test]
fn errors_name_file_document_definition_and_path() {
    refused("a: [", expect!["crds.yaml is neither YAML nor JSON: unclosed bracket '[' at line 1, column 4"]);
    refused(
        "kind: Namespace\n---\nkind: Role\n",
        expect!["crds.yaml has no CustomResourceDefinition; it holds Namespace, Role"],
    );
    refused("", expect!["crds.yaml has no CustomResourceDefinition; it holds no object"]);
    let head = "kind: CustomResourceDefinition\nmetadata: {name: as.e.com}\n";
    refused(
        &format!("---\nkind: Role\n---\n{head}"),
        expect!["crds.yaml (document 2), CustomResourceDefinition as.e.com: spec is missing"],
    );
    refused(
        &format!("apiVersion: apiextensions.k8s.io/v2\n{head}"),
        expect![[
            r#"crds.yaml (document 1), CustomResourceDefinition as.e.com: apiVersion is "apiextensions.k8s.io/v2": want apiextensions.k8s.io/v1 or apiextensions.k8s.io/v1beta1"#
        ]],
    );
    refused(
        &format!("{head}spec: {{group: e.com, scope: Global, names: {{kind: A, plural: as}}}}"),
        expect![[
            r#"crds.yaml (document 1), CustomResourceDefinition as.e.com: spec.scope is "Global": want Cluster or Namespaced"#
        ]],
    );
    refused(
        &format!("{head}spec: {{group: e.com, scope: Cluster, names: {{kind: A}}}}"),
        expect!["crds.yaml (document 1), CustomResourceDefinition as.e.com: spec.names.plural is missing"],
    );
    refused(
        &format!("{head}spec: {{group: e.com, scope: Cluster, names: {{kind: A, plural: as}}}}"),
        expect![
            "crds.yaml (document 1), CustomResourceDefinition as.e.com: spec.versions is missing: a definition has at least one version"
        ],
    );
    let wrong_type = "spec:
  group: e.com
  scope: Cluster
  names: {kind: A, plural: as}
  versions:
  - name: v1
    schema: {openAPIV3Schema: {properties: {spec: {properties: {a: {type: strin}}}}}}";
    refused(
        &format!("{head}{wrong_type}"),
        expect![[
            r#"crds.yaml (document 1), CustomResourceDefinition as.e.com: spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.a.type is "strin": want array, boolean, integer, number, object or string"#
        ]],
    );
    refused(
        &format!("{head}{}", wrong_type.replace("type: strin", "$ref: '#/a'")),
        expect![
            "crds.yaml (document 1), CustomResourceDefinition as.e.com: spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.a.$ref is a reference, which no CustomResourceDefinition may have: write the schema out"
        ],
    );
    refused(
        &format!("{head}{}", wrong_type.replace("type: strin", "x-kubernetes-list-type: bag")),
        expect![[
            r#"crds.yaml (document 1), CustomResourceDefinition as.e.com: spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.a.x-kubernetes-list-type is "bag": want atomic, map or set"#
        ]],
    );
}
