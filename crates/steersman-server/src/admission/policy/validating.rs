//! `ValidatingAdmissionPolicy`: refuses, warns of or notes writes for which an expression of a policy does not hold.
//!
//! Follows apiserver's `admission/plugin/policy/validating`. All policies are evaluated, also behind a denial, since they may warn;
//! the first denial is answered.

use crate::admission::condition::{Inputs, Matched};
use crate::admission::matching;
use crate::admission::plugin::{self, Action, Phase, Review};
use crate::admission::policy::definition::{Binding, Definition, Policy};
use crate::admission::policy::dispatch::{self, Step};
use crate::admission::questions::Questions;
use crate::admission::subject::Subject;
use crate::expressions::{Budget, Compiler, Expression, Names};
use crate::metrics::policies::{Figures, Outcome};
use crate::operation::ResourceAttributes;
use crate::state::State;
use crate::status::Failure;
use futures::future::BoxFuture;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use steersman_cel::{OBJECT_BUDGET, Value as Cel};
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};
use tokio::time::Instant;

/// The most bytes of a message that an expression makes.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
/// The most bytes of an annotation for the audit log.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;
const FAILURES: &str = "validation.policy.admission.k8s.io/validation_failure";

#[derive(Debug)]
pub(in crate::admission) struct ValidatingAdmissionPolicy;

/// A policy as it is evaluated.
#[derive(Debug)]
pub(super) struct Validating {
    definition: Definition,
    validations: Vec<Validation>,
    annotations: Vec<Annotation>,
}

#[derive(Debug)]
struct Validation {
    expression: Expression,
    /// Trimmed.
    message: Box<str>,
    said: Option<Expression>,
    reason: Box<str>,
}

#[derive(Debug)]
struct Annotation {
    key: Box<str>,
    value: Expression,
}

/// What a policy says of a write with one parameter.
#[derive(Debug, Default)]
struct Judgement {
    failures: Vec<Failed>,
    /// Key and value.
    annotations: Vec<(Box<str>, String)>,
    /// Annotations that could not be made. They deny whatever the actions of the binding are.
    broken_annotations: Vec<String>,
    is_out_of_budget: bool,
}

/// A validation that does not hold, or cannot be evaluated.
#[derive(Debug)]
struct Failed {
    /// Its position in the policy.
    index: usize,
    message: String,
    reason: Box<str>,
    outcome: Outcome,
}

/// A write that is refused.
#[derive(Debug)]
struct Denial {
    policy: Box<str>,
    binding: Option<Box<str>>,
    message: String,
    reason: Box<str>,
}

