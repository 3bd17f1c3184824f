//! `PodSecurity`: enforces the Pod Security Standards that the labels of a namespace select, and warns about
//! violations. Follows `k8s.io/pod-security-admission`.
//!
//! `enforce` refuses pods; `warn` and `audit` also check the pod templates of other kinds. Invalid labels of a
//! namespace are refused; in a namespace that has them nevertheless, the restricted level is enforced.

mod baseline;
mod checks;
mod pod_or_template;
mod policy;
mod restricted;

use crate::shared::conversion;
use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, announced_in, name_of};
use crate::write::admission::plugins::pods::pod_security::pod_or_template::PodOrTemplate;
use crate::write::admission::plugins::pods::pod_security::policy::{Level, LevelVersion, Policy};
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use steersman_machinery::budget;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{GroupKind, GroupResource, ObjectKey, Value};
use steersman_storage::{Page, Scope};

/// The maximum number of pods that are checked when the level of a namespace changes.
const PODS_MAX: usize = 3000;

#[derive(Debug)]
pub(crate) struct PodSecurity;

/// A finding of a check, such as `privileged` with the containers that set it.
pub(crate) struct Finding {
    reason: String,
    detail: String,
}

impl Plugin for PodSecurity {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        let is_whole = attributes.subresource.is_none();
        let is_concerned = match (attributes.group, attributes.resource) {
            ("", "namespaces") => is_whole,
            ("", "pods") => matches!(attributes.subresource, None | Some("ephemeralcontainers" | "resize")),
            _ => is_whole && pod_or_template::template_path(attributes).is_some(),
        };
        phase == Phase::Validate && matches!(action, Action::Create | Action::Update) && is_concerned
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let Some(object) = new else { return Ok(()) };
            match (review.operation.attributes.group, review.operation.attributes.resource) {
                ("", "namespaces") => of_namespace(review, object).await,
                ("", "pods") => of_pod(review, object).await,
                _ => of_template(review, object).await,
            }
        })
    }
}

/// Validates the labels of a namespace, and warns about existing pods that violate a new level.
async fn of_namespace(review: &mut Review<'_, '_>, namespace: &Value) -> Result<(), Failure> {
    let policy = |object: &Value| {
        let labels = at(object, &["metadata", "labels"]).and_then(Value::as_object).into_iter().flatten();
        Policy::read(labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))))
    };
    let (new, faults) = policy(namespace);
    let Some(old) = review.old.map(policy) else {
        return refuse(namespace, &faults);
    };
    let (old, faults_before) = old;
    if faults != faults_before {
        refuse(namespace, &faults)?;
    }
    let is_relaxed = new.enforce.version == old.enforce.version && new.enforce.level <= old.enforce.level;
    if is_relaxed || new.enforce.level == Level::Privileged {
        return Ok(());
    }
    for warning in violations_in(review, name_of(namespace), &new.enforce).await? {
        review.operation.warn(warning);
    }
    Ok(())
}

fn refuse(namespace: &Value, faults: &[steersman_machinery::field::Error]) -> Result<(), Failure> {
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Failure::invalid(&GroupKind::new("", "Namespace"), name_of(namespace), faults)),
    }
}

/// The violations of a level by the pods of a namespace: a line for each set of reasons, with the first pod and the
/// number of others.
async fn violations_in(review: &Review<'_, '_>, namespace: &str, level: &LevelVersion) -> Result<Vec<String>, Failure> {
    let resource = GroupResource::new("", "pods");
    let first = Page { limit: Some(PODS_MAX), ..Page::ALL };
    let pods = announced_in(review, namespace, &resource, first).await?;
    let total = review.state.store.count_in(&resource, &Scope::Namespace(namespace.into()));
    // A budget of its own: warnings that would take too long are left out, and the write goes on.
    let budget = review.operation.budget.renewed();
    let mut n_checked = 0;
    let mut by_reason: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for object in &pods {
        match conversion::charge_reading(object, &budget) {
            Ok(()) => n_checked += 1,
            Err(budget::Error::Exceeded { .. }) => break,
            Err(error @ budget::Error::Interrupted) => return Err(error.into()),
        }
        let pod = conversion::parse(object)?;
        let findings =
            PodOrTemplate::of(&pod, &[]).map(|subject| checks::evaluate(level, &subject)).unwrap_or_default();
        if !findings.is_empty() {
            let reasons: Vec<String> = findings.into_iter().map(|finding| finding.reason).collect();
            by_reason.entry(reasons.join(", ")).or_default().push(&object.key.name);
        }
    }
    let mut warnings = Vec::new();
    if n_checked < total {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {n_checked} of {total} existing pods"
        ));
    }
    if !by_reason.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{level}\""
        ));
    }
    let line = |(reasons, mut pods): (String, Vec<&str>)| {
        pods.sort_unstable();
        match pods.as_slice() {
            [one] => format!("{one}: {reasons}"),
            [first, _] => format!("{first} (and 1 other pod): {reasons}"),
            [first, others @ ..] => format!("{first} (and {} other pods): {reasons}", others.len()),
            [] => reasons,
        }
    };
    let mut lines: Vec<String> = by_reason.into_iter().map(line).collect();
    lines.sort();
    warnings.extend(lines);
    Ok(warnings)
}

