//! Runs Jobs.

use k8s_openapi::api::batch::v1::{Job, JobCondition};

/// The condition that says how a Job has finished, if it has.
pub(crate) fn finished(job: &Job) -> Option<&JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|one| matches!(&*one.type_, "Complete" | "Failed") && one.status == "True")
}

/// Whether a Job has finished well.
pub(crate) fn is_complete(job: &Job) -> bool {
    let conditions = job.status.iter().flat_map(|status| &status.conditions).flatten();
    conditions.into_iter().any(|one| one.type_ == "Complete" && one.status == "True")
}