/// What all policies say of a write.
#[derive(Debug, Default)]
struct Verdict {
    denials: Vec<Denial>,
    warnings: Vec<String>,
    /// For the audit log.
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
        state.policies.validating.may_concern(action, attributes) && !matching::is_exempt_from_policies(attributes)
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
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

/// Evaluates every policy that is about a write.
async fn judge(review: &Review<'_, '_>, new: Option<&Value>) -> Result<Verdict, Failure> {
    let state = review.state;
    let index = state.policies.validating.index();
    let subject = Subject::new(review, Phase::Validate, new).await?;
    let dispatch = dispatch::find(state, &index, &subject).await;
    let mut verdict = Verdict::default();
    let questions = Questions::new(&*state.authorizer, review.operation.user);
    let mut objects = Vec::with_capacity(dispatch.targets.len());
    for target in &dispatch.targets {
        objects.push(subject.objects(target).await);
    }
    let mut inputs = Vec::with_capacity(objects.len());
    for (target, objects) in dispatch.targets.iter().zip(&objects) {
        inputs.push(match objects {
            Ok(objects) => {
                Inputs::new(&subject, target, objects, &questions).map_err(|failure| dispatch::message(&failure))
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
            let began = Instant::now();
            let judgement = policy.judge(inputs, params).await;
            verdict.add(policy, binding, judgement, &mut annotations, state, began.elapsed());
        }
        verdict.annotate(&policy.definition.name, annotations);
    }
    Ok(verdict)
}

impl Policy for Validating {
    fn read(policy: &Value) -> Validating {
        let (mut definition, compiler) = Definition::read(policy, Compiler::validating);
        let list = |key: &str| {
            at(policy, &["spec", key]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default().iter()
        };
        let validations = list("validations").map(|validation| Validation::read(validation, &compiler)).collect();
        let annotations = list("auditAnnotations").map(|annotation| Annotation {
            key: str_at(annotation, &["key"]).unwrap_or_default().into(),
            value: compiler.compile(str_at(annotation, &["valueExpression"]).unwrap_or_default(), true),
        });
        let annotations = annotations.collect();
        definition.variables = compiler.into_variables();
        Validating { definition, validations, annotations }
    }

    fn definition(&self) -> &Definition {
        &self.definition
    }
}

impl Validation {
    fn read(validation: &Value, compiler: &Compiler) -> Validation {
        let text = |key: &str| str_at(validation, &[key]).unwrap_or_default();
        let said = text("messageExpression");
        Validation {
            expression: compiler.compile(text("expression"), true),
            message: text("message").trim().into(),
            said: (!said.trim().is_empty()).then(|| compiler.compile(said, false)),
            reason: match text("reason") {
                "" => "Invalid".into(),
                reason => reason.into(),
            },
        }
    }
}

impl Validating {
    /// What the policy says of a write with a parameter.
    async fn judge(&self, inputs: &Inputs<'_>, params: &Value) -> Judgement {
        match self.definition.conditions.judge(inputs, params, self.definition.names).await {
            Matched::Yes => {}
            Matched::No => return Judgement::default(),
            Matched::Failed(why) => return Judgement::of_error(why),
        }
        inputs.questions().settle(|| self.evaluate(inputs, params)).await
    }

    fn evaluate(&self, inputs: &Inputs<'_>, params: &Value) -> Judgement {
        let mut judgement = Judgement::default();
        if let Err(why) = self.validate(inputs, params, &mut judgement) {
            return self.failed(why);
        }
        match self.annotate(inputs, params, &mut judgement) {
            Ok(()) => judgement,
            Err(why) => self.failed(why),
        }
    }

    /// Nothing more can be said of the write than this.
    fn failed(&self, why: String) -> Judgement {
        match self.definition.ignores_failures {
            true => Judgement::default(),
            false => Judgement { is_out_of_budget: true, ..Judgement::of_error(why) },
        }
    }

    fn validate(&self, inputs: &Inputs<'_>, params: &Value, judgement: &mut Judgement) -> Result<(), String> {
        let definition = &self.definition;
        let mut activation = inputs.activation(params, definition.names)?.with_composed(&definition.variables);
        let mut budget = Budget::new(OBJECT_BUDGET);
        let mut found = Vec::with_capacity(self.validations.len());
        for validation in &self.validations {
            found
                .push(validation.expression.evaluate(&mut activation, &mut budget).map_err(|spent| spent.to_string())?);
        }
        for (index, (validation, value)) in self.validations.iter().zip(found).enumerate() {
            let (message, reason, outcome) = match value {
                Ok(Cel::Bool(true)) => continue,
                Ok(_) => match self.message(validation, inputs, params, &mut budget) {
                    Ok(message) => (message, validation.reason.clone(), Outcome::Judged),
                    Err(_) if definition.ignores_failures => continue,
                    Err(why) => (why, "Invalid".into(), Outcome::OutOfBudget),
                },
                Err(_) if definition.ignores_failures => continue,
                Err(why) => (why, "Invalid".into(), Outcome::Error),
            };
            judgement.failures.push(Failed { index, message, reason, outcome });
        }
        Ok(())
    }

    /// What is said of a validation that does not hold.
    fn message(
        &self,
        validation: &Validation,
        inputs: &Inputs<'_>,
        params: &Value,
        budget: &mut Budget,
    ) -> Result<String, String> {
        if let Some(said) = &validation.said {
            // An expression that makes a message knows no authorizer, and neither do the variables that it uses.
            let names = Names { authorizer: false, ..self.definition.names };
            let mut activation = inputs.activation(params, names)?.with_composed(&self.definition.variables);
            let value = said.evaluate(&mut activation, budget);
            let value = value.map_err(|spent| format!("failed messageExpression: {spent}"))?;
            let text = value.as_ref().ok().and_then(|value| value.as_str()).unwrap_or_default().trim();
            if !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n') {
                return Ok(text.to_owned());
            }
        }
        Ok(match &*validation.message {
            "" => format!("failed expression: {}", validation.expression.text.trim()),
            message => message.to_owned(),
        })
    }

    fn annotate(&self, inputs: &Inputs<'_>, params: &Value, judgement: &mut Judgement) -> Result<(), String> {
        if self.annotations.is_empty() {
            return Ok(());
        }
        let definition = &self.definition;
        let mut activation = inputs.activation(params, definition.names)?.with_composed(&definition.variables);
        let mut budget = Budget::new(OBJECT_BUDGET);
        for annotation in &self.annotations {
            let value = annotation.value.evaluate(&mut activation, &mut budget).map_err(|spent| spent.to_string())?;
            let why = match value {
                Ok(Cel::Null) => continue,
                Ok(Cel::String(text)) => {
                    let text = text.trim();
                    if !text.is_empty() {
                        judgement.annotations.push((annotation.key.clone(), text.to_owned()));
                    }
                    continue;
                }
                Ok(_) => format!(
                    "valueExpression '{}' resulted in unsupported return type. Return type must be either string or null.",
                    annotation.value.text
                ),
                Err(why) => why,
            };
            if !definition.ignores_failures {
                judgement.broken_annotations.push(why);
            }
        }
        Ok(())
    }
}

impl Judgement {
    fn of_error(message: String) -> Judgement {
        let failed = Failed { index: 0, message, reason: "Invalid".into(), outcome: Outcome::Error };
        Judgement { failures: vec![failed], ..Judgement::default() }
    }
}

impl Verdict {
    fn misconfigured(&mut self, policy: &Validating, binding: Option<&Binding>, why: &str) {
        if policy.definition.ignores_failures {
            return;
        }
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.denials.push(Denial {
            policy: policy.definition.name.clone(),
            binding: binding.map(|binding| binding.name.clone()),
            message: format!("failed to configure {what}: {why}"),
            reason: "Invalid".into(),
        });
    }

    /// Does what the binding wants about what a policy says.
    fn add(
        &mut self,
        policy: &Validating,
        binding: &Binding,
        judgement: Judgement,
        annotations: &mut BTreeMap<Box<str>, Vec<String>>,
        state: &State,
        took: Duration,
    ) {
        let name = &policy.definition.name;
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
        let (policy, binding) = (policy.definition.name.clone(), Some(binding.name.clone()));
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
