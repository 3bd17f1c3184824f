//! What a Pod of a Job says of itself: its completion index, and how often Pods of that index have failed before it.
//!
//! Annotations are the user's to change, so what cannot be read counts as absent. Follows upstream's `indexed_job_utils.go`.

use k8s_openapi::api::core::v1::Pod;

/// Annotation and label.
pub(crate) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub(crate) const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
pub(crate) const IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// The completion index; `None` if there is none that can be read.
pub(crate) fn of(pod: &Pod) -> Option<i32> {
    number(pod, COMPLETION_INDEX)
}

/// The completion index if it is one that the Job wants.
pub(crate) fn within(pod: &Pod, completions: i32) -> Option<i32> {
    of(pod).filter(|&index| index < completions)
}

/// How many failed Pods of the index came before this one, not counting those that the policy ignores.
pub(crate) fn n_failures(pod: &Pod) -> i32 {
    number(pod, FAILURE_COUNT).unwrap_or(0)
}

pub(crate) fn n_ignored_failures(pod: &Pod) -> i32 {
    number(pod, IGNORED_FAILURE_COUNT).unwrap_or(0)
}

fn number(pod: &Pod, annotation: &str) -> Option<i32> {
    let text = pod.metadata.annotations.as_ref()?.get(annotation)?;
    text.parse().ok().filter(|&number| number >= 0)
}
