//! The status of an autoscaler during an evaluation.

use crate::shared::clock;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use steersman::conditions;

pub(crate) struct Status {
    status: HorizontalPodAutoscalerStatus,
    metrics: Option<Vec<MetricStatus>>,
    now: Timestamp,
}

impl Status {
    /// The current status of an autoscaler.
    pub(crate) fn of(autoscaler: &HorizontalPodAutoscaler, now: Timestamp) -> Status {
        let now = clock::whole_seconds(now);
        Status { status: autoscaler.status.clone().unwrap_or_default(), metrics: None, now }
    }

    /// Sets a condition. Its transition time changes with its status.
    pub(crate) fn set(&mut self, type_: &str, is: conditions::Status, reason: &str, message: &str) {
        let conditions = self.status.conditions.get_or_insert_default();
        let at = match conditions.iter().position(|condition| condition.type_ == type_) {
            Some(at) => at,
            None => {
                let type_ = type_.to_owned();
                conditions.push(HorizontalPodAutoscalerCondition { type_, ..Default::default() });
                conditions.len() - 1
            }
        };
        let condition = &mut conditions[at];
        let status = is.as_str();
        if condition.status != status {
            condition.last_transition_time = Some(Time(self.now));
        }
        condition.status = status.to_owned();
        condition.reason = Some(reason.to_owned());
        condition.message = Some(message.to_owned());
    }

    pub(crate) fn remove(&mut self, type_: &str) {
        self.status.conditions.iter_mut().for_each(|conditions| conditions.retain(|one| one.type_ != type_));
    }

    /// Sets the current metrics.
    pub(crate) fn metrics(&mut self, metrics: Vec<MetricStatus>) {
        self.metrics = Some(metrics);
    }

    /// Records that the target has been scaled just now.
    pub(crate) fn rescaled(&mut self) {
        self.status.last_scale_time = Some(Time(self.now));
    }

    /// Sets the current and the desired number of replicas; the desired one is kept if it is unknown.
    pub(crate) fn counted(&mut self, current: i32, desired: Option<i32>) {
        self.status.current_replicas = Some(current);
        self.status.desired_replicas = desired.unwrap_or(self.status.desired_replicas);
        self.status.observed_generation = None;
        self.status.current_metrics = self.metrics.take().filter(|metrics| !metrics.is_empty());
    }

    /// The autoscaler with this status, or `None` if it has it already.
    pub(crate) fn differs(self, autoscaler: &HorizontalPodAutoscaler) -> Option<HorizontalPodAutoscaler> {
        let known = autoscaler.status.clone().unwrap_or_default();
        let normal = |status: HorizontalPodAutoscalerStatus| HorizontalPodAutoscalerStatus {
            conditions: status.conditions.filter(|list| !list.is_empty()),
            current_metrics: status.current_metrics.filter(|list| !list.is_empty()),
            current_replicas: status.current_replicas.filter(|n| *n != 0),
            ..status
        };
        let is_same = normal(known) == normal(self.status.clone());
        (!is_same).then(|| HorizontalPodAutoscaler { status: Some(self.status), ..autoscaler.clone() })
    }
}
