//! Validation of a job's policies: which pod failures count, and when it succeeds early.

use crate::builtin::rules;
use crate::builtin::rules::field::Field;
use crate::builtin::workloads::batch::job::INDEXED;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::name;

const RULES_MAX: usize = 20;
const CONDITIONS_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const INDEXES_LENGTH_MAX: usize = 64 * 1024;

/// Validates `podFailurePolicy` of a job's spec.
pub(super) fn failure(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let policy_rules = spec.at(&["podFailurePolicy", "rules"]);
    let containers = ["containers", "initContainers"].map(|field| spec.at(&["template", "spec", field]));
    let names: BTreeSet<&str> =
        containers.iter().flat_map(Field::items).map(|container| container.field("name").text()).collect();
    at_most(&policy_rules, RULES_MAX, errors);
    let is_per_index = spec.field("backoffLimitPerIndex").is_present();
    for rule in policy_rules.items() {
        failure_rule(&rule, is_per_index, &names, errors);
    }
}

fn failure_rule(rule: &Field<'_>, is_per_index: bool, names: &BTreeSet<&str>, errors: &mut Vec<Error>) {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let action = rule.field("action");
    match action.text() {
        "FailIndex" if !is_per_index => errors.push(action.invalid("requires the backoffLimitPerIndex to be set")),
        _ => one_of(&action, &ACTIONS, errors),
    }
    let (codes, conditions) = (rule.field("onExitCodes"), rule.field("onPodConditions"));
    if codes.is_present() {
        exit_codes(&codes, names, errors);
    }
    at_most(&conditions, CONDITIONS_MAX, errors);
    for condition in conditions.items() {
        rules::named(&condition.field("type"), name::qualified, errors);
        one_of(&condition.field("status"), &["False", "True", "Unknown"], errors);
    }
    if codes.is_present() && !conditions.is_empty() {
        let why = "specifying both OnExitCodes and OnPodConditions is not supported";
        errors.push(Error::invalid_without_value(&rule.path, why));
    }
    if codes.is_absent() && conditions.is_empty() {
        let why = "specifying one of OnExitCodes and OnPodConditions is required";
        errors.push(Error::invalid_without_value(&rule.path, why));
    }
}

fn exit_codes(codes: &Field<'_>, names: &BTreeSet<&str>, errors: &mut Vec<Error>) {
    let operator = codes.field("operator");
    one_of(&operator, &["In", "NotIn"], errors);
    let container = codes.field("containerName");
    if container.is_present() && !names.contains(container.text()) {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.push(container.invalid(why));
    }
    let values = codes.field("values");
    if values.is_empty() {
        errors.push(values.invalid("at least one value is required"));
    }
    at_most(&values, EXIT_CODES_MAX, errors);
    let mut seen = BTreeSet::new();
    for value in values.items() {
        if operator.text() == "In" && value.number() == Some(0) {
            errors.push(value.invalid("must not be 0 for the In operator"));
        }
        if !seen.insert(value.number()) {
            errors.push(value.duplicate());
        }
    }
    let numbers: Vec<Option<i64>> = values.items().map(|value| value.number()).collect();
    if !numbers.is_sorted() {
        errors.push(values.invalid("must be ordered"));
    }
}

/// Validates `successPolicy` of a job's spec.
pub(super) fn success(spec: &Field<'_>, errors: &mut Vec<Error>) {
    let policy = spec.field("successPolicy");
    if policy.is_absent() {
        return;
    }
    if spec.field("completionMode").text() != INDEXED {
        errors.push(policy.invalid("requires indexed completion mode"));
        return;
    }
    let policy_rules = policy.field("rules");
    if policy_rules.is_empty() {
        errors.push(policy_rules.required("at least one rules must be specified when the successPolicy is specified"));
    }
    at_most(&policy_rules, RULES_MAX, errors);
    let completions = spec.field("completions").number().unwrap_or_default();
    for rule in policy_rules.items() {
        success_rule(&rule, completions, errors);
    }
}

fn success_rule(rule: &Field<'_>, completions: i64, errors: &mut Vec<Error>) {
    let (count, indexes) = (rule.field("succeededCount"), rule.field("succeededIndexes"));
    if count.is_absent() && indexes.is_absent() {
        errors.push(rule.required("at least one of succeededCount or succeededIndexes must be specified"));
    }
    let mut n_indexes = 0;
    if indexes.is_present() {
        if indexes.text().len() > INDEXES_LENGTH_MAX {
            errors.push(Error::too_long(&indexes.path, INDEXES_LENGTH_MAX));
        }
        match count_indexes(indexes.text(), completions) {
            Ok(number) => n_indexes = number,
            Err(why) => errors.push(indexes.invalid(format!("error parsing succeededIndexes: {why}"))),
        }
    }
    let Some(number) = count.number() else { return };
    rules::not_negative(&count, errors);
    if number > completions {
        let why = format!("must be less than or equal to {completions} (the number of specified completions)");
        errors.push(count.invalid(why));
    }
    if indexes.is_present() && number > n_indexes {
        let why = format!(
            "must be less than or equal to {n_indexes} (the number of indexes in the specified succeededIndexes field)"
        );
        errors.push(count.invalid(why));
    }
}

/// The number of indexes in `1,3-5,7`. They must increase, and be below the number of completions.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut total, mut last): (i64, Option<i64>) = (0, None);
    for interval in text.split(',') {
        let ends: Vec<&str> = interval.split('-').collect();
        if ends.len() > 2 {
            return Err(format!(
                "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
            ));
        }
        for (position, end) in ends.iter().enumerate() {
            let index: i64 = end.parse().map_err(|_| format!("cannot convert string to integer for index: {end:?}"))?;
            if index >= completions {
                return Err(format!("too large index: {end:?}"));
            }
            if let Some(last) = last.filter(|last| *last >= index) {
                return Err(format!("non-increasing order, previous: {last}, current: {index}"));
            }
            total += if position == 0 { 1 } else { index - last.unwrap_or(index) };
            last = Some(index);
        }
    }
    Ok(total)
}

/// Text must be one of the given words. The error for an absent field lists them.
fn one_of(field: &Field<'_>, words: &[&str], errors: &mut Vec<Error>) {
    if field.is_empty() {
        let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        errors.push(field.required(&format!("valid values: [{}]", quoted.join(" "))));
    } else {
        rules::one_of(field, words, errors);
    }
}

/// A list must not have more items than the given number.
fn at_most(field: &Field<'_>, count_max: usize, errors: &mut Vec<Error>) {
    let count = field.items().count();
    if count > count_max {
        errors.push(Error::too_many(&field.path, count, count_max));
    }
}
