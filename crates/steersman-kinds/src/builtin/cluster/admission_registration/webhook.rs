//! ValidatingWebhookConfiguration and MutatingWebhookConfiguration: the webhooks that are called for writes.

use crate::builtin::cluster::admission_registration::{CATEGORIES, GROUP, client, rule};
use crate::builtin::kind::{Column, Compiles, Counts, Kind, RULES, Version};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use crate::expressions::Names;
use crate::strategy::Rules;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::value::unless_set;
use steersman_machinery::{Value, name};

const REVIEWS: [&str; 2] = ["v1", "v1beta1"];
const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const ALL_SIDE_EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];

pub const VALIDATING: Kind = Kind {
    kind: "ValidatingWebhookConfiguration",
    plural: "validatingwebhookconfigurations",
    singular: "validatingwebhookconfiguration",
    versions: &[Version {
        definition: "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration",
        ..VERSION
    }],
    ..KIND
};

pub const MUTATING: Kind = Kind {
    kind: "MutatingWebhookConfiguration",
    plural: "mutatingwebhookconfigurations",
    singular: "mutatingwebhookconfiguration",
    versions: &[Version {
        definition: "io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration",
        default: |configuration| {
            default(configuration);
            for webhook in webhooks(configuration).filter_map(Value::as_object_mut) {
                unless_set(webhook, "reinvocationPolicy", "Never");
            }
        },
        ..VERSION
    }],
    ..KIND
};

const KIND: Kind = Kind {
    group: GROUP,
    categories: CATEGORIES,
    generation: &[&["webhooks"]],
    counts: Counts::Exactly,
    rules: Rules { updates_unconditionally: false, requires_qualified_finalizers: false, ..RULES },
    compiles: Compiles::Always,
    validate: &[Rule::new("webhooks", Check::Change(validate))],
    ..Kind::CLUSTER
};

const VERSION: Version = Version {
    columns: &[Column::NAME, Column::integer("Webhooks", "The number of webhooks."), Column::AGE],
    cells: |configuration, now| {
        let count = cells::count(configuration, &[&["webhooks"]]);
        vec![cells::name(configuration), count, cells::age(configuration, now)]
    },
    default,
    ..Version::V1
};

fn webhooks(configuration: &mut Value) -> impl Iterator<Item = &mut Value> {
    configuration.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten()
}

fn default(configuration: &mut Value) {
    for webhook in webhooks(configuration).filter_map(Value::as_object_mut) {
        unless_set(webhook, "failurePolicy", "Fail");
        unless_set(webhook, "timeoutSeconds", 10);
        rule::default_match(webhook);
        rule::default(webhook, "rules");
        let service = webhook.get_mut("clientConfig").and_then(|config| config.get_mut("service"));
        if let Some(service) = service.and_then(Value::as_object_mut) {
            unless_set(service, "port", 443);
        }
    }
}

fn validate(webhooks: &Change<'_>, errors: &mut Vec<Error>) {
    let before: Vec<Field<'_>> = webhooks.old.items().collect();
    // Violations that the stored object already has are accepted.
    let has_no_side_effects = before.iter().all(|one| NO_SIDE_EFFECTS.contains(&one.field("sideEffects").text()));
    let has_known_review = |one: &Field<'_>| {
        let versions = one.field("admissionReviewVersions");
        versions.is_empty() || versions.items().any(|version| REVIEWS.contains(&version.text()))
    };
    let have_known_reviews = before.iter().all(has_known_review);
    let names_before: BTreeSet<&str> = before.iter().map(|one| one.field("name").text()).collect();
    let had_unique_names = names_before.len() == before.len();
    let mut names = BTreeSet::new();
    for webhook in webhooks.new.items() {
        let webhook_name = webhook.field("name");
        validate_webhook(&webhook, has_no_side_effects, errors);
        validate_reviews(&webhook.field("admissionReviewVersions"), have_known_reviews, errors);
        if had_unique_names && !webhook_name.is_empty() && !names.insert(webhook_name.text()) {
            errors.push(webhook_name.duplicate());
        }
    }
}

/// The rules of the fields before `sideEffects`.
pub(in crate::builtin) const SELECTION: &[Rule] = &[
    Rule::new("name", Check::By(validate_name)),
    Rule::new("rules[]", Check::Rules(rule::OPERATIONS_AND_RESOURCES)),
    Rule::new("failurePolicy", Check::OneOf(&["Fail", "Ignore"])),
    Rule::new("", Check::Rules(rule::MATCH)),
];
/// The rules of the fields after it.
pub(in crate::builtin) const CALL: &[Rule] = &[
    Rule::new("timeoutSeconds", Check::Between(1, 30, "the timeout value must be between 1 and 30 seconds")),
    Rule::new("reinvocationPolicy", Check::OneOf(&["IfNeeded", "Never"])).if_present(),
    Rule::new("clientConfig", Check::By(client::validate)),
];

fn validate_webhook(webhook: &Field<'_>, needs_no_side_effects: bool, errors: &mut Vec<Error>) {
    check_field(SELECTION, webhook, errors);
    let effects = webhook.field("sideEffects");
    let allowed: &[&str] = if needs_no_side_effects { &NO_SIDE_EFFECTS } else { &ALL_SIDE_EFFECTS };
    if effects.is_absent() {
        errors.push(effects.required(&format!("must specify one of {}", allowed.join(", "))));
    }
    rules::one_of_if_present(&effects, allowed, errors);
    check_field(CALL, webhook, errors);
    rule::validate_conditions(&webhook.field("matchConditions"), Names::WEBHOOK, errors);
}

/// The string must be a domain of at least three parts.
fn validate_name(webhook_name: &Field<'_>, errors: &mut Vec<Error>) {
    if webhook_name.is_empty() {
        return rules::required(webhook_name, errors);
    }
    let wrong = name::dns1123_subdomain(webhook_name.text());
    if !wrong.is_empty() {
        errors.push(webhook_name.invalid(wrong.join(",")));
    } else if webhook_name.text().split('.').count() < 3 {
        errors.push(webhook_name.invalid("should be a domain with at least three segments separated by dots"));
    }
}

fn validate_reviews(versions: &Field<'_>, needs_known: bool, errors: &mut Vec<Error>) {
    let known = REVIEWS.join(", ");
    if versions.is_empty() {
        return errors.push(versions.required(&format!("must specify one of {known}")));
    }
    let mut seen = BTreeSet::new();
    for version in versions.items() {
        if seen.insert(version.text()) {
            rules::named(&version, name::dns1035_label, errors);
        } else {
            errors.push(version.invalid("duplicate version"));
        }
    }
    if needs_known && !REVIEWS.iter().any(|known| seen.contains(known)) {
        errors.push(versions.invalid(format!("must include at least one of {known}")));
    }
}
