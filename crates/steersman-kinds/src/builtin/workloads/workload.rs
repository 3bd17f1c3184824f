//! The rules that kinds with a pod template share: their selector must match the template, and pods that are kept
//! running must always restart.

use crate::builtin::pods::pod;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::selector;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::at;

/// Validates the label selector with which a workload finds its pods.
pub fn validate_selector(spec: &Field<'_>, kind: &str, errors: &mut Vec<Error>) {
    let wanted = spec.field("selector");
    if wanted.is_absent() {
        errors.push(wanted.required(""));
        return;
    }
    selector::validate(&wanted, errors);
    if selector::parse(wanted.value).is_some_and(|labels| labels.is_everything()) {
        errors.push(wanted.invalid(format!("empty selector is invalid for {kind}")));
    }
}

/// Validates the pod template of a controller that keeps pods running: its labels must match the selector, and the pods
/// restart always.
pub fn validate_template(spec: &Field<'_>, kind: &str, errors: &mut Vec<Error>) {
    let template = spec.field("template");
    let labels = template.at(&["metadata", "labels"]);
    let is_own = match spec.field("selector").value {
        // Without a selector no template matches.
        Value::Null => false,
        _ if !selector::is_valid(&spec.field("selector")) => true,
        wanted => selector::parse(wanted)
            .is_none_or(|wanted| wanted.is_everything() || selector::matches(&wanted, labels.value)),
    };
    if !is_own {
        errors.push(labels.invalid("`selector` does not match template `labels`"));
    }
    validate_running_template(&template, kind, errors);
}

/// Validates a pod template for pods that are kept running: they restart always.
pub fn validate_running_template(template: &Field<'_>, kind: &str, errors: &mut Vec<Error>) {
    pod::spec::validate_template(template, errors);
    let policy = template.at(&["spec", "restartPolicy"]);
    // An unknown policy is reported already.
    if pod::spec::RESTART_POLICIES[1..].contains(&policy.text()) {
        errors.push(policy.not_supported(&["Always"]));
    }
    let deadline = template.at(&["spec", "activeDeadlineSeconds"]);
    if deadline.is_present() {
        errors.push(deadline.forbidden(format!("activeDeadlineSeconds in {kind} is not Supported")));
    }
}

/// The wide cells at the end of a row: the template's containers and images.
pub fn container_cells(object: &Value) -> [Value; 2] {
    let (names, images) = cells::containers(at(object, &["spec", "template", "spec"]));
    [names, images]
}

/// The text of the selector.
pub fn selector_cell(object: &Value) -> Value {
    Value::from(selector::text(at(object, &["spec", "selector"]).unwrap_or(&Value::Null)))
}
