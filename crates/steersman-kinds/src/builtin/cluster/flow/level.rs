//! PriorityLevelConfiguration: the concurrency limit of a class of requests, and the treatment of excess requests.

use crate::builtin::cluster::flow::bootstrap::{self, EXEMPT};
use crate::builtin::cluster::flow::{GROUP, STATUS_LEAVES, conditions};
use crate::builtin::kind::{Column, Kind, Request, Version};
use crate::builtin::pods::pod::defaults::unless_set;
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{Map, at, set_at};

const QUEUES_MAX: i64 = 10_000_000;
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
    status_leaves: STATUS_LEAVES,
    validate_create: validate,
    validate_update: validate,
    validate_status: |request, errors| conditions(&Field::root(request.new), errors),
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

fn validate(request: &Request<'_>, errors: &mut Vec<Error>) {
    let level = Field::root(request.new);
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
            shares(&exempt, errors);
        }
        "Limited" => {
            if exempt.is_present() {
                errors.push(exempt.forbidden("must be nil if the type is Limited"));
            }
            match limited.is_present() {
                true => validate_limited(&limited, errors),
                false => errors.push(limited.required("must not be empty when type is Limited")),
            }
        }
        _ => errors.push(kind.not_supported(&["Exempt", "Limited"])),
    }
    mandatory(name, &spec, errors);
    conditions(&level, errors);
}

fn shares(field: &Field<'_>, errors: &mut Vec<Error>) {
    let (shares, lendable) = (field.field("nominalConcurrencyShares"), field.field("lendablePercent"));
    if shares.number().is_some_and(|shares| shares < 0) {
        errors.push(shares.invalid("must be a non-negative integer"));
    }
    rules::within(&lendable, 0, 100, errors);
}

fn validate_limited(limited: &Field<'_>, errors: &mut Vec<Error>) {
    shares(limited, errors);
    let borrowing = limited.field("borrowingLimitPercent");
    if borrowing.number().is_some_and(|percent| percent < 0) {
        errors.push(borrowing.invalid("if specified, must be a non-negative integer"));
    }
    let response = limited.field("limitResponse");
    let (kind, queuing) = (response.field("type"), response.field("queuing"));
    // Both of upstream's messages name the type `Limited` instead of `Queue`.
    match (kind.text(), queuing.is_present()) {
        ("Queue", true) => validate_queuing(&queuing, errors),
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

fn validate_queuing(queuing: &Field<'_>, errors: &mut Vec<Error>) {
    let (length, queues, hand) =
        (queuing.field("queueLengthLimit"), queuing.field("queues"), queuing.field("handSize"));
    let positive = "must be positive";
    let (queue_count, hand_size) = (queues.number().unwrap_or(0), hand.number().unwrap_or(0));
    if length.number().unwrap_or(0) <= 0 {
        errors.push(length.invalid(positive));
    }
    if queue_count <= 0 {
        errors.push(queues.invalid(positive));
    } else if queue_count > QUEUES_MAX {
        errors.push(queues.invalid(format!("must not be greater than {QUEUES_MAX}")));
    }
    if hand_size <= 0 {
        errors.push(hand.invalid(positive));
    } else if hand_size > queue_count {
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
