//! The conditions of a namespace that is being deleted, after a pass, with the types, reasons and messages of
//! kube-controller-manager.

use crate::loops::cleanup::namespace::content::Outcome;
use crate::shared::clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NamespaceCondition, NamespaceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

/// The conditions after a pass. The transition time is kept while the status stays; conditions of others are kept.
pub(super) fn of(outcome: &Outcome, present: Option<&NamespaceStatus>, now: Timestamp) -> Vec<NamespaceCondition> {
    let mut conditions = present.and_then(|status| status.conditions.clone()).unwrap_or_default();
    for mut condition in found(outcome, now) {
        match conditions.iter_mut().find(|known| known.type_ == condition.type_) {
            None => conditions.push(condition),
            Some(known) => {
                if known.status == condition.status {
                    condition.last_transition_time = known.last_transition_time.take();
                }
                *known = condition;
            }
        }
    }
    conditions
}

fn found(outcome: &Outcome, now: Timestamp) -> [NamespaceCondition; 5] {
    let condition = |type_: &str, trouble, reasons| condition(type_, trouble, reasons, now);
    let failures = Some(outcome.failures.join(", ")).filter(|text| !text.is_empty());
    let counted = |counts: &BTreeMap<String, usize>, lead: &str, say: fn(&str, usize) -> String| {
        let each: Vec<String> = counts.iter().map(|(name, n)| say(name, *n)).collect();
        (!each.is_empty()).then(|| format!("{lead}: {}", each.join(", ")))
    };
    [
        condition(
            "NamespaceDeletionDiscoveryFailure",
            outcome.discovery_failure.clone(),
            ["DiscoveryFailed", "ResourcesDiscovered", "All resources successfully discovered"],
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            ["GroupVersionParsingFailed", "ParsedGroupVersions", "All legacy kube types successfully parsed"],
        ),
        condition(
            "NamespaceDeletionContentFailure",
            failures.map(|text| {
                format!("Failed to delete all resource types, {} remaining: {text}", outcome.failures.len())
            }),
            [
                "ContentDeletionFailed",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ],
        ),
        condition(
            "NamespaceContentRemaining",
            counted(&outcome.remaining, "Some resources are remaining", |name, n| {
                format!("{name} has {n} resource instances")
            }),
            ["SomeResourcesRemain", "ContentRemoved", "All content successfully removed"],
        ),
        condition(
            "NamespaceFinalizersRemaining",
            counted(&outcome.finalizers, "Some content in the namespace has finalizers remaining", |name, n| {
                format!("{name} in {n} resource instances")
            }),
            ["SomeFinalizersRemain", "ContentHasNoFinalizers", "All content-preserving finalizers finished"],
        ),
    ]
}

/// A condition that is true while there is trouble. The texts are the reason with trouble, and the reason and the
/// message without.
fn condition(
    type_: &str,
    trouble: Option<String>,
    [bad, good, all_well]: [&str; 3],
    now: Timestamp,
) -> NamespaceCondition {
    let (status, reason) = if trouble.is_some() { ("True", bad) } else { ("False", good) };
    NamespaceCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(trouble.unwrap_or_else(|| all_well.to_owned())),
        last_transition_time: Some(Time(clock::whole_seconds(now))),
    }
}
