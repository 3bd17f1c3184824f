//! Type-checks the expressions of a validating policy against the kinds that it matches, for `status.typeChecking`.
//!
//! Admission does not depend on the result: there an object is dynamically typed. Follows apiserver's
//! `admission/plugin/policy/validating/typechecking.go`.

use serde_json::json;
use std::collections::BTreeMap;
use steersman_cel::DeclType;
use steersman_kinds::catalog::{Catalog, Served};
use steersman_kinds::expressions::{Compiler, Purpose};
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{GroupVersion, Value};
use steersman_schema::Definitions;

/// The maximum number of kinds that a rule is checked against.
const KINDS_MAX: usize = 10;
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// A kind that the object may have.
struct Kind {
    /// The name in warnings.
    name: String,
    decl: DeclType,
}

/// The `expressionWarnings` of a policy: the errors of each expression that fails for some kind.
pub(crate) fn warnings(catalog: &Catalog, policy: &Value) -> Vec<Value> {
    let kinds = kinds(catalog, policy);
    let params = params(catalog, policy);
    let compilers: Vec<(&str, Compiler)> =
        kinds.iter().map(|kind| (&*kind.name, compiler(kind, params.as_ref(), policy))).collect();
    let mut warnings = Vec::new();
    let validations = at(policy, &["spec", "validations"]).and_then(Value::as_array).into_iter().flatten();
    for (index, validation) in validations.enumerate() {
        for field in ["expression", "messageExpression"] {
            let text = str_at(validation, &[field]).unwrap_or_default();
            if text.is_empty() {
                continue;
            }
            let faults = compilers.iter().filter_map(|(kind, compiler)| {
                let error = compiler.environment(text, Purpose::Value).compile(text).err()?;
                Some(format!("{kind}: {error}\n"))
            });
            let faults: Vec<String> = faults.collect();
            if !faults.is_empty() {
                let place = format!("spec.validations[{index}].{field}");
                warnings.push(json!({"fieldRef": place, "warning": faults.join("\n")}));
            }
        }
    }
    warnings
}

fn compiler(kind: &Kind, params: Option<&DeclType>, policy: &Value) -> Compiler {
    let mut compiler = Compiler::checking(&kind.decl, params);
    for variable in at(policy, &["spec", "variables"]).and_then(Value::as_array).into_iter().flatten() {
        let text = |key| str_at(variable, &[key]).unwrap_or_default();
        // The error of a variable is reported with the expressions that use it.
        let _fault = compiler.add(text("name"), text("expression"));
    }
    compiler
}

/// The kinds that the rules of a policy name. Rules with wildcards name no kind.
fn kinds(catalog: &Catalog, policy: &Value) -> Vec<Kind> {
    let mut found = BTreeMap::new();
    let rules = at(policy, &["spec", "matchConstraints", "resourceRules"]).and_then(Value::as_array);
    for rule in rules.into_iter().flatten() {
        let texts = |key: &str| -> Vec<&str> {
            let list = rule.get(key).and_then(Value::as_array).into_iter().flatten();
            let mut texts: Vec<&str> = list.filter_map(Value::as_str).collect();
            texts.sort_unstable();
            texts
        };
        let (groups, versions) = (texts("apiGroups"), texts("apiVersions"));
        if groups.iter().chain(&versions).any(|text| text.contains('*')) {
            continue;
        }
        let plurals: Vec<&str> = texts("resources").into_iter().filter(|text| !text.contains(['*', '/'])).collect();
        let mut count = 0;
        for group in &groups {
            for version in &versions {
                for plural in &plurals {
                    let Some(served) = catalog.find(group, version, plural) else { continue };
                    let kind = served.kind();
                    found.entry((kind.group, kind.version, kind.kind)).or_insert_with(|| decl(served));
                    count += 1;
                    // As upstream, this ends the search, whatever other rules name.
                    if count == KINDS_MAX {
                        return named(found);
                    }
                }
            }
        }
    }
    named(found)
}

fn named(found: BTreeMap<(String, String, String), DeclType>) -> Vec<Kind> {
    let kind = |((group, version, kind), decl)| Kind { name: format!("{group}/{version}, Kind={kind}"), decl };
    found.into_iter().map(kind).collect()
}

fn params(catalog: &Catalog, policy: &Value) -> Option<DeclType> {
    let kind = at(policy, &["spec", "paramKind"])?;
    let version = GroupVersion::parse(str_at(kind, &["apiVersion"])?)?;
    let mut served = catalog.resources(&version.group, &version.version).iter();
    let wanted = str_at(kind, &["kind"])?;
    served.find(|served| *served.resource.kind == *wanted).map(decl)
}

/// The declaration of the objects of a resource.
fn decl(served: &Served) -> DeclType {
    let decl = DeclType::of_kind(&served.version().schema);
    if !served.resource.is_custom() {
        return decl;
    }
    let metadata = Definitions::builtin().schema(OBJECT_META).map_or_else(DeclType::dynamic, DeclType::of_kind);
    decl.with_field("apiVersion", DeclType::string())
        .with_field("kind", DeclType::string())
        .with_field("metadata", metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use steersman_kinds::runtime_config::RuntimeConfig;

    fn found(resources: Value, expression: &str) -> Vec<Value> {
        let catalog = crate::background::definitions::configured(&RuntimeConfig::default());
        let rule = json!({"apiGroups": ["", "apps"], "apiVersions": ["v1"], "resources": resources});
        warnings(
            &catalog,
            &json!({"spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "variables": [{"name": "spec", "expression": "object.spec"}],
                "validations": [{"expression": expression}],
            }}),
        )
    }

    #[test]
    fn a_field_that_a_kind_does_not_have_is_told_for_each_kind() {
        let warnings = found(json!(["deployments", "pods"]), "object.replicas > 1");
        let marked = "ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1\n | ......^";
        let wanted = format!("/v1, Kind=Pod: {marked}\n\napps/v1, Kind=Deployment: {marked}\n");
        assert_eq!(warnings, [json!({"fieldRef": "spec.validations[0].expression", "warning": wanted})]);
    }

    #[test]
    fn what_fits_is_not_told() {
        for fits in [
            "object.spec.template.spec.containers.all(c, c.image.startsWith('a') && !has(c.resources.limits))",
            "object.metadata.namespace == 'a' && object.metadata.labels['a'] == 'b'",
            "object.metadata.creationTimestamp < timestamp('2026-01-01T00:00:00Z')",
            "oldObject == null || variables.spec.replicas >= oldObject.spec.replicas",
            "object.spec.strategy.rollingUpdate.maxSurge == 1 || object.spec.strategy.rollingUpdate.maxSurge == '25%'",
        ] {
            assert_eq!(found(json!(["deployments"]), fits), [] as [Value; 0], "{fits}");
        }
        let wrong = found(json!(["deployments"]), "variables.spec.replicas == 'many'");
        assert!(wrong[0]["warning"].as_str().unwrap().contains("found no matching overload"), "{wrong:?}");
        assert!(found(json!(["*"]), "object.nothing").is_empty(), "a wildcard names no kind");
    }
}
