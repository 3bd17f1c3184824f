//! Scales targets by metrics: HorizontalPodAutoscalers.
//!
//! Follows kube-controller-manager's horizontal pod autoscaler. Every fifteen seconds, each autoscaler reads its target
//! through the subresource `scale` and the metrics (`metrics`), computes the desired number of replicas (`replicas`)
//! and how much of the change is allowed now (`history`), and writes the result into its status. Metrics come from APIs
//! that Kubernetes does not serve by itself; without them a target is still kept within its bounds.

mod evaluation;
mod history;
mod metrics;
mod replicas;
mod status;
mod target;

use crate::loops::scaling::horizontal_pod_autoscaler::evaluation::{Evaluation, ScaleTarget};
use crate::loops::scaling::horizontal_pod_autoscaler::history::{Bounds, History};
use crate::loops::scaling::horizontal_pod_autoscaler::metrics::MetricsClient;
use crate::loops::scaling::horizontal_pod_autoscaler::status::Status;
use crate::loops::scaling::horizontal_pod_autoscaler::target::{Target, Targets};
use crate::settings::Parts;
use crate::shared::pods::by_label::ByLabel;
use crate::shared::refusal;
use hashbrown::HashMap;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use steersman::conditions;
use steersman::events::{EventRecorder, EventType};
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, ReconcileError, Scope};
use steersman_machinery::selector::{Labels, Operator};
use tokio::time::Instant;

/// The name of the loop in logs, and the source of Events.
const NAME: &str = "horizontal-pod-autoscaler";

const WORKERS: usize = 5;
/// How often each autoscaler is evaluated. Changes of it wait for the next time.
const PERIOD: Duration = Duration::from_secs(15);

struct Context {
    client: Client,
    events: EventRecorder,
    autoscalers: Lister<HorizontalPodAutoscaler>,
    pods: ByLabel<Pod>,
    targets: Targets,
    metrics: MetricsClient,
    memories: Mutex<HashMap<ObjectKey, Memory>>,
    clock: fn() -> Timestamp,
}

/// The memory of an autoscaler. Bounded by the number of autoscalers.
struct Memory {
    /// When it is evaluated next.
    due: Instant,
    history: History,
    /// The selector of its target's Pods, once it is known.
    selector: Option<Arc<Labels>>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot read the autoscaler")]
    Read(#[from] LookupError),
}

impl ReconcileError for Error {}

/// The scaling due for a target.
struct Decision {
    replicas: i32,
    is_rescale: bool,
    reason: String,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let autoscalers = informers.informer::<HorizontalPodAutoscaler>(Scope::All);
    let context = Context {
        events: EventRecorder::new(client.clone(), NAME),
        autoscalers: autoscalers.lister(),
        pods: ByLabel::of(&informers.informer::<Pod>(Scope::All)),
        targets: Targets::new(client.clone()),
        metrics: MetricsClient { client: client.clone() },
        memories: Mutex::default(),
        clock: settings.clock,
        client,
    };
    manager.controller(Controller::of(&autoscalers, reconcile, context).name(NAME).workers(WORKERS))
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let Some(autoscaler) = cx.autoscalers.find(&key)? else {
        cx.memories.lock().remove(&key);
        return Ok(Action::AwaitChange);
    };
    let left = cx.with_memory(&key, |memory| memory.due.saturating_duration_since(Instant::now()));
    if !left.is_zero() {
        return Ok(Action::RequeueAfter(left));
    }
    cx.look(&key, &autoscaler).await;
    cx.with_memory(&key, |memory| memory.due = Instant::now() + PERIOD);
    Ok(Action::RequeueAfter(PERIOD))
}

impl Context {
    /// Gives access to an autoscaler's memory. A new autoscaler first waits for a period.
    fn with_memory<T>(&self, key: &ObjectKey, with: impl FnOnce(&mut Memory) -> T) -> T {
        let mut memories = self.memories.lock();
        let new = || Memory { due: Instant::now() + PERIOD, history: History::default(), selector: None };
        with(memories.entry(key.clone()).or_insert_with(new))
    }

