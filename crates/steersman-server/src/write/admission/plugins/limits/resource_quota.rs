//! `ResourceQuota`: refuses writes that would exceed the quotas of their namespace, and counts the usage of accepted
//! ones at once. Follows apiserver's `admission/plugin/resourcequota`.
//!
//! A write is first compared with the cached quotas. Then its usage is added to the status of each matching quota, in a
//! separate write that checks again, so that two concurrent writes cannot both take the last room. The added usage is
//! recorded in the operation: a further attempt of the same write adds only the difference, and a write that fails
//! gives it back.

use crate::shared::conversion;
use crate::shared::operation::{Charge, Operation, ResourceAttributes};
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, Unfinished, name_of, objects_of};
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use steersman_kinds::at_rest;
use steersman_machinery::pod::totals;
use steersman_machinery::quantity::Quantity;
use steersman_machinery::quota::{self, Amounts, CountedObject};
use steersman_machinery::value::{at, object_at, remove_at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Value};
use steersman_storage::WriteError;

/// The maximum number of attempts to update a quota that is updated concurrently.
const ATTEMPTS_MAX: usize = 100;

#[derive(Debug)]
pub(crate) struct ResourceQuota;

/// Why a write is refused; the text follows `pods "x" is forbidden: `.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}")]
    Exceeded { quota: String, requested: String, used: String, limited: String },
    #[error("status unknown for quota: {quota}, resources: {resources}")]
    Unknown { quota: String, resources: String },
    #[error("failed quota: {quota}: {why}")]
    Unspecified { quota: String, why: String },
}

/// Why no usage was counted.
enum NotCounted {
    Failed(Failure),
    Refused(Refusal),
}

impl Plugin for ResourceQuota {
    fn unfinished(&self) -> Unfinished {
        Unfinished::Growth
    }

    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        let is_whole = attributes.subresource.is_none();
        let is_resize = attributes.is_about("", "pods") && attributes.subresource == Some("resize");
        let is_write = matches!(action, Action::Create | Action::Update) && (is_whole || is_resize);
        phase == Phase::Validate && is_write && attributes.namespace.is_some()
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let Some(object) = new else { return Ok(()) };
            let Some(subject) = subject_of(&review.operation.attributes, review.action) else { return Ok(()) };
            let quotas = objects_of(review, &quotas()).await?;
            if quotas.is_empty() {
                return Ok(());
            }
            let forbidden = |operation: &Operation<'_>, refusal: &Refusal| {
                Failure::forbidden(&operation.group_resource(), name_of(object), &refusal.to_string())
            };
            let delta = delta(&subject, object, review.old);
            let concerned = concerned(&subject, object, &quotas, &delta);
            let concerned = concerned.map_err(|refusal| forbidden(review.operation, &refusal))?;
            if review.operation.options.is_dry_run {
                return Ok(());
            }
            for quota in concerned {
                let (state, operation) = (review.state, &mut *review.operation);
                let key = ObjectKey::namespaced(
                    str_at(quota, &["metadata", "namespace"]).unwrap_or_default(),
                    name_of(quota),
                );
                match charge(state, operation, &key, &delta).await {
                    Ok(()) => {}
                    Err(NotCounted::Failed(failure)) => return Err(failure),
                    Err(NotCounted::Refused(refusal)) => return Err(forbidden(operation, &refusal)),
                }
            }
            Ok(())
        })
    }
}

/// Gives back the usage of a write that has failed.
pub(crate) async fn refund(state: &State, operation: &mut Operation<'_>) {
    for Charge { quota, used } in std::mem::take(&mut operation.charges) {
        let back = used.into_iter().map(|(resource, amount)| (resource, Quantity::ZERO.minus(amount))).collect();
        if let Err(NotCounted::Failed(failure)) = count(state, &quota, &back).await {
            // The quota controller recalculates the usage.
            tracing::warn!(quota = %quota.name, message = failure.status.message, "a quota keeps what a failed write used");
        }
    }
}

