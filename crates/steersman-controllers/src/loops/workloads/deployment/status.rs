//! The status of a Deployment: counts, availability, and the progress of the rollout.
//!
//! Follows upstream's `pkg/controller/deployment/progress.go` and `sync.go`: its reasons and messages, and which
//! conditions are kept.

use crate::loops::workloads::deployment::bounds;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;

pub(crate) const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";

const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
const PAUSED: &str = "DeploymentPaused";
const RESUMED: &str = "DeploymentResumed";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// The value of a deadline or a limit that stands for none.
const NONE: i32 = i32::MAX;

/// Added to the deadline, so that the time is surely up then.
const SLACK: Duration = Duration::from_millis(10);

pub(crate) fn condition<'a>(status: &'a DeploymentStatus, type_: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_.as_deref() == Some(type_))
}

fn reason(condition: Option<&DeploymentCondition>) -> Option<&str> {
    condition.and_then(|condition| condition.reason.as_deref())
}

fn new_condition(type_: &str, status: &str, reason: &str, message: String, now: Timestamp) -> DeploymentCondition {
    DeploymentCondition {
        last_transition_time: Some(Time(now)),
        last_update_time: Some(Time(now)),
        message: Some(message),
        reason: Some(reason.to_owned()),
        status: Some(status.to_owned()),
        type_: Some(type_.to_owned()),
    }
}

/// Sets a condition. A present one with the same status and reason is kept.
fn set(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    let conditions = status.conditions.get_or_insert_default();
    if let Some(known) = conditions.iter().find(|known| known.type_ == condition.type_)
        && known.status == condition.status
    {
        if known.reason == condition.reason {
            return;
        }
        condition.last_transition_time.clone_from(&known.last_transition_time);
    }
    conditions.retain(|known| known.type_ != condition.type_);
    conditions.push(condition);
}

fn remove(status: &mut DeploymentStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_.as_deref() != Some(type_));
        if conditions.is_empty() {
            status.conditions = None;
        }
    }
}

/// The seconds without progress after which a rollout counts as failed, if there is such a deadline.
pub(crate) fn deadline(deployment: &Deployment) -> Option<i32> {
    deployment.spec.progress_deadline_seconds.filter(|&seconds| seconds != NONE)
}

/// How many ReplicaSets of earlier revisions are kept; `None` if all are.
pub(crate) fn history_limit(deployment: &Deployment) -> Option<usize> {
    let limit = deployment.spec.revision_history_limit.filter(|&limit| limit != NONE)?;
    Some(usize::try_from(limit).unwrap_or(0))
}

/// Sets the condition `Progressing`.
pub(crate) fn set_progressing(
    deployment: &mut Deployment,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) {
    let condition = new_condition(PROGRESSING, status, reason, message, now);
    set(deployment.status.get_or_insert_default(), condition);
}

/// Records that a Deployment is paused or resumed, so that the time of a pause does not count as lack of progress.
pub(crate) fn note_pause(deployment: &mut Deployment, now: Timestamp) {
    if deadline(deployment).is_none() {
        return;
    }
    let known = deployment.status.as_ref().and_then(|status| reason(condition(status, PROGRESSING)));
    let is_paused = deployment.spec.paused == Some(true);
    match (known, is_paused) {
        (Some(TIMED_OUT), _) | (Some(PAUSED), true) => {}
        (_, true) => set_progressing(deployment, "Unknown", PAUSED, "Deployment is paused".to_owned(), now),
        (Some(PAUSED), false) => {
            set_progressing(deployment, "Unknown", RESUMED, "Deployment is resumed".to_owned(), now);
        }
        (_, false) => {}
    }
}

/// Whether the newest template has all desired Pods, all are available, and no other Pods exist.
pub(crate) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = bounds::wanted(deployment);
    let is_all = |count: Option<i32>| count.unwrap_or(0) == wanted;
    is_all(status.updated_replicas)
        && is_all(status.replicas)
        && is_all(status.available_replicas)
        && status.observed_generation.unwrap_or(0) >= deployment.metadata.generation.unwrap_or(0)
}

/// Whether there are more Pods of the newest template, fewer old ones, or more that are ready or available than in the
/// known status.
fn is_progress(known: &DeploymentStatus, status: &DeploymentStatus) -> bool {
    let old = |status: &DeploymentStatus| {
        i64::from(status.replicas.unwrap_or(0)) - i64::from(status.updated_replicas.unwrap_or(0))
    };
    status.updated_replicas > known.updated_replicas
        || old(status) < old(known)
        || status.ready_replicas > known.ready_replicas
        || status.available_replicas > known.available_replicas
}

/// The time left to make progress; `None` without a deadline, zero if the time is up.
fn time_left(deployment: &Deployment, progressing: &DeploymentCondition, now: Timestamp) -> Option<Duration> {
    let deadline = SignedDuration::from_secs(i64::from(deadline(deployment)?));
    let since = progressing.last_update_time.as_ref()?.0;
    let left = deadline.saturating_sub(now.duration_since(since));
    Some(Duration::try_from(left).unwrap_or_default())
}

