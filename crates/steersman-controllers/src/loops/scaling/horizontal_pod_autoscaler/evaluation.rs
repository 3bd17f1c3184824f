//! Evaluates one metric of an autoscaler: a number of replicas and a metric status, or an error with upstream's text.

use crate::loops::scaling::horizontal_pod_autoscaler::metrics::MetricsClient;
use crate::loops::scaling::horizontal_pod_autoscaler::replicas::{self, Pods, Resource, Tolerance, milli};
use crate::shared::pods::by_label::go_text;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus, HPAScalingRules,
    HorizontalPodAutoscaler, MetricIdentifier, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus,
    ObjectMetricSource, ObjectMetricStatus, PodsMetricSource, PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use std::sync::Arc;
use steersman_machinery::quantity::Quantity;

/// The tolerance of an autoscaler that does not set one.
const TOLERANCE: f64 = 0.1;

pub(crate) struct Evaluation<'a> {
    pub(crate) metrics: &'a MetricsClient,
    pub(crate) autoscaler: &'a HorizontalPodAutoscaler,
    pub(crate) subject: ScaleTarget<'a>,
}

/// The target and its Pods.
#[derive(Clone, Copy)]
pub(crate) struct ScaleTarget<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) selector: &'a str,
    pub(crate) pods: &'a [Arc<Pod>],
    /// The replicas in the spec of the scale.
    pub(crate) current: i32,
    /// The replicas in the status of the scale.
    pub(crate) present: i32,
    pub(crate) now: Timestamp,
}

/// The result of a metric.
pub(crate) struct MetricResult {
    pub(crate) replicas: i32,
    /// The name of the metric in messages.
    pub(crate) name: String,
    pub(crate) status: MetricStatus,
}

/// Why a metric yields no number of replicas.
pub(crate) struct Failure {
    /// The reason of the Event and of the condition.
    pub(crate) reason: &'static str,
    /// The message of the Event and of the condition.
    pub(crate) said: String,
    /// The text within the combined error.
    pub(crate) error: String,
}

/// The number, the name of the metric, and the value.
type Proposed = (i32, String, MetricValueStatus);

