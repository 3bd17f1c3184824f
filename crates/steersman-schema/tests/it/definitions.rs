//! Tests of the embedded table: every definition parses, references resolve, and merge rules are those recorded.

use steersman_machinery::GroupVersionKind;
use steersman_schema::Definitions;
use steersman_schema::schema::{List, Schema, Special, Type, Zero};

fn schema(name: &str) -> &'static Schema {
    Definitions::builtin().schema(name).unwrap()
}

#[test]
fn every_definition_parses_and_every_reference_leads_somewhere() {
    let mut n_references = 0;
    fn visit(name: &str, schema: &Schema, n_references: &mut usize) {
        *n_references += usize::from(schema.reference().is_some());
        if schema.reference().is_none() && schema.value_type == Type::Any {
            assert!(schema.special.is_some(), "{name} has no type: a reference that leads nowhere");
        }
        for (field, schema) in schema.properties.iter() {
            visit(&format!("{name}.{field}"), schema, n_references);
        }
        for inner in [&schema.items].into_iter().flatten() {
            visit(name, inner, n_references);
        }
        if let steersman_schema::schema::Additional::Of(values) = &schema.additional {
            visit(name, values, n_references);
        }
    }
    let mut n = 0;
    for definition in Definitions::builtin().iter() {
        if definition.schema().special != Some(Special::IntOrString) {
            visit(definition.name(), definition.schema(), &mut n_references);
        }
        n += 1;
    }
    assert_eq!(n, 777);
    assert!(n_references > 1_000);
}

#[test]
fn kinds_lead_to_their_definitions() {
    let kinds = Definitions::builtin();
    for (group, version, kind, name) in [
        ("", "v1", "Pod", "io.k8s.api.core.v1.Pod"),
        ("apps", "v1", "DeploymentList", "io.k8s.api.apps.v1.DeploymentList"),
        ("autoscaling", "v1", "Scale", "io.k8s.api.autoscaling.v1.Scale"),
        ("metrics.k8s.io", "v1beta1", "PodMetrics", "io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics"),
        ("policy", "v1", "Eviction", "io.k8s.api.policy.v1.Eviction"),
        ("batch", "v1", "DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"),
    ] {
        let gvk = GroupVersionKind::new(group, version, kind);
        assert_eq!(kinds.definition_of(&gvk).unwrap().name(), name);
    }
    assert!(kinds.schema_of(&GroupVersionKind::new("", "v2", "Pod")).is_none());
}

#[test]
fn lists_and_maps_merge_as_recorded() {
    let pod = schema("io.k8s.api.core.v1.PodSpec");
    let containers = pod.property("containers").unwrap();
    assert_eq!(containers.list(), &List::Map(["name".into()].into()));
    assert_eq!(containers.patch().unwrap().merge_key.as_deref(), Some("name"));
    assert!(containers.patch().unwrap().merge);
    let ports = containers.item().unwrap().property("ports").unwrap();
    assert_eq!(ports.list(), &List::Map(["containerPort".into(), "protocol".into()].into()));
    assert_eq!(ports.item().unwrap().property("protocol").unwrap().default, Some("TCP".into()));
    assert_eq!(pod.property("tolerations").unwrap().list(), &List::Atomic);
    let volumes = pod.property("volumes").unwrap().patch().unwrap();
    assert!(volumes.merge && volumes.retain_keys);
    assert!(pod.property("nodeSelector").unwrap().is_atomic_map());
    assert!(schema("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference").is_atomic_map());
    let strategy = schema("io.k8s.api.apps.v1.DeploymentSpec").property("strategy").unwrap();
    assert!(strategy.patch().unwrap().retain_keys && strategy.property("rollingUpdate").is_some());
    let finalizers = schema("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").property("finalizers").unwrap();
    assert_eq!(finalizers.list(), &List::Set);
}

#[test]
fn special_types_are_recognised() {
    let field = |name: &str, field: &str| schema(name).property(field).unwrap();
    for (name, property, want) in [
        ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "creationTimestamp", Special::Time),
        ("io.k8s.api.coordination.v1.LeaseSpec", "renewTime", Special::MicroTime),
        ("io.k8s.api.core.v1.ServicePort", "targetPort", Special::IntOrString),
        ("io.k8s.api.core.v1.EmptyDirVolumeSource", "sizeLimit", Special::Quantity),
        ("io.k8s.api.apps.v1.ControllerRevision", "data", Special::RawExtension),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry", "fieldsV1", Special::FieldsV1),
        ("io.k8s.api.certificates.v1.CertificateSigningRequestSpec", "request", Special::Bytes),
    ] {
        assert_eq!(field(name, property).special(), Some(want), "{name}.{property}");
    }
    let data = field("io.k8s.api.core.v1.Secret", "data");
    assert_eq!(data.values().unwrap().special(), Some(Special::Bytes));
    assert_eq!(data.zero, Zero::Omit);
}

#[test]
fn definitions_may_hold_themselves() {
    let props = schema("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
    let inner = props.property("properties").unwrap().values().unwrap();
    assert!(std::ptr::eq(inner.target(), props));
}
