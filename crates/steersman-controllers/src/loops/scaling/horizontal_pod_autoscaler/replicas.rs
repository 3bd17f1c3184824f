//! Calculates the number of replicas from a metric.
//!
//! Follows upstream's `replica_calculator.go`: Pods that are about to end do not count, Pods that are not ready yet
//! count only against scaling up, and Pods without a metric count against the direction of the others. Sums are wide
//! enough that no metric makes them overflow.

use crate::shared::pods;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::pod::totals;
use steersman_machinery::quantity::Quantity;

/// How long after its start the CPU usage of a Pod is not trusted unless the Pod has been ready for a whole window.
const CPU_INITIALIZATION: Duration = Duration::from_mins(5);
/// How long after its start a Pod may become unready for the first time and still count as never ready.
const INITIAL_READINESS: Duration = Duration::from_secs(30);

/// A metric of a Pod, in thousandths.
#[derive(Clone, Debug)]
pub(crate) struct Metric {
    pub(crate) value: i64,
    pub(crate) at: Timestamp,
    pub(crate) window: Duration,
}

/// Metrics by the names of Pods.
pub(crate) type Metrics = BTreeMap<String, Metric>;

/// The deviation of usage from the target within which nothing is scaled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    pub(crate) down: f64,
    pub(crate) up: f64,
}

/// The Pods of a target, and the current time.
#[derive(Clone, Copy)]
pub(crate) struct Pods<'a> {
    pub(crate) pods: &'a [Arc<Pod>],
    pub(crate) now: Timestamp,
}

/// The resource that is measured.
#[derive(Clone, Copy)]
pub(crate) struct Resource<'a> {
    pub(crate) name: &'a str,
    /// The name of a container; empty for the whole Pod.
    pub(crate) container: &'a str,
}

/// A number of replicas, and the usage that it is based on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Proposal {
    pub(crate) replicas: i32,
    /// The usage in percent of the requests; zero for usage that is not relative to requests.
    pub(crate) utilization: i32,
    /// The average usage of a Pod, in thousandths.
    pub(crate) average: i64,
}

/// Pods by whether their metrics can be used.
#[derive(Default)]
struct Groups {
    n_ready: usize,
    missing: BTreeSet<String>,
    unready: BTreeSet<String>,
}

/// Usage in relation to its target.
struct Usage {
    ratio: f64,
    utilization: i32,
    average: i64,
}

// === impl Tolerance ===

impl Tolerance {
    fn allows(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// The number of replicas for a target utilization, in percent of the Pods' requests.
pub(crate) fn by_utilization(
    current: i32,
    target: i32,
    resource: Resource<'_>,
    tolerance: Tolerance,
    of: Pods<'_>,
    metrics: Metrics,
) -> Result<Proposal, String> {
    let requests = |pods: Pods<'_>| -> Result<BTreeMap<String, i64>, String> {
        let request = |pod: &Arc<Pod>| Ok((pod_name(pod).to_owned(), request(pod, resource)?));
        pods.pods.iter().map(request).collect()
    };
    let (mut metrics, groups) = trusted(of, metrics, Some(resource))?;
    let requests = requests(of)?;
    let usage = |metrics: &Metrics| {
        let known = metrics.iter().filter_map(|(pod, metric)| Some((i128::from(metric.value), *requests.get(pod)?)));
        let (mut used, mut requested, mut n) = (0_i128, 0_i128, 0_i128);
        for (value, request) in known {
            used += value;
            requested += i128::from(request);
            n += 1;
        }
        if requested == 0 {
            return Err("no metrics returned matched known pods".to_owned());
        }
        let utilization = to_i32(used * 100 / requested);
        Ok(Usage { ratio: f64::from(utilization) / f64::from(target), utilization, average: to_i64(used / n) })
    };
    let missing = |pod: &str| {
        let request = requests.get(pod).copied().unwrap_or_default();
        to_i64(i128::from(request) * i128::from(target.max(100)) / 100)
    };
    propose(current, tolerance, &mut metrics, &groups, usage, missing)
}

/// The number of replicas for a target average, in thousandths: of the usage of a resource, or of a metric of the Pods.
pub(crate) fn by_average(
    current: i32,
    target: i64,
    resource: Option<Resource<'_>>,
    tolerance: Tolerance,
    of: Pods<'_>,
    metrics: Metrics,
) -> Result<Proposal, String> {
    let (mut metrics, groups) = trusted(of, metrics, resource)?;
    let usage = |metrics: &Metrics| {
        let used: i128 = metrics.values().map(|metric| i128::from(metric.value)).sum();
        let average = to_i64(used / i128::try_from(metrics.len().max(1)).unwrap_or(i128::MAX));
        Ok(Usage { ratio: average as f64 / target as f64, utilization: 0, average })
    };
    propose(current, tolerance, &mut metrics, &groups, usage, |_| target)
}

/// The number of replicas from the ratio of one value for all Pods to its target.
pub(crate) fn by_ratio(current: i32, ratio: f64, tolerance: Tolerance, of: Pods<'_>) -> Result<i32, String> {
    if current == 0 {
        return Ok(ceil(ratio));
    }
    if tolerance.allows(ratio) {
        return Ok(current);
    }
    if of.pods.is_empty() {
        let why = "no pods returned by selector while calculating replica count";
        return Err(format!("unable to calculate ready pods: {why}"));
    }
    let is_counted = |pod: &&Arc<Pod>| pods::phase(pod) == "Running" && pods::is_ready(pod);
    Ok(ceil(ratio * of.pods.iter().filter(is_counted).count() as f64))
}

/// The number of replicas for a value that is divided among them, and the average value per replica.
pub(crate) fn by_value_per_replica(replicas: i32, value: i64, target: i64, tolerance: Tolerance) -> (i32, i64) {
    let ratio = value as f64 / (target as f64 * f64::from(replicas));
    let proposal = if tolerance.allows(ratio) { replicas } else { ceil(value as f64 / target as f64) };
    // A float conversion saturates at the greatest integer.
    let average = if value == i64::MAX { value } else { (value as f64 / f64::from(replicas)).ceil() as i64 };
    (proposal, average)
}

fn propose(
    current: i32,
    tolerance: Tolerance,
    metrics: &mut Metrics,
    groups: &Groups,
    usage: impl Fn(&Metrics) -> Result<Usage, String>,
    of_missing: impl Fn(&str) -> i64,
) -> Result<Proposal, String> {
    let Usage { ratio, utilization, average } = usage(metrics)?;
    let proposal = |replicas| Ok(Proposal { replicas, utilization, average });
    let grows_with_unready = !groups.unready.is_empty() && ratio > 1.0;
    if !grows_with_unready && groups.missing.is_empty() {
        let is_fine = tolerance.allows(ratio);
        return proposal(if is_fine { current } else { ceil(ratio * groups.n_ready as f64) });
    }
    let metric = |value| Metric { value, at: Timestamp::UNIX_EPOCH, window: Duration::ZERO };
    for pod in &groups.missing {
        if ratio < 1.0 {
            metrics.insert(pod.clone(), metric(of_missing(pod)));
        } else if ratio > 1.0 {
            metrics.insert(pod.clone(), metric(0));
        }
    }
    if grows_with_unready {
        metrics.extend(groups.unready.iter().map(|pod| (pod.clone(), metric(0))));
    }
    let new = usage(metrics)?.ratio;
    let has_turned = (ratio < 1.0 && new > 1.0) || (ratio > 1.0 && new < 1.0);
    if tolerance.allows(new) || has_turned {
        return proposal(current);
    }
    let replicas = ceil(new * metrics.len() as f64);
    let is_other_way = (new < 1.0 && replicas > current) || (new > 1.0 && replicas < current);
    proposal(if is_other_way { current } else { replicas })
}

/// The metrics that count, and the other Pods in groups.
fn trusted(of: Pods<'_>, mut metrics: Metrics, resource: Option<Resource<'_>>) -> Result<(Metrics, Groups), String> {
    if of.pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_owned());
    }
    let is_cpu = resource.is_some_and(|resource| resource.name == "cpu");
    let mut groups = Groups::default();
    for pod in of.pods {
        let name = pod_name(pod);
        if pods::is_terminating(pod) || pods::phase(pod) == "Failed" {
            metrics.remove(name);
            continue;
        }
        let is_unready = match metrics.get(name) {
            _ if pods::phase(pod) == "Pending" => true,
            None => {
                groups.missing.insert(name.to_owned());
                continue;
            }
            Some(metric) => is_cpu && is_starting(pod, metric, of.now),
        };
        if is_unready {
            metrics.remove(name);
            groups.unready.insert(name.to_owned());
        } else {
            groups.n_ready += 1;
        }
    }
    if metrics.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    Ok((metrics, groups))
}

