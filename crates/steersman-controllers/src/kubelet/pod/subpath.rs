//! Where in its volume a mount begins whose path is made of the variables of its container (`subPathExpr`), and why it cannot be mounted there.
//!
//! Values of ConfigMaps and Secrets, of Services, and those that a Pod has only on a node are not known here: a path that needs one
//! counts as good. Follows kubernetes' `pkg/kubelet/kubelet_pods.go` (`makeMounts`) and `third_party/forked/golang/expansion`.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;

/// The variables of a container, by name. `None`: the value is not known here.
type Variables<'a> = BTreeMap<&'a str, Option<String>>;

/// Why a container cannot be made.
pub(crate) fn problem(pod: &Pod, container: &core::Container) -> Option<String> {
    let mounts = container.volume_mounts.iter().flatten();
    let mut expressions = mounts.filter_map(|mount| mount.sub_path_expr.as_deref()).peekable();
    expressions.peek()?;
    let variables = variables(pod, container);
    expressions.find_map(|expression| {
        let path = value(expression, |name| variables.get(name).cloned().flatten())?;
        if path.starts_with('/') {
            return Some(format!("error SubPath `{path}` must not be an absolute path"));
        }
        let climbs = path.split('/').any(|part| part == "..");
        climbs.then(|| format!("unable to provision SubPath `{path}`: must not contain '..'"))
    })
}

fn variables<'a>(pod: &Pod, container: &'a core::Container) -> Variables<'a> {
    let mut variables = Variables::new();
    for one in container.env.iter().flatten() {
        let known = match &one.value_from {
            Some(source) => source.field_ref.as_ref().and_then(|field| field_of(pod, &field.field_path)),
            // A name that is not defined before stays as it is written.
            None => value(one.value.as_deref().unwrap_or_default(), |name| match variables.get(name) {
                Some(known) => known.clone(),
                None => Some(format!("$({name})")),
            }),
        };
        variables.insert(&one.name, known);
    }
    variables
}

/// A field of a Pod as the downward API gives it, if the Pod has it before it comes to a node.
fn field_of(pod: &Pod, path: &str) -> Option<String> {
    let metadata = &pod.metadata;
    let value = match path {
        "metadata.name" => metadata.name.as_ref(),
        "metadata.namespace" => metadata.namespace.as_ref(),
        "metadata.uid" => metadata.uid.as_ref(),
        _ => {
            let (all, key) = path.strip_suffix("']")?.split_once("['")?;
            let all = match all {
                "metadata.annotations" => &metadata.annotations,
                "metadata.labels" => &metadata.labels,
                _ => return None,
            };
            return Some(all.as_ref().and_then(|all| all.get(key)).cloned().unwrap_or_default());
        }
    };
    Some(value.cloned().unwrap_or_default())
}

/// A text in which `$(NAME)` stands for the value of a variable and `$$` for a dollar sign; `None` if one of the values is not known.
fn value(text: &str, mut of: impl FnMut(&str) -> Option<String>) -> Option<String> {
    let mut value = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        value.push_str(before);
        let variable = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        rest = match (variable, after.strip_prefix('$')) {
            (Some((name, after)), _) => {
                value.push_str(&of(name)?);
                after
            }
            (None, escaped) => {
                value.push('$');
                escaped.unwrap_or(after)
            }
        };
    }
    value.push_str(rest);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(env: Value, expression: &str, want: Option<&str>) {
        let pod = serde_json::from_value(json!({"metadata": {"name": "web", "annotations": {"a": "data"}}})).unwrap();
        let mounts = json!([{"name": "v", "mountPath": "/m", "subPathExpr": expression}]);
        let container = serde_json::from_value(json!({"name": "c", "env": env, "volumeMounts": mounts})).unwrap();
        assert_eq!(problem(&pod, &container).as_deref(), want);
    }

    fn annotation(name: &str) -> Value {
        json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.annotations['{name}']")}}})
    }

    #[test]
    fn a_path_must_not_lead_out_of_its_volume() {
        let up = json!([{"name": "A", "value": ".."}]);
        check(up.clone(), "$(A)", Some("unable to provision SubPath `..`: must not contain '..'"));
        check(up.clone(), "a/$(A)/b", Some("unable to provision SubPath `a/../b`: must not contain '..'"));
        check(up, "a$(A)", None);
        let root = json!([{"name": "A", "value": "/tmp"}]);
        check(root, "$(A)", Some("error SubPath `/tmp` must not be an absolute path"));
    }

    #[test]
    fn a_variable_has_the_value_of_a_field_or_of_variables_before_it() {
        check(json!([annotation("a")]), "$(A)/x", None);
        check(json!([annotation("b")]), "$(A)/x", Some("error SubPath `/x` must not be an absolute path"));
        let chained = json!([{"name": "A", "value": "."}, {"name": "B", "value": "$(A)$(A)"}]);
        check(chained, "$(B)", Some("unable to provision SubPath `..`: must not contain '..'"));
        let later = json!([{"name": "B", "value": "$(A)"}, {"name": "A", "value": ".."}]);
        check(later, "$(B)", None);
    }

    #[test]
    fn a_path_with_a_value_that_is_not_known_is_good() {
        let secret = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        check(secret, "$(A)/..", None);
        check(json!([]), "$(A)/..", None);
    }

    #[test]
    fn a_dollar_sign_that_is_no_variable_stays() {
        let of = |name: &str| (name == "A").then(|| "1".to_owned());
        for (text, want) in [("$(A)$", "1$"), ("$$(A)", "$(A)"), ("$(A", "$(A"), ("$x$(A)", "$x1"), ("$$$(A)", "$1")] {
            assert_eq!(value(text, of).as_deref(), Some(want), "{text}");
        }
        assert_eq!(value("$(A)$(B)", of), None);
    }
}
