//! `ValidatingAdmissionPolicy`: refuses, warns about or records writes for which an expression of a policy does not
//! hold.
//!
//! Follows apiserver's `admission/plugin/policy/validating`. All policies are evaluated, also after a denial, since
//! they may warn; the first denial is returned.

use crate::metrics::policies::{Figures, Outcome};
use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission::dynamic::condition::Inputs;
use crate::write::admission::dynamic::matching;
use crate::write::admission::dynamic::policy::definition::{Binding, Policy};
use crate::write::admission::dynamic::policy::dispatch::{self, Step};
use crate::write::admission::dynamic::policy::validating::{Failed, Judgement, Validating};
use crate::write::admission::dynamic::questions::Questions;
use crate::write::admission::plugin::{self, Action, Phase, Review};
use futures::future::BoxFuture;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use steersman_machinery::Value;
use tokio::time::Instant;

/// The maximum size of an annotation for the audit log.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;
const FAILURES: &str = "validation.policy.admission.k8s.io/validation_failure";

#[derive(Debug)]
pub(crate) struct ValidatingAdmissionPolicy;

/// A denial of a write.
#[derive(Debug)]
struct Denial {
    policy: Box<str>,
    binding: Option<Box<str>>,
    message: String,
    reason: Box<str>,
}

/// The results of all policies for a write.
#[derive(Debug, Default)]
struct Verdict {
    denials: Vec<Denial>,
    warnings: Vec<String>,
    /// The failures, for the audit log.
    failures: Vec<Value>,
    annotations: Vec<(String, String)>,
}

impl plugin::Plugin for ValidatingAdmissionPolicy {
    fn unfinished(&self) -> plugin::Unfinished {
        plugin::Unfinished::Update
    }

    fn handles(&self, phase: Phase, _action: Action, _attributes: &ResourceAttributes<'_>) -> bool {
        phase == Phase::Validate
    }

    fn has_registered(&self, state: &State, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        state.policies.validating().may_concern(action, attributes) && !matching::is_exempt_from_policies(attributes)
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            // No policy may keep the server from starting, or from renewing its lease.
            if review.operation.is_of_system() {
                return Ok(());
            }
            let verdict = judge(review, new).await?;
            let operation = &mut *review.operation;
            verdict.warnings.into_iter().for_each(|warning| operation.warn(warning));
            if !verdict.failures.is_empty() {
                operation.annotate(FAILURES, Value::from(verdict.failures).to_string());
            }
            verdict.annotations.into_iter().for_each(|(key, value)| operation.annotate(key, value));
            match verdict.denials.into_iter().next() {
                Some(denial) => Err(denial.failure(review, new)),
                None => Ok(()),
            }
        })
    }
}

/// Evaluates every policy that matches a write.
async fn judge(review: &Review<'_, '_>, new: Option<&Value>) -> Result<Verdict, Failure> {
    let state = review.state;
    let index = state.policies.validating().index();
    let write = review.admitted_write(Phase::Validate, new).await?;
    let dispatch = dispatch::find(state, &index, &write).await?;
    let mut verdict = Verdict::default();
    review.operation.load.expect_work(dispatch.n_evaluations().saturating_mul(dispatch::EVALUATION_BYTES)).await;
    let questions = Questions::new(&*state.authorizer, review.operation.user);
    let mut objects = Vec::with_capacity(dispatch.targets.len());
    for target in &dispatch.targets {
        objects.push(write.objects(target).await);
    }
    let mut inputs = Vec::with_capacity(objects.len());
    for (target, objects) in dispatch.targets.iter().zip(&objects) {
        inputs.push(match objects {
            Ok(objects) => {
                Inputs::new(&write, target, objects, &questions).map_err(|failure| dispatch::message(&failure))
            }
            Err(failure) => Err(format!("failed to convert object version: {}", dispatch::message(failure))),
        });
    }
    for step in &dispatch.steps {
        let invocation = match step {
            Step::Invoke(invocation) => invocation,
            Step::Misconfigured { policy, binding, why } => {
                verdict.misconfigured(policy, *binding, why);
                continue;
            }
        };
        let (policy, binding) = (invocation.policy, invocation.binding);
        let inputs = match &inputs[invocation.target] {
            Ok(inputs) => inputs,
            Err(why) => {
                verdict.misconfigured(policy, Some(binding), why);
                continue;
            }
        };
        let mut annotations = BTreeMap::new();
        for params in &invocation.params {
            review.operation.check_time()?;
            // Each evaluation is bounded, but there may be many.
            tokio::task::coop::consume_budget().await;
            let began = Instant::now();
            let judgement = policy.judge(inputs, params).await;
            verdict.add(policy, binding, judgement, &mut annotations, state, began.elapsed());
        }
        verdict.annotate(&policy.definition().name, annotations);
    }
    Ok(verdict)
}

