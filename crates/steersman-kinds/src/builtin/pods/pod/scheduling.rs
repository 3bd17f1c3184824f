//! The scheduling fields of a pod: validation of node selectors, tolerations, affinity, topology spread and scheduling gates, and
//! the selectors that are completed with the pod's own labels.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use crate::builtin::rules::selector;
use serde_json::json;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::value::{Map, at};
use steersman_machinery::{Value, name};

/// The rules of the scheduling fields of a pod spec.
pub const SCHEDULING: &[Rule] = &[
    Rule::new("nodeSelector", Check::By(rules::labels)),
    Rule::new("tolerations", Check::By(tolerations)),
    Rule::new("affinity.nodeAffinity", Check::Rules(NODE_AFFINITY)),
    Rule::new("affinity.podAffinity", Check::Rules(POD_AFFINITY)),
    Rule::new("affinity.podAntiAffinity", Check::Rules(POD_AFFINITY)),
    Rule::new("topologySpreadConstraints", Check::By(spread)),
    Rule::new("", Check::By(gates)),
    Rule::new("preemptionPolicy", Check::OneOf(&["Never", "PreemptLowerPriority"])).if_present(),
];

const NODE_AFFINITY: &[Rule] = &[
    Rule::new("requiredDuringSchedulingIgnoredDuringExecution", Check::By(node_selector)).if_present(),
    Rule::new(
        "preferredDuringSchedulingIgnoredDuringExecution[]",
        Check::Rules(&[Rule::new("weight", WEIGHT).or_zero(), Rule::new("preference", Check::By(node_term))]),
    ),
];

const POD_AFFINITY: &[Rule] = &[
    Rule::new("requiredDuringSchedulingIgnoredDuringExecution[]", Check::Rules(POD_TERM)),
    Rule::new(
        "preferredDuringSchedulingIgnoredDuringExecution[]",
        Check::Rules(&[Rule::new("weight", WEIGHT).or_zero(), Rule::new("podAffinityTerm", Check::Rules(POD_TERM))]),
    ),
];

const WEIGHT: Check = Check::Between(1, 100, "must be in the range 1-100");

const POD_TERM: &[Rule] = &[
    Rule::new("labelSelector", Check::By(selector::validate)),
    Rule::new("namespaceSelector", Check::By(selector::validate)),
    Rule::new("namespaces[]", Check::Format(name::dns1123_label)).blaming("namespace"),
    Rule::new("", Check::By(label_keys)),
    Rule::required("topologyKey", "can not be empty"),
    Rule::new("topologyKey", Check::Format(name::qualified)),
];

/// Validates a list of tolerations.
pub fn tolerations(tolerations: &Field<'_>, errors: &mut Vec<Error>) {
    for toleration in tolerations.items() {
        let (key, operator) = (toleration.field("key"), toleration.field("operator"));
        let (value, effect) = (toleration.field("value"), toleration.field("effect"));
        if !key.is_empty() {
            rules::named(&key, name::qualified, errors);
        } else if operator.text() != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(Error::invalid(&operator.path, operator.text(), why));
        }
        if toleration.field("tolerationSeconds").is_present() && effect.text() != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(Error::invalid(&effect.path, effect.text(), why));
        }
        match operator.text() {
            "" | "Equal" => rules::named(&Field { path: operator.path.clone(), ..value }, name::label_value, errors),
            "Exists" if !value.is_empty() => {
                let why = "value must be empty when `operator` is 'Exists'";
                errors.push(Error::invalid(&operator.path, value.text(), why));
            }
            "Exists" => {}
            _ => errors.push(operator.not_supported(&["Equal", "Exists"])),
        }
        if !effect.is_empty() {
            rules::one_of(&effect, &["NoExecute", "NoSchedule", "PreferNoSchedule"], errors);
        }
    }
}

/// Validates a node selector.
pub fn node_selector(selector: &Field<'_>, errors: &mut Vec<Error>) {
    let terms = selector.field("nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(terms.required("must have at least one node selector term"));
    }
    for term in terms.items() {
        node_term(&term, errors);
        for value in term.field("matchExpressions").items().flat_map(|expression| expression.field("values").items()) {
            rules::named(&value, name::label_value, errors);
        }
    }
}

