//! Validation of the scheduling fields of a pod: node selectors, tolerations, affinity, topology spread and scheduling
//! gates.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use crate::builtin::rules::selector;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::name;

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
    terms.items().for_each(|term| node_term(&term, errors));
}

fn node_term(term: &Field<'_>, errors: &mut Vec<Error>) {
    for expression in term.field("matchExpressions").items().chain(term.field("matchFields").items()) {
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
    }
    for expression in term.field("matchExpressions").items() {
        rules::named(&expression.field("key"), name::qualified, errors);
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
    if !gates.is_empty() && !spec.field("nodeName").is_empty() {
        errors.push(spec.field("nodeName").forbidden("cannot be set until all schedulingGates have been cleared"));
    }
}
