//! PriorityLevelConfiguration: the concurrency limit of a class of requests, and the treatment of excess requests.

use crate::builtin::cluster::flow::bootstrap::{self, EXEMPT};
use crate::builtin::cluster::flow::{CONDITIONS, GROUP};
use crate::builtin::kind::{Column, Kind, SPEC_AND_METADATA, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{Map, at, set_at, unless_set};

/// The number of bits of the hash that selects the queues of a flow.
const HASH_BITS: i64 = 60;

pub const KIND: Kind = Kind {
    group: GROUP,
    kind: "PriorityLevelConfiguration",
    plural: "prioritylevelconfigurations",
    singular: "prioritylevelconfiguration",
    versions: &[Version {
        definition: "io.k8s.api.flowcontrol.v1.PriorityLevelConfiguration",
        has_status: true,
        columns: &[
            Column::NAME,
            Column::text("Type", "Whether its requests are limited."),
            Column::text("NominalConcurrencyShares", "Its part of all requests that are carried out at a time."),
            Column::text("Queues", "The number of queues in which requests wait."),
            Column::text("HandSize", "The number of queues that one flow may use."),
            Column::text("QueueLengthLimit", "How many requests may wait in one queue."),
            Column::AGE,
        ],
        cells,
        default,
        ..Version::V1
    }],
    generation: &[&["spec"]],
    status_leaves: SPEC_AND_METADATA,
    validate: &[Rule::new("", Check::By(validate)), CONDITIONS],
    validate_status: &[CONDITIONS],
    ..Kind::CLUSTER
};

fn default(level: &mut Value) {
    let Some(spec) = level.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(exempt) = spec.get_mut("exempt").and_then(Value::as_object_mut) {
        unless_set(exempt, "lendablePercent", 0);
        unless_set(exempt, "nominalConcurrencyShares", 0);
    }
    if let Some(limited) = spec.get_mut("limited").and_then(Value::as_object_mut) {
        unless_set(limited, "lendablePercent", 0);
        unless_set(limited, "nominalConcurrencyShares", 30);
        let queuing = limited.get_mut("limitResponse").and_then(|response| response.get_mut("queuing"));
        if let Some(queuing) = queuing.and_then(Value::as_object_mut) {
            unless_positive(queuing, "handSize", 8);
            unless_positive(queuing, "queueLengthLimit", 50);
            unless_positive(queuing, "queues", 64);
        }
    }
}

/// Sets a number that is absent or zero.
fn unless_positive(object: &mut Map, name: &str, value: i64) {
    if object.get(name).and_then(Value::as_i64).unwrap_or(0) == 0 {
        object.insert(name.to_owned(), value.into());
    }
}

fn validate(level: &Field<'_>, errors: &mut Vec<Error>) {
    let (name, spec) = (level.at(&["metadata", "name"]).text(), level.field("spec"));
    let (kind, limited, exempt) = (spec.field("type"), spec.field("limited"), spec.field("exempt"));
    if (name == EXEMPT) != (kind.text() == "Exempt") {
        errors.push(kind.invalid("must be 'Exempt' if and only if `name` is 'exempt'"));
    }
    match kind.text() {
        "Exempt" => {
            if limited.is_present() {
                errors.push(limited.forbidden("must be nil if the type is not Limited"));
            }
            check_field(SHARES, &exempt, errors);
        }
        "Limited" => {
            if exempt.is_present() {
                errors.push(exempt.forbidden("must be nil if the type is Limited"));
            }
            match limited.is_present() {
                true => check_field(LIMITED, &limited, errors),
                false => errors.push(limited.required("must not be empty when type is Limited")),
            }
        }
        _ => errors.push(kind.not_supported(&["Exempt", "Limited"])),
    }
    mandatory(name, &spec, errors);
}

pub(in crate::builtin) const SHARES: &[Rule] = &[
    Rule::new("nominalConcurrencyShares", Check::AtLeast(0, "must be a non-negative integer")),
    Rule::new("lendablePercent", Check::Within(0, 100)),
];

pub(in crate::builtin) const LIMITED: &[Rule] = &[
    Rule::new("", Check::Rules(SHARES)),
    Rule::new("borrowingLimitPercent", Check::AtLeast(0, "if specified, must be a non-negative integer")),
    Rule::new("limitResponse", Check::By(response)),
];

fn response(response: &Field<'_>, errors: &mut Vec<Error>) {
    let (kind, queuing) = (response.field("type"), response.field("queuing"));
    // Both of upstream's messages name the type `Limited` instead of `Queue`.
    match (kind.text(), queuing.is_present()) {
        ("Queue", true) => check_field(QUEUING, &queuing, errors),
        ("Queue", false) => {
            errors.push(queuing.required("must not be empty if limited.limitResponse.type is Limited"));
        }
        ("Reject", true) => {
            errors.push(queuing.forbidden("must be nil if limited.limitResponse.type is not Limited"));
        }
        ("Reject", false) => {}
        _ => rules::one_of(&kind, &["Queue", "Reject"], errors),
    }
}

pub(in crate::builtin) const QUEUING: &[Rule] = &[
    Rule::new("queueLengthLimit", Check::AtLeast(1, "must be positive")).or_zero(),
    Rule::new("queues", Check::AtLeast(1, "must be positive")).or_zero(),
    Rule::new("queues", Check::AtMost(10_000_000, "must not be greater than 10000000")),
    Rule::new("handSize", Check::AtLeast(1, "must be positive")).or_zero(),
    Rule::new("", Check::By(hand_size)),
];

fn hand_size(queuing: &Field<'_>, errors: &mut Vec<Error>) {
    let hand = queuing.field("handSize");
    let (queue_count, hand_size) = (queuing.field("queues").number().unwrap_or(0), hand.number().unwrap_or(0));
    if hand_size <= 0 {
        return;
    }
    if hand_size > queue_count {
        errors.push(hand.invalid(format!("should not be greater than queues ({queue_count})")));
    } else if entropy_bits(queue_count, hand_size) > HASH_BITS {
        errors.push(hand.invalid(format!(
            "required entropy bits of deckSize {queue_count} and handSize {hand_size} should not be greater than {HASH_BITS}"
        )));
    }
}

/// The number of bits needed to select this number of queues.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "both numbers are at most ten million"
)]
fn entropy_bits(queues: i64, hand: i64) -> i64 {
    ((queues as f64).log2() * hand as f64).ceil() as i64
}

