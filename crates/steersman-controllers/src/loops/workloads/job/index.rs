//! The annotations of a Job's Pod: its completion index, and the number of earlier failures of the index.
//!
//! Users can change annotations, so values that cannot be read count as absent. Follows upstream's
//! `indexed_job_utils.go`.

use k8s_openapi::api::core::v1::Pod;

/// The name of an annotation and a label.
pub(crate) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub(crate) const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
pub(crate) const IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// The completion index; `None` if it is absent or unreadable.
pub(crate) fn of(pod: &Pod) -> Option<i32> {
    number(pod, COMPLETION_INDEX)
}

/// The completion index if it is below the number of completions.
pub(crate) fn within(pod: &Pod, completions: i32) -> Option<i32> {
    of(pod).filter(|&index| index < completions)
}

/// The number of earlier failed Pods of the index, without those that the policy ignores.
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