/// The way in which a write is counted; `None` if it is not.
fn subject_of<'a>(attributes: &ResourceAttributes<'a>, action: Action) -> Option<CountedObject<'a>> {
    let subject = CountedObject::of(attributes.group, attributes.resource)?;
    let is_changed_in_place = match subject {
        CountedObject::Claim | CountedObject::Service => true,
        CountedObject::Pod => attributes.subresource == Some("resize"),
        CountedObject::Object { .. } => false,
    };
    (action == Action::Create || is_changed_in_place).then_some(subject)
}

/// The usage that a write adds; zero amounts are left out.
fn delta(subject: &CountedObject<'_>, new: &Value, old: Option<&Value>) -> Amounts {
    let mut delta = subject.usage(new);
    for (resource, before) in old.map(|old| subject.usage(old)).unwrap_or_default() {
        let now = delta.get(&resource).copied().unwrap_or(Quantity::ZERO);
        delta.insert(resource, now.minus(before));
    }
    delta.retain(|_, amount| !amount.is_zero());
    delta
}

/// The quotas that count an object, if each of them allows it.
fn concerned<'q>(
    subject: &CountedObject<'_>,
    object: &Value,
    quotas: &'q [Value],
    delta: &Amounts,
) -> Result<Vec<&'q Value>, Refusal> {
    let mut concerned = Vec::new();
    for quota in quotas {
        let hard = totals::amounts(at(quota, &["status", "hard"]));
        let counted: Vec<&str> =
            hard.keys().map(String::as_str).filter(|resource| subject.is_counted_as(resource)).collect();
        if counted.is_empty() || !quota::contains(subject, object, quota) {
            continue;
        }
        let name = || name_of(quota).to_owned();
        subject.check(object, &counted).map_err(|why| Refusal::Unspecified { quota: name(), why })?;
        let used = at(quota, &["status", "used"]).and_then(Value::as_object);
        let is_unknown = |resource: &&str| used.is_none_or(|used| !used.contains_key(*resource));
        let unknown: Vec<&str> = counted.into_iter().filter(is_unknown).collect();
        if !unknown.is_empty() {
            return Err(Refusal::Unknown { quota: name(), resources: unknown.join(",") });
        }
        concerned.push(quota);
    }
    for quota in &concerned {
        check(quota, delta)?;
    }
    Ok(concerned)
}

/// Checks that a quota has room for this additional usage.
fn check(quota: &Value, delta: &Amounts) -> Result<(), Refusal> {
    let (hard, used) = (amounts(quota, "hard"), amounts(quota, "used"));
    let [mut requested, mut taken, mut limited] = [const { Vec::new() }; 3];
    for (resource, more) in delta {
        let Some(most) = hard.get(resource) else { continue };
        let before = used.get(resource).copied().unwrap_or(Quantity::ZERO);
        if before.plus(*more) > *most && !more.is_negative() {
            requested.push(format!("{resource}={more}"));
            taken.push(format!("{resource}={before}"));
            limited.push(format!("{resource}={most}"));
        }
    }
    match requested.is_empty() {
        true => Ok(()),
        false => Err(Refusal::Exceeded {
            quota: name_of(quota).to_owned(),
            requested: requested.join(","),
            used: taken.join(","),
            limited: limited.join(","),
        }),
    }
}

fn amounts(quota: &Value, field: &str) -> BTreeMap<String, Quantity> {
    totals::amounts(at(quota, &["status", field]))
}

/// Adds the usage of a write to a quota, less the usage that an earlier attempt has added.
async fn charge(
    state: &State,
    operation: &mut Operation<'_>,
    quota: &ObjectKey,
    delta: &Amounts,
) -> Result<(), NotCounted> {
    let mut rest = delta.clone();
    let before = operation.charges.iter().position(|charge| charge.quota == *quota);
    for (resource, amount) in before.iter().flat_map(|at| &operation.charges[*at].used) {
        let wanted = rest.get(resource).copied().unwrap_or(Quantity::ZERO);
        rest.insert(resource.clone(), wanted.minus(*amount));
    }
    rest.retain(|_, amount| !amount.is_zero());
    if rest.is_empty() {
        return Ok(());
    }
    operation.load.write();
    count(state, quota, &rest).await?;
    let charge = Charge { quota: quota.clone(), used: delta.clone() };
    match before {
        Some(at) => operation.charges[at] = charge,
        None => operation.charges.push(charge),
    }
    Ok(())
}

