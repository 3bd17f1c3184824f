//! Validation of Nodes, as `ValidateNode` and `ValidateNodeUpdate` of kubernetes' `pkg/apis/core/validation`. Left out
//! are the annotations that once held taints, and `spec.configSource`, which nothing uses any more.

use crate::builtin::rules;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::resource_name;
use crate::builtin::rules::rule::{Check, Rule, check_field};
use ipnet::IpNet;
use std::collections::BTreeSet;
use steersman_machinery::field::Error;
use steersman_machinery::name;
use steersman_machinery::quantity::Quantity;

/// The maximum length of a feature that a node declares.
const FEATURE_LENGTH_MAX: usize = 253;

/// The rules of nodes, new or changed through the main endpoint.
pub(super) const NODE: &[Rule] = &[
    TAINTS,
    CAPACITY,
    ALLOCATABLE,
    Rule::new("status.nodeInfo.swap.capacity", Check::Positive).blaming("metadata.nodeSwapStatus.capacity"),
    FEATURES,
    Rule::new("spec.podCIDRs", Check::By(ranges)),
    UNCHANGED,
    EXTERNAL_ID,
];

/// The rules of updates of the status, and of the rest of the node too.
pub(super) const STATUS: &[Rule] = &[TAINTS, CAPACITY, ALLOCATABLE, FEATURES, UNCHANGED, EXTERNAL_ID];

// The path is upstream's, though the field is in `spec`.
const TAINTS: Rule = Rule::new("spec.taints", Check::By(taints)).blaming("metadata.taints");
const CAPACITY: Rule = Rule::new("status.capacity", Check::By(amounts));
const ALLOCATABLE: Rule = Rule::new("status.allocatable", Check::By(amounts));
const FEATURES: Rule = Rule::new("status.declaredFeatures", Check::By(declared_features));
const UNCHANGED: Rule = Rule::new("", Check::Change(unchanged)).on_update();
const EXTERNAL_ID: Rule = Rule::new("spec.externalID", Check::Unchanged("may not be updated"));

/// Fields that may not change, and addresses that may not repeat.
fn unchanged(Change { new: node, old }: &Change<'_>, errors: &mut Vec<Error>) {
    let mut seen = BTreeSet::new();
    for address in node.at(&["status", "addresses"]).items() {
        if !seen.insert((address.field("type").text(), address.field("address").text())) {
            errors.push(Error::duplicate(&address.path, address.value.clone()));
        }
    }
    let (spec, before) = (node.field("spec"), old.field("spec"));
    let (ranges, ranges_before) = (spec.field("podCIDRs"), before.field("podCIDRs"));
    if !ranges_before.is_empty() && ranges.value != ranges_before.value {
        errors.push(ranges.forbidden("node updates may not change podCIDR except from \"\" to valid"));
    }
    let (provider, provider_before) = (spec.field("providerID"), before.field("providerID"));
    if !provider_before.is_empty() && provider.text() != provider_before.text() {
        errors.push(provider.forbidden("node updates may not change providerID except from \"\" to valid"));
    }
}

pub(in crate::builtin) const TAINT: &[Rule] = &[
    Rule::new("key", Check::Format(name::qualified)),
    Rule::new("value", Check::Format(name::label_value)).unless_empty(),
    Rule::new("effect", Check::OneOf(&["NoSchedule", "PreferNoSchedule", "NoExecute"])).and_required(""),
];

fn taints(taints: &Field<'_>, errors: &mut Vec<Error>) {
    let mut seen = BTreeSet::new();
    for taint in taints.items() {
        check_field(TAINT, &taint, errors);
        if !seen.insert(["key", "effect"].map(|field| taint.field(field).text())) {
            let detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(Error { detail, ..taint.duplicate() });
        }
    }
}

/// The amounts of resources. Upstream's paths name a resource like a field.
fn amounts(amounts: &Field<'_>, errors: &mut Vec<Error>) {
    for (resource, _) in amounts.entries() {
        let amount = amounts.field(resource);
        rules::not_negative_quantity(&amount, errors);
        let is_whole = Quantity::parse(amount.text()).is_ok_and(|quantity| quantity.is_whole());
        if resource_name::is_whole(resource) && !is_whole {
            errors.push(amount.invalid("must be an integer"));
        }
    }
}

/// The features must be sorted, so a duplicate follows its first occurrence.
fn declared_features(features: &Field<'_>, errors: &mut Vec<Error>) {
    let mut before = None::<&str>;
    for feature in features.items() {
        let text = feature.text();
        match before {
            Some(before) if before == text => errors.push(feature.duplicate()),
            Some(before) if before > text => errors.push(feature.invalid("list must be sorted alphabetically")),
            _ => {}
        }
        before = Some(text);
        if text.len() > FEATURE_LENGTH_MAX {
            let why = format!("invalid feature name {text:?}: must be no more than {FEATURE_LENGTH_MAX} characters");
            errors.push(feature.invalid(why));
        } else if !is_feature(text) {
            errors.push(feature.invalid(format!(
                "invalid feature name {text:?}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            )));
        }
    }
}

fn is_feature(text: &str) -> bool {
    let is_segment = |segment: &str| {
        segment.starts_with(|c: char| c.is_ascii_alphabetic()) && segment.chars().all(|c| c.is_ascii_alphanumeric())
    };
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.split('/').all(is_segment)
}

/// The pod CIDRs of the node: at most one of each family.
fn ranges(ranges: &Field<'_>, errors: &mut Vec<Error>) {
    let items: Vec<Field<'_>> = ranges.items().collect();
    items.iter().for_each(|range| rules::legacy_cidr(range, errors));
    if items.len() < 2 {
        return;
    }
    let parsed: Vec<Option<IpNet>> = items.iter().map(|range| rules::sloppy_cidr(range.text())).collect();
    if let Some((index, range)) = items.iter().enumerate().find(|(index, _)| parsed[*index].is_none()) {
        let why = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> (invalid CIDR address: {})",
            range.text()
        );
        errors.push(Error::internal(&ranges.path, why));
    }
    let is_of = |is_v4: bool| parsed.iter().flatten().any(|range| range.addr().is_ipv4() == is_v4);
    let is_dual = parsed.iter().all(Option::is_some) && is_of(true) && is_of(false);
    if !is_dual || items.len() > 2 {
        errors.push(ranges.invalid("may specify no more than one CIDR for each IP family"));
    }
}