/// The rules of a term. In a preference, its values may be no values of labels.
fn node_term(term: &Field<'_>, errors: &mut Vec<Error>) {
    for expression in term.field("matchExpressions").items() {
        let (operator, values) = (expression.field("operator"), expression.field("values"));
        let count = values.items().count();
        match operator.text() {
            "In" | "NotIn" if count == 0 => {
                errors.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "Gt" | "Lt" if count != 1 => {
                errors.push(values.required("must be specified single value when `operator` is 'Lt' or 'Gt'"));
            }
            "Exists" | "DoesNotExist" if count > 0 => {
                errors.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
            "In" | "NotIn" | "Gt" | "Lt" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(operator.invalid("not a valid selector operator")),
        }
        rules::named(&expression.field("key"), name::qualified, errors);
    }
    for requirement in term.field("matchFields").items() {
        let (operator, key) = (requirement.field("operator"), requirement.field("key"));
        let values = requirement.field("values");
        match operator.text() {
            "In" | "NotIn" if values.items().count() == 1 => {}
            "In" | "NotIn" => {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.push(values.required(why));
            }
            _ => errors.push(Error::invalid(&operator.path, operator.text(), "not a valid selector operator")),
        }
        if key.text() == "metadata.name" {
            values.items().for_each(|value| rules::named(&value, name::dns1123_subdomain, errors));
        } else {
            errors.push(Error::invalid(&key.path, key.text(), "not a valid field selector key"));
        }
    }
}

/// The rules of a constraint that stand before and behind that of its key and action.
pub(in crate::builtin) const CONSTRAINT: &[Rule] = &[
    Rule::new("maxSkew", Check::AtLeast(1, "must be greater than zero")).or_zero(),
    Rule::required("topologyKey", "can not be empty"),
    Rule::new("whenUnsatisfiable", Check::OneOf(&["DoNotSchedule", "ScheduleAnyway"])),
];
pub(in crate::builtin) const DOMAINS: &[Rule] = &[
    Rule::new("", Check::By(min_domains)),
    Rule::new("nodeAffinityPolicy", Check::OneOf(&["Honor", "Ignore"])).if_present(),
    Rule::new("nodeTaintsPolicy", Check::OneOf(&["Honor", "Ignore"])).if_present(),
    Rule::new("", Check::By(label_keys)),
    Rule::new("labelSelector", Check::By(selector::validate)),
];

fn spread(constraints: &Field<'_>, errors: &mut Vec<Error>) {
    let mut seen = BTreeSet::new();
    for constraint in constraints.items() {
        check_field(CONSTRAINT, &constraint, errors);
        let pair = ["topologyKey", "whenUnsatisfiable"].map(|field| constraint.field(field).text());
        if !seen.insert(pair) {
            let path = constraint.path.child("{topologyKey, whenUnsatisfiable}");
            errors.push(Error::duplicate(&path, format!("{{{}}}", pair.join(", ")).into()));
        }
        check_field(DOMAINS, &constraint, errors);
    }
}

/// Validates the keys of the labels whose values are taken from the pod, of a constraint or of a term of an affinity.
fn label_keys(holder: &Field<'_>, errors: &mut Vec<Error>) {
    let (keys, selector) = (holder.field("matchLabelKeys"), holder.field("labelSelector"));
    let unwanted = holder.field("mismatchLabelKeys");
    for keys in [&keys, &unwanted].into_iter().filter(|keys| !keys.is_empty()) {
        if selector.is_absent() {
            errors.push(keys.forbidden("must not be specified when labelSelector is not set"));
        } else {
            keys.items().for_each(|key| rules::named(&key, name::qualified, errors));
        }
    }
    let mut selected: BTreeSet<&str> = selector.field("matchLabels").entries().map(|(key, _)| key).collect();
    for expression in selector.field("matchExpressions").items() {
        let key = expression.field("key").text();
        let is_new = selected.insert(key);
        let place = keys.items().enumerate().filter(|(_, one)| one.text() == key).map(|(index, _)| index).last();
        if let Some(index) = place.filter(|_| !is_new) {
            // Upstream omits the list from this path.
            let path = holder.path.index(index);
            errors.push(Error::invalid(&path, key, "exists in both matchLabelKeys and labelSelector"));
        }
    }
    for key in keys.items().filter(|key| unwanted.items().any(|one| one.text() == key.text())) {
        errors.push(key.invalid("exists in both matchLabelKeys and mismatchLabelKeys"));
    }
}

/// Completes the selectors of a new pod with its own labels: those that `matchLabelKeys` and `mismatchLabelKeys` name.
pub fn merge_label_keys(pod: &mut Value) {
    const TERMS: [&str; 2] =
        ["preferredDuringSchedulingIgnoredDuringExecution", "requiredDuringSchedulingIgnoredDuringExecution"];
    let labels = at(pod, &["metadata", "labels"]).and_then(Value::as_object).cloned().unwrap_or_default();
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    fn items<'a>(holder: &'a mut Map, list: &str) -> impl Iterator<Item = &'a mut Map> {
        let list = holder.get_mut(list).and_then(Value::as_array_mut);
        list.into_iter().flatten().filter_map(Value::as_object_mut)
    }
    if let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) {
        for kind in ["podAffinity", "podAntiAffinity"] {
            let Some(kind) = affinity.get_mut(kind).and_then(Value::as_object_mut) else { continue };
            for preferred in items(kind, TERMS[0]) {
                if let Some(term) = preferred.get_mut("podAffinityTerm").and_then(Value::as_object_mut) {
                    merge_into_selector(term, &labels);
                }
            }
            items(kind, TERMS[1]).for_each(|term| merge_into_selector(term, &labels));
        }
    }
    items(spec, "topologySpreadConstraints").for_each(|constraint| merge_into_selector(constraint, &labels));
}