/// The mandatory level of this name must be as the server created it, except for the part of `exempt` that
/// administrators may set.
fn mandatory(name: &str, spec: &Field<'_>, errors: &mut Vec<Error>) {
    let Some(mut wanted) = bootstrap::mandatory_spec(bootstrap::levels(), name) else { return };
    let mut except = "";
    if name == EXEMPT {
        except = " except the 'spec.exempt' field";
        if let Some(given) = at(spec.value, &["exempt"]) {
            set_at(&mut wanted, &["exempt"], given.clone());
        }
    }
    if *spec.value != wanted {
        errors.push(spec.invalid(format!("spec of '{name}'{except} must equal the fixed value")));
    }
}

fn cells(level: &Value, now: Timestamp) -> Vec<Value> {
    let limited = Field::root(level).at(&["spec", "limited"]);
    let number = |field: Field<'_>| if field.is_present() { field.value.clone() } else { Value::from(cells::NONE) };
    let queuing = limited.at(&["limitResponse", "queuing"]);
    vec![
        cells::name(level),
        cells::text(level, &["spec", "type"]),
        number(limited.field("nominalConcurrencyShares")),
        number(queuing.field("queues")),
        number(queuing.field("handSize")),
        number(queuing.field("queueLengthLimit")),
        cells::age(level, now),
    ]
}
