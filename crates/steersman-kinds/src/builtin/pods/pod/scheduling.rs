//! Validation of the scheduling fields of a pod: node selectors, tolerations, affinity, topology spread and scheduling
//! gates.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::selector;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::name;

/// Validates the scheduling fields of a pod spec.
pub fn validate(spec: &Field<'_>, errors: &mut Vec<Error>) {
    rules::labels(&spec.field("nodeSelector"), errors);
    tolerations(&spec.field("tolerations"), errors);
    node_affinity(&spec.at(&["affinity", "nodeAffinity"]), errors);
    pod_affinity(&spec.at(&["affinity", "podAffinity"]), errors);
    pod_affinity(&spec.at(&["affinity", "podAntiAffinity"]), errors);
    spread(&spec.field("topologySpreadConstraints"), errors);
    gates(spec, errors);
    rules::one_of_if_present(&spec.field("preemptionPolicy"), &["Never", "PreemptLowerPriority"], errors);
}

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

fn node_affinity(affinity: &Field<'_>, errors: &mut Vec<Error>) {
    let required = affinity.field("requiredDuringSchedulingIgnoredDuringExecution");
    if required.is_present() {
        node_selector(&required, errors);
    }
    for preferred in affinity.field("preferredDuringSchedulingIgnoredDuringExecution").items() {
        weight(&preferred, errors);
        node_term(&preferred.field("preference"), errors);
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

fn pod_affinity(affinity: &Field<'_>, errors: &mut Vec<Error>) {
    affinity.field("requiredDuringSchedulingIgnoredDuringExecution").items().for_each(|term| pod_term(&term, errors));
    for preferred in affinity.field("preferredDuringSchedulingIgnoredDuringExecution").items() {
        weight(&preferred, errors);
        pod_term(&preferred.field("podAffinityTerm"), errors);
    }
}

fn pod_term(term: &Field<'_>, errors: &mut Vec<Error>) {
    selector::validate(&term.field("labelSelector"), errors);
    selector::validate(&term.field("namespaceSelector"), errors);
    for namespace in term.field("namespaces").items() {
        let field = Field { path: term.path.child("namespace"), ..namespace };
        rules::named(&field, name::dns1123_label, errors);
    }
    let key = term.field("topologyKey");
    if key.is_empty() {
        errors.push(key.required("can not be empty"));
    }
    let wrong = name::qualified(key.text());
    errors.extend(wrong.into_iter().map(|detail| Error::invalid(&key.path, key.text(), detail)));
}

fn weight(preferred: &Field<'_>, errors: &mut Vec<Error>) {
    let weight = preferred.field("weight");
    if !weight.number().is_some_and(|number| (1..=100).contains(&number)) {
        errors.push(weight.invalid("must be in the range 1-100"));
    }
}

fn topology_key(key: &Field<'_>, errors: &mut Vec<Error>) {
    if key.is_empty() {
        errors.push(key.required("can not be empty"));
    }
}

fn spread(constraints: &Field<'_>, errors: &mut Vec<Error>) {
    let mut seen = BTreeSet::new();
    for constraint in constraints.items() {
        let (skew, key) = (constraint.field("maxSkew"), constraint.field("topologyKey"));
        if skew.number().is_none_or(|number| number <= 0) {
            errors.push(skew.invalid("must be greater than zero"));
        }
        topology_key(&key, errors);
        let action = constraint.field("whenUnsatisfiable");
        rules::one_of(&action, &["DoNotSchedule", "ScheduleAnyway"], errors);
        if !seen.insert((key.text(), action.text())) {
            let pair = format!("{{{}, {}}}", key.text(), action.text());
            let path = constraint.path.child("{topologyKey, whenUnsatisfiable}");
            errors.push(Error::duplicate(&path, pair.into()));
        }
        let domains = constraint.field("minDomains");
        if domains.number().is_some_and(|number| number <= 0) {
            errors.push(domains.invalid("must be greater than zero"));
        } else if domains.is_present() && action.text() != "DoNotSchedule" {
            let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}", action.text());
            errors.push(domains.invalid(why));
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            rules::one_of_if_present(&constraint.field(field), &["Honor", "Ignore"], errors);
        }
        selector::validate(&constraint.field("labelSelector"), errors);
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