/// Adds a requirement to the selector of `holder` for each of its keys that is a label. A selector that is not given selects
/// nothing, and stays so.
fn merge_into_selector(holder: &mut Map, labels: &Map) {
    let mut requirements = Vec::new();
    for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = holder.get(list).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let labeled = keys.filter_map(|key| Some((key, labels.get(key)?)));
        requirements.extend(labeled.map(|(key, label)| json!({"key": key, "operator": operator, "values": [label]})));
    }
    let Some(selector) = holder.get_mut("labelSelector").and_then(Value::as_object_mut) else { return };
    if requirements.is_empty() {
        return;
    }
    let expressions = selector.entry("matchExpressions").or_insert(Value::Null);
    if expressions.is_null() {
        *expressions = json!([]);
    }
    if let Some(expressions) = expressions.as_array_mut() {
        expressions.extend(requirements);
    }
}

fn min_domains(constraint: &Field<'_>, errors: &mut Vec<Error>) {
    let (domains, action) = (constraint.field("minDomains"), constraint.field("whenUnsatisfiable"));
    if domains.number().is_some_and(|number| number <= 0) {
        errors.push(domains.invalid("must be greater than zero"));
    } else if domains.is_present() && action.text() != "DoNotSchedule" {
        let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}", action.text());
        errors.push(domains.invalid(why));
    }
}

fn gates(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let gates = spec.field("schedulingGates");
    let mut names = BTreeSet::new();
    for gate in gates.items() {
        rules::named(&Field { path: gate.path.clone(), ..gate.field("name") }, name::qualified, errors);
        if !names.insert(gate.field("name").text()) {
            errors.push(Error::duplicate(&gate.path, gate.field("name").value.clone()));
        }
    }
}

/// A new Pod has no node while something holds it back.
pub(super) fn gated_node(spec: &Field<'_>, errors: &mut Vec<Error>) {
    if !spec.field("schedulingGates").is_empty() && !spec.field("nodeName").is_empty() {
        errors.push(spec.field("nodeName").forbidden("cannot be set until all schedulingGates have been cleared"));
    }
}
