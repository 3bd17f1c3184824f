//! Which resource an object is of: built-in kinds in several versions, definitions, and kinds without one.

use crate::support::{Dumps, keys, object, stored};
use serde_json::{Value, json};

fn opened(objects: &[Value]) -> steersman_archive::Archive {
    let dumps = Dumps::new();
    dumps.open(&dumps.file(json!(objects).to_string())).unwrap()
}

fn definition() -> Value {
    let mut definition = object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "geese.example.com", 5);
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    definition["spec"] = json!({
        "group": "example.com", "scope": "Cluster", "names": {"plural": "geese", "kind": "Goose"},
        "versions": [version("v1", true), version("v1beta1", false)],
    });
    definition
}

#[test]
fn definitions_say_what_the_plural_and_the_scope_are() {
    let archive = opened(&[object("example.com/v1", "Goose", "", "a", 6), definition()]);
    assert_eq!(
        keys(&archive),
        ["apiextensions.k8s.io/customresourcedefinitions/geese.example.com 5", "example.com/geese/a 6"]
    );
    assert_eq!(archive.made_up, [] as [&str; 0]);
}

#[test]
fn an_object_of_another_version_is_stored_as_its_server_would() {
    let archive = opened(&[object("example.com/v1beta1", "Goose", "", "a", 6), definition()]);
    assert_eq!(stored(&archive, "example.com/geese/a")["apiVersion"], "example.com/v1");
    let mut autoscaler = object("autoscaling/v1", "HorizontalPodAutoscaler", "default", "h", 8);
    autoscaler["spec"] = json!({"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50});
    let archive = opened(&[autoscaler]);
    let found = stored(&archive, "autoscaling/horizontalpodautoscalers/default/h");
    assert_eq!(
        (&found["apiVersion"], &found["spec"]["metrics"][0]["type"]),
        (&json!("autoscaling/v2"), &json!("Resource"))
    );
}

#[test]
fn kinds_without_a_definition_get_one() {
    let archive = opened(&[
        object("stable.example.com/v1alpha1", "CronTab", "default", "a", 6),
        object("stable.example.com/v1", "CronTab", "default", "b", 7),
        object("stable.example.com/v1", "Policy", "", "c", 8),
    ]);
    assert_eq!(archive.made_up, ["crontabs.stable.example.com", "policies.stable.example.com"]);
    let made = stored(&archive, "apiextensions.k8s.io/customresourcedefinitions/crontabs.stable.example.com");
    assert_eq!(made["spec"]["scope"], "Namespaced");
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(stored(&archive, "stable.example.com/crontabs/default/a")["apiVersion"], "stable.example.com/v1");
    assert!(keys(&archive).contains(&"stable.example.com/policies/c 8".to_owned()));
}

#[test]
fn what_cannot_be_shown_is_counted_by_reason() {
    let archive = opened(&[
        object("v1", "ConfigMap", "default", "a", 1),
        object("v1", "ComponentStatus", "", "b", 0),
        object("policy/v1beta1", "PodSecurityPolicy", "", "c", 2),
        object("autoscaling/v3", "HorizontalPodAutoscaler", "default", "d", 3),
        object("v1", "Pod", "", "e", 4),
    ]);
    assert_eq!(keys(&archive), ["/configmaps/default/a 1"]);
    let reasons: Vec<_> = archive.left_out.reasons().collect();
    assert_eq!(
        reasons,
        [
            ("of the kind ComponentStatus, which is not stored", 1),
            ("of the kind HorizontalPodAutoscaler in autoscaling/v3, a version that this release does not know", 1),
            ("of the kind Pod in v1 without a namespace", 1),
            ("of the kind PodSecurityPolicy in policy/v1beta1, which this release does not serve", 1),
        ]
    );
}

#[test]
fn the_newest_of_several_states_of_an_object_counts() {
    let of = |version: u64, data: &str| {
        let mut config = object("v1", "ConfigMap", "default", "a", version);
        config["data"] = json!({"x": data});
        config
    };
    let archive = opened(&[of(3, "old"), of(5, "new"), of(4, "older")]);
    assert_eq!(keys(&archive), ["/configmaps/default/a 5"]);
    assert_eq!(stored(&archive, "/configmaps/default/a")["data"]["x"], "new");
}

#[test]
fn an_object_without_a_revision_counts_as_written_last() {
    let mut packages = object("packages.operators.coreos.com/v1", "PackageManifest", "default", "p", 0);
    packages["metadata"]["resourceVersion"] = "not a number".into();
    let archive = opened(&[packages, object("v1", "Node", "", "n", u64::MAX), object("v1", "Node", "", "m", 30)]);
    assert_eq!(keys(&archive).last().unwrap(), "packages.operators.coreos.com/packagemanifests/default/p 30");
    assert_eq!(archive.revision.0, 30);
}