impl Evaluation<'_> {
    pub(crate) async fn of(&self, spec: &MetricSpec) -> Result<MetricResult, Failure> {
        let mut status = MetricStatus { type_: spec.type_.clone(), ..MetricStatus::default() };
        let (replicas, name) = match &*spec.type_ {
            "Resource" if let Some(source) = &spec.resource => {
                let resource = Resource { name: &source.name, container: "" };
                let (replicas, name, current) =
                    self.of_resource(resource, &source.target).await.map_err(|why| Failure {
                        reason: "FailedGetResourceMetric",
                        error: format!("failed to get {} resource metric value: {why}", source.name),
                        said: why,
                    })?;
                status.resource = Some(ResourceMetricStatus { current, name: source.name.clone() });
                (replicas, name)
            }
            "ContainerResource" if let Some(source) = &spec.container_resource => {
                let resource = Resource { name: &source.name, container: &source.container };
                let (replicas, name, current) =
                    self.of_resource(resource, &source.target).await.map_err(|why| Failure {
                        reason: "FailedGetContainerResourceMetric",
                        error: format!("failed to get {} container metric value: {why}", source.container),
                        said: why,
                    })?;
                let (container, name_of) = (source.container.clone(), source.name.clone());
                status.container_resource = Some(ContainerResourceMetricStatus { container, current, name: name_of });
                (replicas, name)
            }
            "Pods" if let Some(source) = &spec.pods => {
                let (replicas, name, current) = self.of_pods(source).await.map_err(|why| Failure {
                    reason: "FailedGetPodsMetric",
                    error: format!("failed to get pods metric value: {why}"),
                    said: why,
                })?;
                status.pods = Some(PodsMetricStatus { current, metric: source.metric.clone() });
                (replicas, name)
            }
            "Object" if let Some(source) = &spec.object => {
                let (replicas, name, current) = self.of_object(source).await?;
                let (described_object, metric) = (source.described_object.clone(), source.metric.clone());
                status.object = Some(ObjectMetricStatus { current, described_object, metric });
                (replicas, name)
            }
            "External" if let Some(source) = &spec.external => {
                let (replicas, name, current) = self.of_external(source).await?;
                status.external = Some(ExternalMetricStatus { current, metric: source.metric.clone() });
                (replicas, name)
            }
            other => {
                let why = format!("unknown metric source type {other:?}");
                return Err(Failure { reason: "InvalidMetricSourceType", said: why.clone(), error: why });
            }
        };
        Ok(MetricResult { replicas, name, status })
    }

    async fn of_resource(&self, resource: Resource<'_>, target: &MetricTarget) -> Result<Proposed, String> {
        let ScaleTarget { namespace, selector, pods, current, now, .. } = self.subject;
        let Resource { name, container } = resource;
        let is_average = target.average_value.is_some();
        let what = if is_average { "usage" } else { "utilization" };
        let said = |why: String| format!("failed to get {name} {what}: {why}");
        if !is_average && target.average_utilization.is_none() {
            let why = "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set";
            return Err(why.to_owned());
        }
        let metrics = self.metrics.of_resource(namespace, selector, name, container).await;
        let metrics = metrics.map_err(|why| said(format!("unable to get metrics for resource {name}: {why}")))?;
        let (of, tolerance) = (Pods { pods, now }, self.tolerance());
        let is_memory = name == "memory";
        if let Some(average) = &target.average_value {
            let wanted = thousandths(average);
            let proposal =
                replicas::by_average(current, wanted, Some(resource), tolerance, of, metrics).map_err(said)?;
            let average_value = Some(quantity(proposal.average, is_memory));
            let value = MetricValueStatus { average_value, ..MetricValueStatus::default() };
            return Ok((proposal.replicas, format!("{name} resource"), value));
        }
        let wanted = target.average_utilization.unwrap_or_default();
        let proposal = replicas::by_utilization(current, wanted, resource, tolerance, of, metrics).map_err(said)?;
        let part = if container.is_empty() { "resource" } else { "container resource" };
        let value = MetricValueStatus {
            average_utilization: Some(proposal.utilization),
            average_value: Some(quantity(proposal.average, is_memory)),
            value: None,
        };
        Ok((proposal.replicas, format!("{name} {part} utilization (percentage of request)"), value))
    }

    async fn of_pods(&self, source: &PodsMetricSource) -> Result<Proposed, String> {
        let ScaleTarget { namespace, selector, pods, current, now, .. } = self.subject;
        let metric = &source.metric.name;
        let metrics =
            self.metrics.of_pods(namespace, selector, metric, &text_of(source.metric.selector.as_ref())).await;
        let metrics = metrics.map_err(|why| format!("unable to get metric {metric}: {why}"))?;
        let wanted = source.target.average_value.as_ref().map_or(0, thousandths);
        let of = Pods { pods, now };
        let proposal = replicas::by_average(current, wanted, None, self.tolerance(), of, metrics)?;
        let average_value = Some(quantity(proposal.average, false));
        let value = MetricValueStatus { average_value, ..MetricValueStatus::default() };
        Ok((proposal.replicas, format!("pods metric {metric}"), value))
    }

    async fn of_object(&self, source: &ObjectMetricSource) -> Result<Proposed, Failure> {
        const REASON: &str = "FailedGetObjectMetric";
        let ScaleTarget { namespace, pods, current, present, now, .. } = self.subject;
        let ObjectMetricSource { described_object: object, metric: MetricIdentifier { name, selector }, target } =
            source;
        let failure = |said: String, error: String| Failure {
            reason: REASON,
            said,
            error: format!("failed to get object metric value: {error}"),
        };
        let is_value = target.type_ == "Value" && target.value.is_some();
        let is_average = target.type_ == "AverageValue" && target.average_value.is_some();
        if !is_value && !is_average {
            let why = "invalid object metric source: neither a value target nor an average value target was set";
            return Err(failure(why.to_owned(), why.to_owned()));
        }
        let wrapped = |why: String| {
            let error = if is_value { why.clone() } else { format!("failed to get {name} object metric: {why}") };
            failure(why, error)
        };
        let usage = self.metrics.of_object(namespace, object, name, &text_of(selector.as_ref())).await;
        let usage = usage.map_err(|why| {
            wrapped(format!("unable to get metric {name}: {why} on {} {namespace}/{}", object.kind, object.name))
        })?;
        if is_value {
            let ratio = usage as f64 / target.value.as_ref().map_or(0, thousandths) as f64;
            let replicas = replicas::by_ratio(current, ratio, self.tolerance(), Pods { pods, now }).map_err(wrapped)?;
            let value = MetricValueStatus { value: Some(quantity(usage, false)), ..MetricValueStatus::default() };
            return Ok((replicas, format!("{} metric {name}", object.kind), value));
        }
        let wanted = target.average_value.as_ref().map_or(0, thousandths);
        let (replicas, average) = replicas::by_value_per_replica(present, usage, wanted, self.tolerance());
        let value = MetricValueStatus { average_value: Some(quantity(average, false)), ..MetricValueStatus::default() };
        Ok((replicas, format!("external metric {name}({})", go_text(selector.as_ref())), value))
    }

    async fn of_external(&self, source: &ExternalMetricSource) -> Result<Proposed, Failure> {
        const REASON: &str = "FailedGetExternalMetric";
        let ScaleTarget { namespace, pods, current, present, now, .. } = self.subject;
        let ExternalMetricSource { metric: MetricIdentifier { name, selector }, target } = source;
        let failure = |said: String, error: &str| Failure {
            reason: REASON,
            error: format!("failed to get {name} external metric value: {error}"),
            said,
        };
        if target.average_value.is_none() && target.value.is_none() {
            let why = "invalid external metric source: neither a value target nor an average value target was set";
            return Err(failure(why.to_owned(), why));
        }
        let wrapped = |why: String| {
            let error = match target.average_value {
                Some(_) => format!("failed to get {name} external metric: {why}"),
                None => format!("failed to get external metric {name}: {why}"),
            };
            failure(why, &error)
        };
        let printed = go_text(selector.as_ref());
        let values = self.metrics.external(namespace, name, &text_of(selector.as_ref())).await;
        let values = values
            .map_err(|why| wrapped(format!("unable to get external metric {namespace}/{name}/{printed}: {why}")))?;
        let usage = values.into_iter().fold(0, i64::saturating_add);
        let described = format!("external metric {name}({printed})");
        if let Some(wanted) = &target.average_value {
            let wanted = thousandths(wanted);
            let (replicas, average) = replicas::by_value_per_replica(present, usage, wanted, self.tolerance());
            let average_value = Some(quantity(average, false));
            return Ok((replicas, described, MetricValueStatus { average_value, ..MetricValueStatus::default() }));
        }
        let ratio = usage as f64 / target.value.as_ref().map_or(0, thousandths) as f64;
        let replicas = replicas::by_ratio(current, ratio, self.tolerance(), Pods { pods, now }).map_err(wrapped)?;
        let value = Some(quantity(usage, false));
        Ok((replicas, described, MetricValueStatus { value, ..MetricValueStatus::default() }))
    }

    fn tolerance(&self) -> Tolerance {
        let behavior = self.autoscaler.spec.behavior.as_ref();
        let of = |rules: Option<&HPAScalingRules>| {
            let text = rules.and_then(|rules| rules.tolerance.as_ref());
            text.and_then(|text| Quantity::parse(&text.0).ok()).map_or(TOLERANCE, Quantity::to_f64)
        };
        Tolerance {
            down: of(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
            up: of(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
        }
    }
}

fn thousandths(text: &Text) -> i64 {
    Quantity::parse(&text.0).map_or(0, milli)
}

/// A quantity of this many thousandths, in units of 1024 if it is memory and divides evenly.
fn quantity(thousandths: i64, is_memory: bool) -> Text {
    const KIBI: i64 = 1024 * 1000;
    let is_binary = is_memory && thousandths >= KIBI && thousandths % KIBI == 0;
    let text = if is_binary { format!("{}Ki", thousandths / KIBI) } else { format!("{thousandths}m") };
    Text(Quantity::canonical(&text).unwrap_or(text))
}

/// A selector as a parameter of a request.
fn text_of(selector: Option<&LabelSelector>) -> String {
    let selector = selector.and_then(|selector| Selector::try_from(selector.clone()).ok());
    selector.map(|selector| selector.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_written_in_the_shortest_form() {
        assert_eq!(quantity(2_500, false).0, "2500m");
        assert_eq!(quantity(3_000, false).0, "3");
        assert_eq!(quantity(3 * 1024 * 1024 * 1000, true).0, "3Mi");
        assert_eq!(quantity(5_000_000, true).0, "5k");
        assert_eq!(quantity(i64::MAX, false).0, "9223372036854775807m");
    }
}
