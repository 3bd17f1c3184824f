//! `pods/eviction`: deletes a pod if its disruption budget allows it. Follows kubernetes'
//! `pkg/registry/core/pod/storage/eviction.go`.

use crate::http::endpoint::connect::Reply;
use crate::http::endpoint::context::Context;
use crate::shared::compute::text_bytes;
use crate::shared::conversion;
use crate::shared::operation::{Operation, ResourceAttributes, seconds};
use crate::shared::request::options::Delete;
use crate::shared::request::payload::Payload;
use crate::shared::request::query::Query;
use crate::shared::status::Failure;
use crate::write::registry::{self, Change, Outcome};
use futures::future::BoxFuture;
use serde_json::json;
use steersman_kinds::builtin;
use steersman_kinds::catalog::{Served, Verb};
use steersman_machinery::status::Cause;
use steersman_machinery::value::{at, object_at, remove_at, set_at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Revision, Value};
use steersman_storage::{At, Page, Scope};

/// The most pods in a budget's `disruptedPods`. Beyond that, evictions are refused until its controller has removed
/// some.
const DISRUPTED_MAX: usize = 2000;
/// The most attempts to delete a pod that its budget does not count, if it keeps changing. The same as upstream.
const ATTEMPTS_MAX: usize = 20;
/// The Retry-After for a budget that its controller has not processed yet.
const RETRY_SECONDS: u32 = 10;

/// The verdict on the eviction of a pod.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Judged {
    /// Its budget allows it, or it has none.
    Granted,
    /// It may be deleted at the judged version. If it changes first, it is judged again: it may count by then.
    NotCounted,
    /// It has ended or is ending, so its deletion disrupts nothing.
    Over,
    /// Like `NotCounted`, but its budget was consulted, and on a conflict the client is told to retry.
    Unready { budget: String },
}

pub(super) fn evict<'a>(cx: &'a mut Context<'_>, mut eviction: Value) -> BoxFuture<'a, Result<Reply, Failure>> {
    Box::pin(async move {
        let sent = remove_at(&mut eviction, &["deleteOptions"]).filter(|options| !options.is_null());
        let options = Delete::parse(&Query::default(), sent)?;
        cx.operation.options.is_dry_run |= options.is_dry_run();
        let mut attempts_left = ATTEMPTS_MAX;
        loop {
            let pod = cx.current().await?;
            cx.operation.load.expect(text_bytes(pod.json())).await;
            conversion::charge_reading(&pod, &cx.operation.budget)?;
            let pod = conversion::parse(&pod)?;
            let judged = judge(cx, &pod).await?;
            attempts_left -= 1;
            match (remove(cx, &options, &pod, &judged).await, judged) {
                (Ok(()), _) => return Ok(Reply::Success),
                (Err(failure), _) if failure.code() != 409 || is_version_given(&options) => return Err(failure),
                (Err(_), Judged::NotCounted | Judged::Over) if 0 < attempts_left => {}
                (Err(_), Judged::Unready { budget }) => return Err(still_processed(&budget)),
                (Err(failure), _) => return Err(failure),
            }
        }
    })
}

/// Whether the client has given the version at which the pod may be deleted. Then it is not judged again at another
/// one.
fn is_version_given(options: &Delete) -> bool {
    options.preconditions.resource_version.is_some()
}

/// Judges whether a pod may be deleted. For one that counts, a disruption is taken from its budget.
async fn judge(cx: &Context<'_>, pod: &Value) -> Result<Judged, Failure> {
    let is_going = at(pod, &["metadata", "deletionTimestamp"]).is_some();
    match str_at(pod, &["status", "phase"]).unwrap_or_default() {
        "Failed" | "Succeeded" => Ok(Judged::Over),
        _ if is_going => Ok(Judged::Over),
        // It can become ready at any time.
        "Pending" => Ok(Judged::NotCounted),
        _ => ask_budget(cx, pod).await,
    }
}

/// Writes the reason for its end into the pod, and deletes it.
async fn remove(cx: &Context<'_>, options: &Delete, pod: &Value, judged: &Judged) -> Result<(), Failure> {
    let mut options = options.clone();
    let text = |field| str_at(pod, &["metadata", field]).unwrap_or_default().to_owned();
    // The uid makes sure that it is the judged pod, and not one created under its name since.
    options.preconditions.uid.get_or_insert_with(|| text("uid"));
    if matches!(judged, Judged::NotCounted | Judged::Unready { .. }) {
        options.preconditions.resource_version.get_or_insert_with(|| text("resourceVersion"));
    }
    let key = cx.operation.key(cx.operation.name());
    if !cx.operation.options.is_dry_run {
        let version = add_condition(cx, &key, &options).await?;
        if options.preconditions.resource_version.is_some() {
            options.preconditions.resource_version = Some(version.to_string());
        }
    }
    let mut deletion = cx.operation.on(Verb::Delete, &key);
    // Admission has judged the eviction, and does not judge the deletion as well.
    deletion.is_admitted = true;
    registry::write(cx.state, &mut deletion, &Change::Delete(&options)).await.map(|_| ())
}