    /// One evaluation of an autoscaler.
    async fn look(&self, key: &ObjectKey, autoscaler: &HorizontalPodAutoscaler) {
        let now = (self.clock)();
        let mut status = Status::of(autoscaler, now);
        let namespace = key.namespace().unwrap_or_default();
        let target = self.targets.get(namespace, &autoscaler.spec.scale_target_ref).await;
        let mut target = match target {
            Ok(target) => target,
            Err(why) => {
                self.warn(autoscaler, "FailedGetScale", &why);
                let message = format!("the HPA controller was unable to get the target's current scale: {why}");
                status.set("AbleToScale", conditions::Status::False, "FailedGetScale", &message);
                return self.write(key, autoscaler, status).await;
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        status.set("AbleToScale", conditions::Status::True, "SucceededGetScale", message);
        let current = target.replicas();
        self.with_memory(key, |memory| memory.history.begin(current, now));
        let Some(decision) = self.decide(key, autoscaler, &target, &mut status, now).await else {
            status.counted(current, None);
            return self.write(key, autoscaler, status).await;
        };
        let Decision { replicas, is_rescale, reason } = decision;
        if !is_rescale {
            status.counted(current, Some(current));
            return self.write(key, autoscaler, status).await;
        }
        if let Err(why) = self.targets.scale(&mut target, replicas).await {
            self.warn(autoscaler, "FailedRescale", &format!("New size: {replicas}; reason: {reason}; error: {why}"));
            let message = format!("the HPA controller was unable to update the target scale: {why}");
            status.set("AbleToScale", conditions::Status::False, "FailedUpdateScale", &message);
            status.counted(current, None);
            return self.write(key, autoscaler, status).await;
        }
        let message = format!("the HPA controller was able to update the target scale to {replicas}");
        status.set("AbleToScale", conditions::Status::True, "SucceededRescale", &message);
        let note = format!("New size: {replicas}; reason: {reason}");
        self.events.event(autoscaler, EventType::Normal, "SuccessfulRescale", &note);
        let behavior = autoscaler.spec.behavior.as_ref();
        self.with_memory(key, |memory| memory.history.scaled(current, replicas, behavior, now));
        status.remove("ScaledToZero");
        status.rescaled();
        status.counted(current, Some(replicas));
        self.write(key, autoscaler, status).await;
    }

    /// `None` if no metric yields a number.
    async fn decide(
        &self,
        key: &ObjectKey,
        autoscaler: &HorizontalPodAutoscaler,
        target: &Target,
        status: &mut Status,
        now: Timestamp,
    ) -> Option<Decision> {
        let spec = &autoscaler.spec;
        let bounds = Bounds { current: target.replicas(), min: spec.min_replicas.unwrap_or(1), max: spec.max_replicas };
        let rescale = |replicas, reason: &str| Some(Decision { replicas, is_rescale: true, reason: reason.to_owned() });
        if bounds.current == 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            status.set("ScalingActive", conditions::Status::False, "ScalingDisabled", message);
            status.remove("ScaledToZero");
            status.metrics(Vec::new());
            return Some(Decision { replicas: 0, is_rescale: false, reason: String::new() });
        }
        if bounds.current > bounds.max {
            status.metrics(Vec::new());
            return rescale(bounds.max, "Current number of replicas above Spec.MaxReplicas");
        }
        if bounds.current < bounds.min {
            status.metrics(Vec::new());
            return rescale(bounds.min, "Current number of replicas below Spec.MinReplicas");
        }
        let (wanted, metric) = self.evaluate(key, autoscaler, target, status, now).await?;
        let wanted = wanted.max(0);
        let behavior = spec.behavior.as_ref();
        let allowed = self.with_memory(key, |memory| memory.history.allow(wanted, bounds, behavior, now));
        status.set("AbleToScale", conditions::Status::True, allowed.able.0, allowed.able.1);
        let limited = if allowed.is_limited { conditions::Status::True } else { conditions::Status::False };
        status.set("ScalingLimited", limited, allowed.limited.0, allowed.limited.1);
        let reason = match wanted.cmp(&bounds.current) {
            std::cmp::Ordering::Less => "All metrics below target".to_owned(),
            std::cmp::Ordering::Equal => String::new(),
            std::cmp::Ordering::Greater => format!("{metric} above target"),
        };
        Some(Decision { replicas: allowed.replicas, is_rescale: allowed.replicas != bounds.current, reason })
    }

    /// The highest number of replicas that a metric wants, and the name of the metric.
    async fn evaluate(
        &self,
        key: &ObjectKey,
        autoscaler: &HorizontalPodAutoscaler,
        target: &Target,
        status: &mut Status,
        now: Timestamp,
    ) -> Option<(i32, String)> {
        status.metrics(Vec::new());
        let pods = match self.pods_of(key, target.selector()) {
            Ok(pods) => pods,
            Err(fault) => {
                if let Some(reason) = fault.event {
                    self.warn(autoscaler, reason, &fault.error);
                }
                status.set("ScalingActive", conditions::Status::False, fault.reason, &fault.message);
                self.warn(autoscaler, "FailedComputeMetricsReplicas", &fault.error);
                return None;
            }
        };
        let specs = autoscaler.spec.metrics.as_deref().unwrap_or_default();
        let evaluation = Evaluation {
            metrics: &self.metrics,
            autoscaler,
            subject: ScaleTarget {
                namespace: key.namespace().unwrap_or_default(),
                selector: target.selector(),
                pods: &pods,
                current: target.replicas(),
                present: target.present(),
                now,
            },
        };
        let (mut statuses, mut best) = (Vec::with_capacity(specs.len()), None::<(i32, String)>);
        let (mut n_failed, mut first_failure) = (0, None);
        for spec in specs {
            match evaluation.of(spec).await {
                Ok(found) => {
                    statuses.push(found.status);
                    if best.as_ref().is_none_or(|(most, _)| *most == 0 || found.replicas > *most) {
                        best = Some((found.replicas, found.name));
                    }
                }
                Err(failure) => {
                    self.warn(autoscaler, failure.reason, &failure.said);
                    statuses.push(Default::default());
                    n_failed += 1;
                    first_failure.get_or_insert(failure);
                }
            }
        }
        status.metrics(statuses);
        let most = best.as_ref().map_or(0, |(most, _)| *most);
        if let Some(failure) = first_failure.filter(|_| n_failed >= specs.len() || most < target.replicas()) {
            let message = format!("the HPA was unable to compute the replica count: {}", failure.said);
            status.set("ScalingActive", conditions::Status::False, failure.reason, &message);
            let error = format!(
                "invalid metrics ({n_failed} invalid out of {}), first error is: {}",
                specs.len(),
                failure.error
            );
            self.warn(autoscaler, "FailedComputeMetricsReplicas", &error);
            return None;
        }
        let (most, metric) = best.unwrap_or_default();
        let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
        status.set("ScalingActive", conditions::Status::True, "ValidMetricFound", &message);
        Some((most, metric))
    }

    /// The Pods of a target, unless another autoscaler has them as well.
    fn pods_of(&self, key: &ObjectKey, selector: &str) -> Result<Vec<Arc<Pod>>, SelectorFault> {
        if selector.is_empty() {
            return Err(SelectorFault {
                event: Some("SelectorRequired"),
                error: "selector is required".to_owned(),
                reason: "InvalidSelector",
                message: "the HPA target's scale is missing a selector".to_owned(),
            });
        }
        let parsed = Labels::parse(selector).map_err(|error| {
            let why = format!("couldn't convert selector into a corresponding internal selector object: {error}");
            SelectorFault {
                event: Some("InvalidSelector"),
                error: why.clone(),
                reason: "InvalidSelector",
                message: why,
            }
        })?;
        let parsed = Arc::new(parsed);
        self.with_memory(key, |memory| memory.selector = Some(Arc::clone(&parsed)));
        let namespace = key.namespace().unwrap_or_default();
        let selects = |selector: &Labels, labels: Option<&std::collections::BTreeMap<String, String>>| {
            selector.matches(|name| labels.and_then(|labels| labels.get(name)).map(String::as_str))
        };
        let is_selected = |metadata: &ObjectMeta| selects(&parsed, metadata.labels.as_ref());
        let positive = parsed.requirements().iter().find_map(|one| match &one.operator {
            Operator::In(values) => Some((&*one.key, &**values)),
            _ => None,
        });
        let found = positive.and_then(|label| self.pods.with_any(namespace, label, is_selected).ok());
        let pods = found.unwrap_or_else(|| self.pods.in_namespace(namespace, is_selected));
        let mut sharing: Vec<ObjectKey> = Vec::new();
        for (other, memory) in &*self.memories.lock() {
            let Some(selector) = memory.selector.as_ref().filter(|_| other.namespace() == Some(namespace)) else {
                continue;
            };
            if pods.iter().any(|pod| selects(selector, pod.metadata.labels.as_ref())) {
                sharing.push(other.clone());
            }
        }
        if sharing.len() > 1 {
            sharing.sort();
            let names: Vec<String> = sharing.iter().map(|other| format!("{{{} {namespace}}}", other.name())).collect();
            let names = names.join(" ");
            let why = format!("pods by selector {selector} are controlled by multiple HPAs: [{names}]");
            let reason = "AmbiguousSelector";
            return Err(SelectorFault { event: Some(reason), error: why.clone(), reason, message: why });
        }
        Ok(pods)
    }

    fn warn(&self, autoscaler: &HorizontalPodAutoscaler, reason: &str, note: &str) {
        self.events.event(autoscaler, EventType::Warning, reason, note);
    }

    /// Writes the status if it differs. After a conflict, the next evaluation writes it.
    async fn write(&self, key: &ObjectKey, autoscaler: &HorizontalPodAutoscaler, status: Status) {
        let Some(new) = status.differs(autoscaler) else { return };
        let api = Api::<HorizontalPodAutoscaler>::namespaced(self.client.clone(), key.namespace().unwrap_or_default());
        if let Err(refused) = refusal::replace_status(&api, &new).await {
            self.warn(autoscaler, "FailedUpdateStatus", &refusal::message(refused.error()));
        }
    }
}

/// Why the Pods of a target cannot be determined.
struct SelectorFault {
    event: Option<&'static str>,
    error: String,
    reason: &'static str,
    message: String,
}