/// Adds to the used amounts in the status of a quota.
async fn count(state: &State, key: &ObjectKey, delta: &Amounts) -> Result<(), NotCounted> {
    let catalog = state.catalog();
    let Some(served) = catalog.find("", "v1", "resourcequotas") else { return Ok(()) };
    for _ in 0..ATTEMPTS_MAX {
        // A deleted quota limits nothing.
        let Some(stored) = state.get(&quotas(), key).await.map_err(NotCounted::Failed)? else { return Ok(()) };
        let mut quota = conversion::parse(&stored).map_err(NotCounted::Failed)?;
        check(&quota, delta).map_err(NotCounted::Refused)?;
        if !add(&mut quota, delta) {
            return Ok(());
        }
        remove_at(&mut quota, &["metadata", "resourceVersion"]);
        let draft = at_rest::draft(&served.resource, quota)
            .map_err(|error| NotCounted::Failed(Failure::internal(error.to_string())))?;
        match state.store.update_with(&quotas(), key, stored.revision, draft, &[]).await {
            Ok(_) => return Ok(()),
            Err(WriteError::Conflict { .. }) => {}
            Err(error) => return Err(NotCounted::Failed(Failure::of_write(&error, &quotas(), &key.name))),
        }
    }
    Err(NotCounted::Failed(Failure::modified(&quotas(), &key.name)))
}

/// Adds to the used amounts of the resources that the quota limits. Returns whether that changes anything.
fn add(quota: &mut Value, delta: &Amounts) -> bool {
    let hard = amounts(quota, "hard");
    let used = amounts(quota, "used");
    let mut is_changed = false;
    for (resource, more) in delta.iter().filter(|(resource, _)| hard.contains_key(*resource)) {
        let sum = used.get(resource).copied().unwrap_or(Quantity::ZERO).plus(*more);
        if let Some(fields) = object_at(quota, &["status", "used"]) {
            fields.insert(resource.clone(), sum.to_string().into());
            is_changed = true;
        }
    }
    is_changed
}

fn quotas() -> GroupResource {
    GroupResource::new("", "resourcequotas")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn quota(hard: Value, used: Value) -> Value {
        json!({"metadata": {"name": "q", "namespace": "a"}, "status": {"hard": hard, "used": used}})
    }

    fn pods() -> CountedObject<'static> {
        CountedObject::of("", "pods").unwrap()
    }

    fn pod(cpu: &str) -> Value {
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
    }

    fn ask(pod: &Value, quota: &Value) -> Result<usize, String> {
        let delta = delta(&pods(), pod, None);
        let quotas = std::slice::from_ref(quota);
        concerned(&pods(), pod, quotas, &delta).map(|all| all.len()).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_quota_allows_exactly_what_is_left() {
        let quota = quota(json!({"cpu": "1", "pods": "3"}), json!({"cpu": "600m", "pods": "1"}));
        assert_eq!(ask(&pod("400m"), &quota), Ok(1));
        let why = "exceeded quota: q, requested: cpu=401m, used: cpu=600m, limited: cpu=1";
        assert_eq!(ask(&pod("401m"), &quota), Err(why.to_owned()));
    }

    #[test]
    fn a_quota_that_nobody_has_counted_lets_nothing_in() {
        let why = "status unknown for quota: q, resources: cpu,pods";
        assert_eq!(ask(&pod("1m"), &quota(json!({"cpu": "1", "pods": "3"}), json!({}))), Err(why.to_owned()));
        assert_eq!(ask(&pod("1m"), &quota(json!({}), json!({}))), Ok(0));
        assert_eq!(ask(&pod("1m"), &quota(json!({"secrets": "1"}), json!({}))), Ok(0));
    }

    #[test]
    fn what_is_used_grows_only_where_the_quota_holds_it() {
        let mut held = quota(json!({"cpu": "1"}), json!({"cpu": "600m"}));
        assert!(add(&mut held, &delta(&pods(), &pod("400m"), None)));
        assert_eq!(held["status"]["used"], json!({"cpu": "1"}));
        let mut other = quota(json!({"secrets": "1"}), json!({"secrets": "0"}));
        assert!(!add(&mut other, &delta(&pods(), &pod("400m"), None)));
    }
}
