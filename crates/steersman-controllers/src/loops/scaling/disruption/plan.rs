//! Computes a budget's status from the budget, its Pods and the scale of their owners.

use crate::loops::scaling::disruption::PATIENCE;
use crate::shared::clock;
use crate::shared::pods;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use steersman::conditions::{self, Status};

const CONDITION: &str = "DisruptionAllowed";

/// The demand of a budget.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit<'a> {
    MaxUnavailable(&'a IntOrString),
    MinAvailable(&'a IntOrString),
    /// The budget sets neither.
    Nothing,
}

/// The expected number of Pods, and how many of them should be healthy.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(crate) count: i32,
    pub(crate) healthy: i32,
    /// The names of Pods without a controller.
    pub(crate) unmanaged: Vec<String>,
}

/// The result of a plan.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The budget with a new status, if the status changes.
    pub(crate) status: Option<PodDisruptionBudget>,
    /// Pods that were evicted long ago and still exist.
    pub(crate) not_deleted: Vec<Arc<Pod>>,
    /// When the next evicted Pod that was not deleted counts again.
    pub(crate) recheck_in: Option<Duration>,
}

impl Limit<'_> {
    pub(crate) fn of(budget: &PodDisruptionBudget) -> Limit<'_> {
        let Some(spec) = &budget.spec else { return Limit::Nothing };
        match (&spec.max_unavailable, &spec.min_available) {
            (Some(most), _) => Limit::MaxUnavailable(most),
            (None, Some(least)) => Limit::MinAvailable(least),
            (None, None) => Limit::Nothing,
        }
    }

    /// Whether the demand depends on the scale of the Pods' owners, and not only on existing Pods.
    pub(crate) fn needs_scale(self) -> bool {
        matches!(self, Limit::MaxUnavailable(_) | Limit::MinAvailable(IntOrString::String(_)))
    }

    pub(crate) fn of_pods(self, n_pods: usize) -> Result<Expected, String> {
        match self {
            Limit::MinAvailable(IntOrString::Int(healthy)) => Ok(Expected {
                count: i32::try_from(n_pods).unwrap_or(i32::MAX),
                healthy: *healthy,
                unmanaged: Vec::new(),
            }),
            _ => Ok(Expected::default()),
        }
    }

    /// The expected and the healthy number of Pods for owners that want `count` Pods.
    pub(crate) fn of_scale(self, count: i32) -> Result<(i32, i32), String> {
        let healthy = match self {
            Limit::MaxUnavailable(most) => count.saturating_sub(scaled(most, count)?).max(0),
            Limit::MinAvailable(least) => scaled(least, count)?,
            Limit::Nothing => 0,
        };
        Ok((count, healthy))
    }
}

/// A number, or a percentage of `total`, rounded up.
fn scaled(wanted: &IntOrString, total: i32) -> Result<i32, String> {
    let text = match wanted {
        IntOrString::Int(number) => return Ok(*number),
        IntOrString::String(text) => text,
    };
    let invalid = |why: String| format!("invalid value for IntOrString: {why}");
    let Some(percent) = text.strip_suffix('%') else {
        return Err(invalid("invalid type: string is not a percentage".to_owned()));
    };
    let percent: i32 = percent
        .parse()
        .map_err(|_| invalid(format!("invalid value {text:?}: strconv.Atoi: parsing {percent:?}: invalid syntax")))?;
    let product = i64::from(percent) * i64::from(total);
    let up = product.div_euclid(100) + i64::from(product.rem_euclid(100) > 0);
    Ok(i32::try_from(up).unwrap_or(if up < 0 { i32::MIN } else { i32::MAX }))
}

/// Plans the status of a budget.
pub(crate) fn plan(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], expected: &Expected, now: Timestamp) -> Planned {
    let known = budget.status.as_ref();
    let noted = known.and_then(|status| status.disrupted_pods.as_ref());
    let mut disrupted: BTreeMap<String, Time> = BTreeMap::new();
    let (mut not_deleted, mut recheck_in) = (Vec::new(), None::<Duration>);
    let mut healthy = 0;
    for pod in pods.iter().filter(|pod| !pods::is_terminating(pod)) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        if let Some(at) = noted.and_then(|noted| noted.get(name)) {
            let left = left_of_patience(at.0, now);
            match left {
                None => not_deleted.push(Arc::clone(pod)),
                Some(left) => {
                    recheck_in = Some(recheck_in.map_or(left, |known| known.min(left)));
                    disrupted.insert(name.to_owned(), at.clone());
                    // At the exact end of its time the Pod counts again.
                    if !left.is_zero() {
                        continue;
                    }
                }
            }
        }
        healthy += i32::from(pods::is_ready(pod));
    }
    let allowed = healthy.saturating_sub(expected.healthy);
    let allowed = if expected.count <= 0 { 0 } else { allowed.max(0) };
    let (status, reason) =
        if allowed > 0 { (Status::True, "SufficientPods") } else { (Status::False, "InsufficientPods") };
    let generation = budget.metadata.generation;
    let conditions = known.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_said = conditions::find(conditions, CONDITION)
        .is_some_and(|condition| condition.status == status.as_str() && condition.reason == reason);
    let is_same = known.is_some_and(|known| {
        known.current_healthy.unwrap_or_default() == healthy
            && known.desired_healthy.unwrap_or_default() == expected.healthy
            && known.expected_pods.unwrap_or_default() == expected.count
            && known.disruptions_allowed.unwrap_or_default() == allowed
            && known.disrupted_pods.clone().unwrap_or_default() == disrupted
            && known.observed_generation == generation
    });
    let status = (!(is_same && is_said)).then(|| {
        let mut conditions = conditions.to_vec();
        conditions::set(&mut conditions, condition(status, reason, "", generation, now));
        PodDisruptionBudget {
            status: Some(PodDisruptionBudgetStatus {
                conditions: Some(conditions),
                current_healthy: Some(healthy),
                desired_healthy: Some(expected.healthy),
                disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
                disruptions_allowed: Some(allowed),
                expected_pods: Some(expected.count),
                observed_generation: generation,
            }),
            ..budget.clone()
        }
    });
    Planned { status, not_deleted, recheck_in }
}

/// The budget when the expected number is unknown: no eviction is allowed, and the condition says why.
pub(crate) fn failed(budget: &PodDisruptionBudget, why: &str, now: Timestamp) -> PodDisruptionBudget {
    let mut budget = budget.clone();
    let status = budget.status.get_or_insert_default();
    let observed = status.observed_generation;
    // The API requires these fields, also in a status that was never computed.
    status.current_healthy.get_or_insert(0);
    status.desired_healthy.get_or_insert(0);
    status.expected_pods.get_or_insert(0);
    status.disruptions_allowed = Some(0);
    let conditions = status.conditions.get_or_insert_default();
    conditions::set(conditions, condition(Status::False, "SyncFailed", why, observed, now));
    budget
}

fn condition(status: Status, reason: &str, message: &str, generation: Option<i64>, now: Timestamp) -> Condition {
    let mut condition = conditions::condition(CONDITION, status, reason, message, generation);
    condition.last_transition_time = Time(clock::whole_seconds(now));
    condition
}

/// The rest of the time in which an eviction may take effect. `None` if that time has passed.
pub(crate) fn left_of_patience(since: Timestamp, now: Timestamp) -> Option<Duration> {
    let elapsed = now.duration_since(since);
    let patience = jiff::SignedDuration::try_from(PATIENCE).unwrap_or_default();
    Duration::try_from(patience.checked_sub(elapsed)?).ok()
}

#[cfg(test)]
mod tests;
