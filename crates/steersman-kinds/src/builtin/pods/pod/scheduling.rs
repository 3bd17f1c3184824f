//! Validation of the scheduling fields of a pod: node selectors, tolerations, affinity, topology spread and scheduling
//! gates.

use crate::builtin::rules;
use crate::builtin::rules::place::Place;
use crate::builtin::rules::selector;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::name;

/// Validates the scheduling fields of a pod spec.
pub fn validate(spec: &Place<'_>, faults: &mut Vec<Error>) {
    rules::labels(&spec.field("nodeSelector"), faults);
    tolerations(&spec.field("tolerations"), faults);
    node_affinity(&spec.at(&["affinity", "nodeAffinity"]), faults);
    pod_affinity(&spec.at(&["affinity", "podAffinity"]), faults);
    pod_affinity(&spec.at(&["affinity", "podAntiAffinity"]), faults);
    spread(&spec.field("topologySpreadConstraints"), faults);
    gates(spec, faults);
    rules::one_of_if_present(&spec.field("preemptionPolicy"), &["Never", "PreemptLowerPriority"], faults);
}

/// Validates a list of tolerations.
pub fn tolerations(tolerations: &Place<'_>, faults: &mut Vec<Error>) {
    for toleration in tolerations.items() {
        let (key, operator) = (toleration.field("key"), toleration.field("operator"));
        let (value, effect) = (toleration.field("value"), toleration.field("effect"));
        if !key.is_empty() {
            rules::named(&key, name::qualified, faults);
        } else if operator.text() != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            faults.push(Error::invalid(&operator.path, operator.text(), why));
        }
        if toleration.field("tolerationSeconds").is_present() && effect.text() != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            faults.push(Error::invalid(&effect.path, effect.text(), why));
        }
        match operator.text() {
            "" | "Equal" => rules::named(&Place { path: operator.path.clone(), ..value }, name::label_value, faults),
            "Exists" if !value.is_empty() => {
                let why = "value must be empty when `operator` is 'Exists'";
                faults.push(Error::invalid(&operator.path, value.text(), why));
            }
            "Exists" => {}
            _ => faults.push(operator.not_supported(&["Equal", "Exists"])),
        }
        if !effect.is_empty() {
            rules::one_of(&effect, &["NoExecute", "NoSchedule", "PreferNoSchedule"], faults);
        }
    }
}

fn node_affinity(affinity: &Place<'_>, faults: &mut Vec<Error>) {
    let required = affinity.field("requiredDuringSchedulingIgnoredDuringExecution");
    if required.is_present() {
        node_selector(&required, faults);
    }
    for preferred in affinity.field("preferredDuringSchedulingIgnoredDuringExecution").items() {
        weight(&preferred, faults);
        node_term(&preferred.field("preference"), faults);
    }
}

/// Validates a node selector.
pub fn node_selector(selector: &Place<'_>, faults: &mut Vec<Error>) {
    let terms = selector.field("nodeSelectorTerms");
    if terms.is_empty() {
        faults.push(terms.required("must have at least one node selector term"));
    }
    terms.items().for_each(|term| node_term(&term, faults));
}

fn node_term(term: &Place<'_>, faults: &mut Vec<Error>) {
    for expression in term.field("matchExpressions").items().chain(term.field("matchFields").items()) {
        let (operator, values) = (expression.field("operator"), expression.field("values"));
        let count = values.items().count();
        match operator.text() {
            "In" | "NotIn" if count == 0 => {
                faults.push(values.required("must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "Gt" | "Lt" if count != 1 => {
                faults.push(values.required("must be specified single value when `operator` is 'Lt' or 'Gt'"));
            }
            "Exists" | "DoesNotExist" if count > 0 => {
                faults.push(values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
            "In" | "NotIn" | "Gt" | "Lt" | "Exists" | "DoesNotExist" => {}
            _ => faults.push(operator.invalid("not a valid selector operator")),
        }
    }
    for expression in term.field("matchExpressions").items() {
        rules::named(&expression.field("key"), name::qualified, faults);
    }
}

fn pod_affinity(affinity: &Place<'_>, faults: &mut Vec<Error>) {
    affinity.field("requiredDuringSchedulingIgnoredDuringExecution").items().for_each(|term| pod_term(&term, faults));
    for preferred in affinity.field("preferredDuringSchedulingIgnoredDuringExecution").items() {
        weight(&preferred, faults);
        pod_term(&preferred.field("podAffinityTerm"), faults);
    }
}

fn pod_term(term: &Place<'_>, faults: &mut Vec<Error>) {
    selector::validate(&term.field("labelSelector"), faults);
    selector::validate(&term.field("namespaceSelector"), faults);
    for namespace in term.field("namespaces").items() {
        let place = Place { path: term.path.child("namespace"), ..namespace };
        rules::named(&place, name::dns1123_label, faults);
    }
    let key = term.field("topologyKey");
    if key.is_empty() {
        faults.push(key.required("can not be empty"));
    }
    let wrong = name::qualified(key.text());
    faults.extend(wrong.into_iter().map(|fault| Error::invalid(&key.path, key.text(), fault)));
}

fn weight(preferred: &Place<'_>, faults: &mut Vec<Error>) {
    let weight = preferred.field("weight");
    if !weight.number().is_some_and(|number| (1..=100).contains(&number)) {
        faults.push(weight.invalid("must be in the range 1-100"));
    }
}

fn topology_key(key: &Place<'_>, faults: &mut Vec<Error>) {
    if key.is_empty() {
        faults.push(key.required("can not be empty"));
    } else {
        rules::named(key, name::qualified, faults);
    }
}

fn spread(constraints: &Place<'_>, faults: &mut Vec<Error>) {
    let mut seen = BTreeSet::new();
    for constraint in constraints.items() {
        let (skew, key) = (constraint.field("maxSkew"), constraint.field("topologyKey"));
        if skew.number().is_none_or(|number| number <= 0) {
            faults.push(skew.invalid("must be greater than zero"));
        }
        topology_key(&key, faults);
        let action = constraint.field("whenUnsatisfiable");
        rules::one_of(&action, &["DoNotSchedule", "ScheduleAnyway"], faults);
        if !seen.insert((key.text(), action.text())) {
            let pair = format!("{{{}, {}}}", key.text(), action.text());
            let path = constraint.path.child("{topologyKey, whenUnsatisfiable}");
            faults.push(Error::duplicate(&path, pair.into()));
        }
        let domains = constraint.field("minDomains");
        if domains.number().is_some_and(|number| number <= 0) {
            faults.push(domains.invalid("must be greater than zero"));
        } else if domains.is_present() && action.text() != "DoNotSchedule" {
            let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}", action.text());
            faults.push(domains.invalid(why));
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            rules::one_of_if_present(&constraint.field(field), &["Honor", "Ignore"], faults);
        }
        selector::validate(&constraint.field("labelSelector"), faults);
    }
}

fn gates(spec: &Place<'_>, faults: &mut Vec<Error>) {
    let gates = spec.field("schedulingGates");
    let mut names = BTreeSet::new();
    for gate in gates.items() {
        rules::named(&Place { path: gate.path.clone(), ..gate.field("name") }, name::qualified, faults);
        if !names.insert(gate.field("name").text()) {
            faults.push(Error::duplicate(&gate.path, gate.field("name").value.clone()));
        }
    }
    if !gates.is_empty() && !spec.field("nodeName").is_empty() {
        faults.push(spec.field("nodeName").forbidden("cannot be set until all schedulingGates have been cleared"));
    }
}
