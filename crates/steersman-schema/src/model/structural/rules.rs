//! `x-kubernetes-validations`: checks of rules that do not depend on their expressions.

use crate::json_path::{JsonPath, Step};
use crate::model::structural::node::Node;
use steersman_machinery::field::{Error, Path};

/// Checks the rules of one schema.
pub(crate) fn rules(node: Node<'_>, path: &Path, errors: &mut Vec<Error>) {
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let has_breaks = |text: &str| text.contains(['\n', '\r']);
    for (index, rule) in node.nodes("x-kubernetes-validations") {
        let path = path.child("x-kubernetes-validations").index(index);
        let (text, message) = (rule.text("rule").trim(), rule.text("message").trim());
        if text.is_empty() {
            errors.push(Error::required(&path.child("rule"), "rule is not specified"));
        } else if rule.has("message") && message.is_empty() {
            let detail = "must be non-empty if specified";
            errors.push(Error::invalid(&path.child("message"), rule.text("message"), detail));
        } else if has_breaks(message) {
            errors.push(Error::invalid(&path.child("message"), rule.text("message"), "must not contain line breaks"));
        } else if has_breaks(text) && message.is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(Error::required(&path.child("message"), detail));
        }
        if rule.has("messageExpression") && rule.text("messageExpression").trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(Error::required(&path.child("messageExpression"), detail));
        }
        let reason = rule.text("reason");
        if !reason.is_empty() && !REASONS.contains(&reason) {
            errors.push(Error::not_supported(&path.child("reason"), reason, &REASONS));
        }
        field_path(node, rule.text("fieldPath"), &path.child("fieldPath"), errors);
    }
}

fn field_path(node: Node<'_>, text: &str, path: &Path, errors: &mut Vec<Error>) {
    if text.is_empty() {
        return;
    }
    if text.trim().is_empty() {
        errors.push(Error::invalid(path, text, "must be non-empty if specified"));
    }
    if text.contains(['\n', '\r']) {
        errors.push(Error::invalid(path, text, "must not contain line breaks"));
    }
    let leads_somewhere = JsonPath::parse(text).is_ok_and(|parsed| {
        let mut here = Some(node);
        for step in parsed.steps() {
            here = match (step, here) {
                (Step::Field(name), Some(node)) => node.property(name).or_else(|| node.node("additionalProperties")),
                _ => None,
            };
        }
        here.is_some() && !parsed.steps().is_empty()
    });
    if !leads_somewhere {
        errors.push(Error::invalid(path, text, "must be a valid path"));
    }
}