/// Sets the condition of a disrupted pod in its status, for controllers that tell a disruption from a failure, such as
/// Jobs. Returns the pod's new version.
async fn add_condition(cx: &Context<'_>, key: &ObjectKey, options: &Delete) -> Result<Revision, Failure> {
    let system = Operation::of_system(cx.operation.served, Verb::Update, cx.operation.now);
    let (mut update, on_pod) = (system.on(Verb::Update, key), system.on(Verb::Update, key));
    let now = seconds(cx.operation.now);
    let add = |pod: &mut Value| {
        let text = |field| str_at(pod, &["metadata", field]).unwrap_or_default();
        registry::check_preconditions(&on_pod, options, text("uid"), text("resourceVersion"))?;
        set_disrupted(pod, &now);
        Ok(())
    };
    let Outcome::Updated(Payload::Stored(pod)) = registry::write(cx.state, &mut update, &Change::Assign(&add)).await?
    else {
        return Err(Failure::internal("the condition of an evicted pod was not stored"));
    };
    Ok(pod.revision)
}

/// Sets the condition `DisruptionTarget`. If the pod already has it, with whatever reason, its time stays.
fn set_disrupted(pod: &mut Value, now: &str) {
    const TYPE: &str = "DisruptionTarget";
    let Some(status) = object_at(pod, &["status"]) else { return };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if conditions.is_null() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let mut condition = json!({
        "type": TYPE, "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
    });
    match conditions.iter_mut().find(|one| str_at(one, &["type"]) == Some(TYPE)) {
        Some(before) => {
            for field in ["lastProbeTime", "lastTransitionTime"] {
                let is_kept = field == "lastProbeTime" || str_at(before, &["status"]) == Some("True");
                if let Some(time) = before.get(field).filter(|_| is_kept) {
                    condition[field] = time.clone();
                }
            }
            *before = condition;
        }
        None => conditions.push(condition),
    }
}

/// Takes one disruption from the budget of the pod, if it has a budget.
async fn ask_budget(cx: &Context<'_>, pod: &Value) -> Result<Judged, Failure> {
    let catalog = cx.state.catalog();
    let Some(served) = catalog.find("policy", "v1", "poddisruptionbudgets") else { return Ok(Judged::Granted) };
    let budgets = budgets(cx, served, pod).await?;
    let (key, budget) = match budgets.as_slice() {
        [] => return Ok(Judged::Granted),
        [one] => one,
        _ => {
            let message =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Failure::unsupported_state(message));
        }
    };
    if !builtin::pods::pod::is_ready(pod) && allows_unready(budget) {
        return Ok(Judged::Unready { budget: key.name.to_string() });
    }
    let attributes = ResourceAttributes { subresource: Some("status"), ..ResourceAttributes::of(served, Verb::Update) };
    let budgets = Operation { attributes, ..Operation::of_system(served, Verb::Update, cx.operation.now) };
    let mut update = budgets.on(Verb::Update, key);
    update.options.is_dry_run = cx.operation.options.is_dry_run;
    let (name, now) = (cx.operation.name(), seconds(cx.operation.now));
    let take = |budget: &mut Value| take_disruption(budget, name, &now);
    registry::write(cx.state, &mut update, &Change::Assign(&take)).await.map(|_| Judged::Granted)
}

/// The budgets whose selector a pod matches.
async fn budgets(cx: &Context<'_>, served: &Served, pod: &Value) -> Result<Vec<(ObjectKey, Value)>, Failure> {
    let scope = Scope::Namespace(cx.operation.namespace().unwrap_or_default().into());
    let found = cx.state.store.list(&served.resource.storage, &scope, At::Latest, Page::ALL);
    let found = found.map_err(|error| Failure::of_read(&error))?.objects;
    cx.operation.load.expect_work(found.iter().map(|object| text_bytes(object.json())).sum()).await;
    let mut budgets = Vec::new();
    for object in found {
        conversion::charge_reading(&object, &cx.operation.budget)?;
        let budget = conversion::parse(&object)?;
        if builtin::workloads::disruption_budget::is_about(&budget, pod) {
            budgets.push((object.key.clone(), budget));
        }
    }
    Ok(budgets)
}