fn is_timed_out(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> bool {
    let Some(progressing) = condition(status, PROGRESSING) else { return false };
    match progressing.reason.as_deref() {
        Some(NEW_SET_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => time_left(deployment, progressing, now) == Some(Duration::ZERO),
    }
}

/// The counts and the condition `Available`. Other conditions are kept from the Deployment.
pub(crate) fn calculate(
    deployment: &Deployment,
    sets: &[&ReplicaSet],
    newest: Option<&ReplicaSet>,
    now: Timestamp,
) -> DeploymentStatus {
    let counted = |count: fn(&ReplicaSet) -> i32| {
        let sum: i64 = sets.iter().map(|set| i64::from(count(set))).sum();
        i32::try_from(sum).unwrap_or(i32::MAX)
    };
    let available = counted(|set| set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0));
    let updated = newest.and_then(|set| set.status.as_ref()).map_or(0, |status| status.replicas);
    let known = deployment.status.as_ref();
    let mut status = DeploymentStatus {
        available_replicas: nonzero(available),
        collision_count: known.and_then(|known| known.collision_count),
        conditions: known.and_then(|known| known.conditions.clone()),
        observed_generation: deployment.metadata.generation.filter(|&generation| generation != 0),
        ready_replicas: nonzero(counted(|set| {
            set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0)
        })),
        replicas: nonzero(counted(|set| set.status.as_ref().map_or(0, |status| status.replicas))),
        terminating_replicas: terminating(sets),
        unavailable_replicas: nonzero(bounds::total(sets.iter().copied()).saturating_sub(available).max(0)),
        updated_replicas: nonzero(updated),
    };
    let least = bounds::wanted(deployment).saturating_sub(bounds::max_unavailable(deployment));
    let condition = if available >= least {
        let message = "Deployment has minimum availability.".to_owned();
        new_condition(AVAILABLE, "True", "MinimumReplicasAvailable", message, now)
    } else {
        let message = "Deployment does not have minimum availability.".to_owned();
        new_condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now)
    };
    set(&mut status, condition);
    status
}

/// `None` if a ReplicaSet that has been observed does not report its terminating Pods.
fn terminating(sets: &[&ReplicaSet]) -> Option<i32> {
    let mut sum = 0_i32;
    for status in sets.iter().filter_map(|set| set.status.as_ref()) {
        match status.terminating_replicas {
            Some(count) => sum = sum.saturating_add(count),
            None if status.observed_generation.unwrap_or(0) == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}

fn nonzero(count: i32) -> Option<i32> {
    Some(count).filter(|&count| count != 0)
}

/// Like [`calculate`], with the progress of the rollout. `known` is the status that the server has.
pub(crate) fn of_rollout(
    deployment: &Deployment,
    known: &DeploymentStatus,
    sets: &[&ReplicaSet],
    newest: Option<&ReplicaSet>,
    now: Timestamp,
) -> DeploymentStatus {
    let mut status = calculate(deployment, sets, newest, now);
    let progressing = deployment.status.as_ref().and_then(|status| condition(status, PROGRESSING)).cloned();
    if deadline(deployment).is_none() {
        remove(&mut status, PROGRESSING);
    }
    let was_complete =
        status.replicas == status.updated_replicas && reason(progressing.as_ref()) == Some(NEW_SET_AVAILABLE);
    if deadline(deployment).is_some() && !was_complete {
        let whose = match newest {
            Some(set) => format!("ReplicaSet {:?}", set.metadata.name.as_deref().unwrap_or_default()),
            None => format!("Deployment {:?}", deployment.metadata.name.as_deref().unwrap_or_default()),
        };
        if is_complete(deployment, &status) {
            let message = format!("{whose} has successfully progressed.");
            set(&mut status, new_condition(PROGRESSING, "True", NEW_SET_AVAILABLE, message, now));
        } else if is_progress(known, &status) {
            let message = format!("{whose} is progressing.");
            let mut condition = new_condition(PROGRESSING, "True", "ReplicaSetUpdated", message, now);
            // Each progress has its own time, so a condition of the same reason is replaced too.
            if let Some(earlier) = progressing.filter(|earlier| earlier.status.as_deref() == Some("True")) {
                condition.last_transition_time = earlier.last_transition_time;
            }
            remove(&mut status, PROGRESSING);
            set(&mut status, condition);
        } else if is_timed_out(deployment, &status, now) {
            let message = format!("{whose} has timed out progressing.");
            set(&mut status, new_condition(PROGRESSING, "False", TIMED_OUT, message, now));
        }
    }
    match failure(sets, newest) {
        Some(failure) => set(&mut status, failure),
        None => remove(&mut status, REPLICA_FAILURE),
    }
    status
}

/// The reason why Pods cannot be created, from the condition of a ReplicaSet; the newest template's takes precedence.
fn failure(sets: &[&ReplicaSet], newest: Option<&ReplicaSet>) -> Option<DeploymentCondition> {
    let all = newest.into_iter().chain(sets.iter().copied());
    let mut conditions =
        all.filter_map(|set| set.status.as_ref()).flat_map(|status| status.conditions.iter().flatten());
    let failure = conditions.find(|condition| condition.type_.as_deref() == Some(REPLICA_FAILURE))?;
    Some(DeploymentCondition {
        last_transition_time: failure.last_transition_time.clone(),
        last_update_time: failure.last_transition_time.clone(),
        message: failure.message.clone(),
        reason: failure.reason.clone(),
        status: failure.status.clone(),
        type_: failure.type_.clone(),
    })
}

/// When a Deployment without further progress is to be reconciled again.
pub(crate) fn next_look(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> Option<Duration> {
    let progressing = condition(status, PROGRESSING)?;
    if is_complete(deployment, status) || progressing.reason.as_deref() == Some(TIMED_OUT) {
        return None;
    }
    time_left(deployment, progressing, now).map(|left| left.saturating_add(SLACK))
}