async fn of_pod(review: &mut Review<'_, '_>, pod: &Value) -> Result<(), Failure> {
    let Some(policy) = policy_of(review).await? else { return Ok(()) };
    if review.old.is_some_and(|old| !is_significant(pod, old)) {
        return Ok(());
    }
    let Some(subject) = PodOrTemplate::of(pod, &[]) else { return Ok(()) };
    review.operation.annotate("pod-security.kubernetes.io/enforce-policy", policy.enforce.to_string());
    let findings = checks::evaluate(&policy.enforce, &subject);
    if !findings.is_empty() {
        let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, details(&findings));
        return Err(Failure::forbidden(&review.operation.group_resource(), name_of(pod), &why));
    }
    report(review, &policy, &subject);
    Ok(())
}

async fn of_template(review: &mut Review<'_, '_>, object: &Value) -> Result<(), Failure> {
    let Some(policy) = policy_of(review).await? else { return Ok(()) };
    let path = pod_or_template::template_path(&review.operation.attributes).unwrap_or_default();
    if let Some(subject) = PodOrTemplate::of(object, path) {
        report(review, &policy, &subject);
    }
    Ok(())
}

/// Warns about violations, and records them for the audit log.
fn report(review: &mut Review<'_, '_>, policy: &Policy, subject: &PodOrTemplate<'_>) {
    let violations = |level: &LevelVersion| {
        let findings = checks::evaluate(level, subject);
        let text = || format!("would violate PodSecurity \"{level}\": {}", details(&findings));
        (!findings.is_empty()).then(text)
    };
    if let Some(violations) = violations(&policy.audit) {
        review.operation.annotate("pod-security.kubernetes.io/audit-violations", violations);
    }
    if let Some(violations) = violations(&policy.warn) {
        review.operation.warn(violations);
    }
}

/// The policy of the namespace of a write; `None` if it restricts nothing.
async fn policy_of(review: &Review<'_, '_>) -> Result<Option<Policy>, Failure> {
    let Some(name) = review.operation.namespace() else { return Ok(None) };
    let (namespaces, key) = (GroupResource::new("", "namespaces"), ObjectKey::cluster(name));
    let Some(namespace) = review.state.find(&namespaces, &key).await? else { return Ok(None) };
    if !namespace.meta().labels().any(|(key, _)| key.starts_with(policy::PREFIX)) {
        return Ok(None);
    }
    Ok(Some(Policy::read(namespace.meta().labels()).0).filter(|policy| !policy.is_privileged()))
}

/// Whether a change of a pod is checked: if it changes an image, or adds or removes a container.
fn is_significant(new: &Value, old: &Value) -> bool {
    let images = |pod: &Value, list: &str| -> Vec<(String, String)> {
        let containers = at(pod, &["spec", list]).and_then(Value::as_array).into_iter().flatten();
        let text = |container: &Value, field: &str| str_at(container, &[field]).unwrap_or_default().to_owned();
        containers.map(|container| (text(container, "name"), text(container, "image"))).collect()
    };
    ["containers", "ephemeralContainers", "initContainers"].iter().any(|list| images(new, list) != images(old, list))
}

/// All findings as one text: each reason with its detail.
fn details(findings: &[Finding]) -> String {
    let text = |finding: &Finding| match finding.detail.as_str() {
        "" => finding.reason.clone(),
        detail => format!("{} ({detail})", finding.reason),
    };
    findings.iter().map(text).collect::<Vec<String>>().join(", ")
}