/// Whether the CPU usage of a Pod still reflects its start.
fn is_starting(pod: &Pod, metric: &Metric, now: Timestamp) -> bool {
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    let Some((ready, started)) = pods::condition(pod, "Ready").zip(started) else { return true };
    let is_unready = ready.status == "False";
    let changed = ready.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
    if after(started, CPU_INITIALIZATION) > now {
        return is_unready || metric.at < after(changed, metric.window);
    }
    is_unready && after(started, INITIAL_READINESS) > changed
}

fn after(time: Timestamp, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    time.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// The request of a Pod, in thousandths.
fn request(pod: &Pod, Resource { name, container }: Resource<'_>) -> Result<i64, String> {
    let pod_name = pod_name(pod);
    let Some(spec) = &pod.spec else { return Ok(0) };
    let whole = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let is_whole = whole.is_some_and(|requests| {
        requests.keys().any(|name| matches!(&**name, "cpu" | "memory") || name.starts_with("hugepages-"))
    });
    if is_whole && container.is_empty() {
        let value = serde_json::to_value(pod).unwrap_or_else(|_| json!({}));
        let requests = totals::requests(&value);
        let request = requests.get(name).copied().map(milli);
        return request.ok_or_else(|| format!("missing pod-level request for {name} in Pod {pod_name}"));
    }
    let sidecars = spec.init_containers.iter().flatten().filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let mut sum = 0_i64;
    for one in spec.containers.iter().chain(sidecars) {
        if !container.is_empty() && one.name != container {
            continue;
        }
        let Some(request) = requested(one, name) else {
            return Err(format!("missing request for {name} in container {} of Pod {pod_name}", one.name));
        };
        sum = sum.saturating_add(request);
        if one.name == container {
            return Ok(sum);
        }
    }
    if container.is_empty() { Ok(sum) } else { Err(format!("container {container} not found in Pod {pod_name}")) }
}

fn requested(container: &Container, resource: &str) -> Option<i64> {
    let text = container.resources.as_ref()?.requests.as_ref()?.get(resource)?;
    Quantity::parse(&text.0).ok().map(milli)
}

/// An amount in thousandths, rounded up.
pub(crate) fn milli(amount: Quantity) -> i64 {
    const NANOS: i128 = 1_000_000;
    let nanos = amount.nanos();
    to_i64(nanos.div_euclid(NANOS) + i128::from(nanos.rem_euclid(NANOS) > 0))
}

/// The smallest number of replicas that is not below the argument.
fn ceil(replicas: f64) -> i32 {
    // The conversion saturates, and turns NaN into 0.
    replicas.ceil() as i32
}

fn to_i32(number: i128) -> i32 {
    i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX })
}

fn to_i64(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

fn pod_name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
