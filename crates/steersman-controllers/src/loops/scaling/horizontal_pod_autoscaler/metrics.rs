//! A client of the metrics APIs: `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io`.
//!
//! None of them is part of Kubernetes itself. If one is not served, the error becomes the message of the autoscaler's
//! condition.

use crate::loops::scaling::horizontal_pod_autoscaler::replicas::{Metric, Metrics, milli};
use crate::shared::discovery;
use crate::shared::refusal;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use kube::Client;
use serde_json::Value;
use std::fmt::Write as _;
use std::time::Duration;
use steersman_machinery::duration;
use steersman_machinery::quantity::Quantity;

const CUSTOM: &str = "custom.metrics.k8s.io";
const CUSTOM_VERSIONS: [&str; 2] = ["custom.metrics.k8s.io/v1beta2", "custom.metrics.k8s.io/v1beta1"];
const WINDOW: Duration = Duration::from_mins(1);

pub(crate) struct MetricsClient {
    pub(crate) client: Client,
}

impl MetricsClient {
    /// The usage of a resource by Pods, or by one container of each if it is named.
    pub(crate) async fn of_resource(
        &self,
        namespace: &str,
        selector: &str,
        resource: &str,
        container: &str,
    ) -> Result<Metrics, String> {
        let path =
            format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?labelSelector={}", encoded(selector));
        let list = self.get(path, "get pods.metrics.k8s.io").await;
        let list = list.map_err(|why| format!("unable to fetch metrics from resource metrics API: {why}"))?;
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        if items.is_empty() {
            return Err("no metrics returned from resource metrics API".to_owned());
        }
        let usage = |one: &Value| amount(&one["usage"][resource]);
        let of_item = |item: &Value| -> Option<(String, Metric)> {
            let containers = item["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
            let value = if container.is_empty() {
                let parts: Option<Vec<i64>> = containers.iter().map(usage).collect();
                let parts = parts.filter(|parts| !parts.is_empty())?;
                parts.into_iter().fold(0, i64::saturating_add)
            } else {
                usage(containers.iter().find(|one| one["name"] == container)?)?
            };
            let window = item["window"].as_str().and_then(duration::parse_unsigned).unwrap_or_default();
            Some((item["metadata"]["name"].as_str()?.to_owned(), Metric { value, at: time(item), window }))
        };
        Ok(items.iter().filter_map(of_item).collect())
    }

    /// A custom metric of Pods.
    pub(crate) async fn of_pods(
        &self,
        namespace: &str,
        selector: &str,
        metric: &str,
        metric_selector: &str,
    ) -> Result<Metrics, String> {
        let said = |why| format!("unable to fetch metrics from custom metrics API: {why}");
        let version = self.custom_version().await.map_err(said)?;
        let path = format!(
            "/apis/{version}/namespaces/{namespace}/pods/*/{metric}?labelSelector={}&metricLabelSelector={}",
            encoded(selector),
            encoded(metric_selector)
        );
        let list = self.get(path, &format!("get pods.{CUSTOM} *")).await.map_err(said)?;
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        if items.is_empty() {
            return Err("no metrics returned from custom metrics API".to_owned());
        }
        let of_item = |item: &Value| -> Option<(String, Metric)> {
            let window = item["windowSeconds"].as_u64().map_or(WINDOW, Duration::from_secs);
            let name = item["describedObject"]["name"].as_str()?.to_owned();
            Some((name, Metric { value: amount(&item["value"])?, at: time(item), window }))
        };
        Ok(items.iter().filter_map(of_item).collect())
    }

    /// A metric of one object, in thousandths.
    pub(crate) async fn of_object(
        &self,
        namespace: &str,
        object: &CrossVersionObjectReference,
        metric: &str,
        metric_selector: &str,
    ) -> Result<i64, String> {
        let said = |why: String| format!("unable to fetch metrics from custom metrics API: {why}");
        let version = self.custom_version().await.map_err(said)?;
        let api_version = object.api_version.as_deref().unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let query = format!("metricLabelSelector={}", encoded(metric_selector));
        let path = if object.kind == "Namespace" && group.is_empty() {
            format!("/apis/{version}/namespaces/{namespace}/metrics/{metric}?{query}")
        } else {
            let of_kind = |one: &k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource| {
                one.kind == object.kind && !one.name.contains('/')
            };
            let found = discovery::find(&self.client, group, of_kind).await;
            let found = found.map_err(|error| said(refusal::message(&error)))?.ok_or_else(|| {
                let no_match = format!("no matches for kind {:?} in group {group:?}", object.kind);
                let kind = if group.is_empty() { object.kind.clone() } else { format!("{}.{group}", object.kind) };
                said(format!("unable to map kind {kind} to resource: {no_match}"))
            })?;
            let plural = found.resource.name;
            let resource = if group.is_empty() { plural } else { format!("{plural}.{group}") };
            format!("/apis/{version}/namespaces/{namespace}/{resource}/{}/{metric}?{query}", object.name)
        };
        let list = self.get(path, &format!("get {}.{CUSTOM} {}", object.kind.to_lowercase(), object.name)).await;
        let list = list.map_err(said)?;
        match list["items"].as_array().map(Vec::as_slice).unwrap_or_default() {
            [only] => amount(&only["value"]).ok_or_else(|| said("the value is no quantity".to_owned())),
            items => {
                let n = items.len();
                Err(said(format!("the custom metrics API server returned {n} results when we asked for exactly one")))
            }
        }
    }

    /// The values of an external metric, in thousandths.
    pub(crate) async fn external(&self, namespace: &str, metric: &str, selector: &str) -> Result<Vec<i64>, String> {
        let path = format!(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{metric}?labelSelector={}",
            encoded(selector)
        );
        let list = self.get(path, &format!("get {metric}.external.metrics.k8s.io")).await;
        let list = list.map_err(|why| format!("unable to fetch metrics from external metrics API: {why}"))?;
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        if items.is_empty() {
            return Err("no metrics returned from external metrics API".to_owned());
        }
        Ok(items.iter().filter_map(|item| amount(&item["value"])).collect())
    }

    async fn custom_version(&self) -> Result<&'static str, String> {
        let groups = self.client.list_api_groups().await.map_err(|error| refusal::message(&error))?;
        let Some(group) = groups.groups.into_iter().find(|group| group.name == CUSTOM) else {
            return Err(format!("no custom metrics API ({CUSTOM}) registered"));
        };
        let preferred = group.preferred_version.into_iter().chain(group.versions);
        let mut known =
            preferred.filter_map(|version| CUSTOM_VERSIONS.into_iter().find(|known| *known == version.group_version));
        known.next().ok_or_else(|| "no known available metric versions found".to_owned())
    }

    /// Sends a GET request. `what` is the name of the request in the errors of upstream's client.
    async fn get(&self, path: String, what: &str) -> Result<Value, String> {
        let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        self.client.request(request).await.map_err(|error| {
            let kube::Error::Api(status) = &error else { return refusal::message(&error) };
            let names_nothing = status.details.as_ref().is_none_or(|details| details.name.is_empty());
            match status.code {
                404 if names_nothing => format!("the server could not find the requested resource ({what})"),
                503 => format!("the server is currently unable to handle the request ({what})"),
                _ => status.message.clone(),
            }
        })
    }
}

fn amount(value: &Value) -> Option<i64> {
    let text =
        value.as_str().map_or_else(|| value.is_number().then(|| value.to_string()), |text| Some(text.to_owned()));
    Quantity::parse(&text?).ok().map(milli)
}

fn time(item: &Value) -> Timestamp {
    item["timestamp"].as_str().and_then(|text| text.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Encodes the value of a query parameter.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
