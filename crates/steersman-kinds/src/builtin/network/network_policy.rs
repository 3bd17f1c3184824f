//! NetworkPolicy: the allowed ingress and egress of the pods that it selects.

use crate::builtin::kind::{Column, Counts, Kind, RULES, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use crate::builtin::rules::selector;
use crate::strategy::Rules;
use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, object_at, unless_set};

pub const KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "NetworkPolicy",
    plural: "networkpolicies",
    rules: Rules { validates_generate_name_on_update: false, ..RULES },
    singular: "networkpolicy",
    short_names: &["netpol"],
    versions: &[Version {
        definition: "io.k8s.api.networking.v1.NetworkPolicy",
        columns: &[Column::NAME, Column::text("Pod-Selector", "Which pods it is about."), Column::AGE],
        cells,
        default,
        ..Version::V1
    }],
    generation: &[&["spec"]],
    counts: Counts::Exactly,
    validate: &[
        Rule::new("spec.podSelector", Check::By(selector::validate)),
        Rule::new(
            "spec.ingress[]",
            Check::Rules(&[Rule::new("ports[]", Check::Rules(PORT)), Rule::new("from[]", Check::Rules(PEER))]),
        ),
        Rule::new(
            "spec.egress[]",
            Check::Rules(&[Rule::new("ports[]", Check::Rules(PORT)), Rule::new("to[]", Check::Rules(PEER))]),
        ),
        Rule::new("spec.policyTypes", Check::By(policy_types)),
    ],
    ..Kind::NAMESPACED
};

fn default(policy: &mut Value) {
    let Some(spec) = object_at(policy, &["spec"]) else { return };
    for direction in ["ingress", "egress"] {
        for rule in spec.get_mut(direction).and_then(Value::as_array_mut).into_iter().flatten() {
            let ports = rule.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
            ports.filter_map(Value::as_object_mut).for_each(|port| unless_set(port, "protocol", "TCP"));
        }
    }
    let has_egress = spec.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    unless_set(spec, "policyTypes", if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
}

fn policy_types(types: &Field<'_>, errors: &mut Vec<Error>) {
    if types.items().count() > 2 {
        return errors.push(types.invalid("may not specify more than two policyTypes"));
    }
    types.items().for_each(|kind| rules::one_of(&kind, &["Egress", "Ingress"], errors));
}

const PORT: &[Rule] = &[
    Rule::new("protocol", Check::OneOf(&["SCTP", "TCP", "UDP"])).if_present(),
    Rule::new("port", Check::By(rules::port_or_name)).if_present(),
    Rule::new("", Check::By(end_port)),
];

const PEER: &[Rule] = &[
    Rule::new("podSelector", Check::By(selector::validate)),
    Rule::new("namespaceSelector", Check::By(selector::validate)),
    Rule::new("", Check::By(peer)),
];

fn end_port(port: &Field<'_>, errors: &mut Vec<Error>) {
    let (first, last) = (port.field("port"), port.field("endPort"));
    if last.is_absent() {
        return;
    }
    match (first.number(), last.number()) {
        (Some(first), Some(end)) if end < first => {
            errors.push(last.invalid("must be greater than or equal to `port`"));
        }
        (Some(_), _) => Check::Port.of(&last, errors),
        (None, _) if first.is_present() => {
            errors.push(last.invalid("may not be specified when `port` is non-numeric"));
        }
        (None, _) => errors.push(last.invalid("may not be specified when `port` is not specified")),
    }
}

fn peer(peer: &Field<'_>, errors: &mut Vec<Error>) {
    let (pods, namespaces, block) = (peer.field("podSelector"), peer.field("namespaceSelector"), peer.field("ipBlock"));
    let selects = pods.is_present() || namespaces.is_present();
    if !selects && block.is_absent() {
        errors.push(peer.required("must specify a peer"));
    }
    if block.is_absent() {
        return;
    }
    if selects {
        errors.push(peer.forbidden("may not specify both ipBlock and another peer"));
    }
    let cidr = block.field("cidr");
    if cidr.is_empty() {
        errors.push(cidr.required(""));
        return;
    }
    let Ok(range) = cidr.text().parse::<IpNet>() else {
        errors.push(cidr.invalid(NO_CIDR));
        return;
    };
    for except in block.field("except").items() {
        match except.text().parse::<IpNet>() {
            Err(_) => errors.push(except.invalid(NO_CIDR)),
            Ok(part) if !range.contains(&part) || part.prefix_len() <= range.prefix_len() => {
                errors.push(except.invalid(format!("must be a strict subset of `cidr`: {}", cidr.text())));
            }
            Ok(_) => {}
        }
    }
}

const NO_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

fn cells(policy: &Value, now: Timestamp) -> Vec<Value> {
    let pods = at(policy, &["spec", "podSelector"]).unwrap_or(&Value::Null);
    vec![cells::name(policy), Value::from(selector::text(pods)), cells::age(policy, now)]
}