impl Verdict {
    fn misconfigured(&mut self, policy: &Validating, binding: Option<&Binding>, why: &str) {
        if policy.definition().ignores_failures {
            return;
        }
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.denials.push(Denial {
            policy: policy.definition().name.clone(),
            binding: binding.map(|binding| binding.name.clone()),
            message: format!("failed to configure {what}: {why}"),
            reason: "Invalid".into(),
        });
    }

    /// Carries out the actions of a binding for the result of a policy.
    fn add(
        &mut self,
        policy: &Validating,
        binding: &Binding,
        judgement: Judgement,
        annotations: &mut BTreeMap<Box<str>, Vec<String>>,
        state: &State,
        took: Duration,
    ) {
        let name = &policy.definition().name;
        let count = |action: &'static str, outcome: Outcome| {
            let figures = Figures { policy: name, binding: &binding.name, action, outcome };
            state.metrics.policies.validated(&figures, took);
        };
        if judgement.failures.is_empty() && judgement.broken_annotations.is_empty() {
            count("allow", Outcome::Judged);
        }
        for Failed { index, message, reason, outcome } in judgement.failures {
            let outcome = if judgement.is_out_of_budget { Outcome::OutOfBudget } else { outcome };
            if binding.actions.audit {
                count("audit", outcome);
                self.failures.push(json!({
                    "message": message, "policy": name, "binding": binding.name, "expressionIndex": index,
                    "validationActions": binding.action_names,
                }));
            }
            if binding.actions.warn {
                count("warn", outcome);
                self.warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{}': {message}",
                    binding.name
                ));
            }
            if binding.actions.deny {
                count("deny", outcome);
                self.deny(policy, binding, message, reason);
            }
        }
        for message in judgement.broken_annotations {
            count("deny", Outcome::Error);
            self.deny(policy, binding, message, "Invalid".into());
        }
        for (key, value) in judgement.annotations {
            let values = annotations.entry(key).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }

    fn deny(&mut self, policy: &Validating, binding: &Binding, message: String, reason: Box<str>) {
        let (policy, binding) = (policy.definition().name.clone(), Some(binding.name.clone()));
        self.denials.push(Denial { policy, binding, message, reason });
    }

    fn annotate(&mut self, policy: &str, annotations: BTreeMap<Box<str>, Vec<String>>) {
        for (key, values) in annotations {
            let mut value = values.join(", ");
            value.truncate(value.floor_char_boundary(ANNOTATION_BYTES_MAX));
            self.annotations.push((format!("{policy}/{key}"), value));
        }
    }
}

impl Denial {
    fn failure(self, review: &Review<'_, '_>, new: Option<&Value>) -> Failure {
        let with = self.binding.map(|binding| format!(" with binding '{binding}'")).unwrap_or_default();
        let message = format!("ValidatingAdmissionPolicy '{}'{with} denied request: {}", self.policy, self.message);
        let name = plugin::refused_name(review, new);
        Failure::denied(&review.operation.group_resource(), name, &self.reason, message)
    }
}