/// Whether pods that are not ready may be evicted without being counted.
fn allows_unready(budget: &Value) -> bool {
    match str_at(budget, &["spec", "unhealthyPodEvictionPolicy"]) {
        Some("AlwaysAllow") => true,
        _ => {
            let (healthy, wanted) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
            healthy >= wanted && wanted > 0
        }
    }
}

/// Counts one disruption of a budget for a pod, or fails if none is left.
fn take_disruption(budget: &mut Value, pod: &str, now: &str) -> Result<(), Failure> {
    let name = str_at(budget, &["metadata", "name"]).unwrap_or_default().to_owned();
    let generation = at(budget, &["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0);
    let refused = |why: &str| Failure::forbidden(&GroupResource::new("policy", "poddisruptionbudgets"), &name, why);
    if number(budget, "observedGeneration") < generation {
        return Err(still_processed(&name));
    }
    let allowed = number(budget, "disruptionsAllowed");
    let disrupted = at(budget, &["status", "disruptedPods"]).and_then(Value::as_object).map_or(0, |pods| pods.len());
    if allowed < 0 {
        return Err(refused("pdb disruptions allowed is negative"));
    }
    if disrupted > DISRUPTED_MAX {
        return Err(refused("DisruptedPods map too big - too many evictions not confirmed by PDB controller"));
    }
    if allowed == 0 {
        let (healthy, wanted) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
        let why = if healthy <= wanted {
            format!("The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently")
        } else {
            format!("The disruption budget {name} does not allow evicting pods currently")
        };
        return Err(not_now(why, None));
    }
    set_at(budget, &["status", "disruptionsAllowed"], (allowed - 1).into());
    if allowed == 1 {
        set_exhausted(budget, generation, now);
    }
    if let Some(pods) = object_at(budget, &["status", "disruptedPods"]) {
        pods.insert(pod.to_owned(), now.into());
    }
    Ok(())
}

/// Sets the condition that no further disruption is allowed.
fn set_exhausted(budget: &mut Value, generation: i64, now: &str) {
    let Some(status) = object_at(budget, &["status"]) else { return };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    let before = conditions.iter().position(|one| str_at(one, &["type"]) == Some("DisruptionAllowed"));
    let since = match before.map(|at| &conditions[at]).filter(|one| str_at(one, &["status"]) == Some("False")) {
        Some(condition) => condition["lastTransitionTime"].clone(),
        None => now.into(),
    };
    let condition = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "observedGeneration": generation, "lastTransitionTime": since,
    });
    match before {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

/// The 429 of a budget whose pods its controller has not counted yet.
fn still_processed(budget: &str) -> Failure {
    not_now(format!("The disruption budget {budget} is still being processed by the server."), Some(RETRY_SECONDS))
}

/// The 429 of a budget.
fn not_now(why: String, retry_after_seconds: Option<u32>) -> Failure {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut failure = Failure::too_many_requests(message, 0);
    if let Some(details) = &mut failure.status.details {
        details.retry_after_seconds = retry_after_seconds;
        details.causes.push(Cause { reason: "DisruptionBudget".to_owned(), message: why, field: String::new() });
    }
    failure
}

fn number(budget: &Value, key: &str) -> i64 {
    at(budget, &["status", key]).and_then(Value::as_i64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(allowed: i64) -> Value {
        json!({
            "metadata": {"name": "b", "generation": 2},
            "status": {"observedGeneration": 2, "currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": allowed},
        })
    }

    fn why(failure: &Failure) -> &str {
        &failure.status.details.as_ref().unwrap().causes[0].message
    }

    #[test]
    fn a_budget_gives_what_it_has_and_remembers_to_whom() {
        let mut budget = budget(1);
        take_disruption(&mut budget, "p", "now").unwrap();
        assert_eq!(budget["status"]["disruptionsAllowed"], 0);
        assert_eq!(budget["status"]["disruptedPods"], json!({"p": "now"}));
        assert_eq!(budget["status"]["conditions"][0]["reason"], "InsufficientPods");
        let refused = take_disruption(&mut budget, "q", "now").unwrap_err();
        assert_eq!((refused.code(), refused.retry_after()), (429, None));
        assert_eq!(why(&refused), "The disruption budget b does not allow evicting pods currently");
    }

    #[test]
    fn a_budget_that_was_not_counted_yet_says_when_to_come_again() {
        let mut budget = budget(1);
        budget["metadata"]["generation"] = json!(3);
        let refused = take_disruption(&mut budget, "p", "now").unwrap_err();
        assert_eq!(refused.status.details.as_ref().unwrap().retry_after_seconds, Some(10));
        assert_eq!(why(&refused), "The disruption budget b is still being processed by the server.");
    }
}
