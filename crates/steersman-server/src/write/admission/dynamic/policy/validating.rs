//! The evaluation of a ValidatingAdmissionPolicy for a write with one parameter.
//!
//! Independent of plugins and state: `validating_policy` evaluates policies and carries out the actions of their
//! bindings.

use crate::metrics::policies::Outcome;
use crate::write::admission::dynamic::condition::{Inputs, Matched};
use crate::write::admission::dynamic::policy::definition::{Definition, Policy};
use steersman_cel::{Activation, OBJECT_BUDGET, Value as Cel};
use steersman_kinds::expressions::{Budget, Compiler, Expression, Names, Purpose};
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

/// The maximum length of the message of a messageExpression.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// A compiled policy.
#[derive(Debug)]
pub(in crate::write::admission) struct Validating {
    definition: Definition,
    validations: Vec<Validation>,
    annotations: Vec<Annotation>,
}

#[derive(Debug)]
struct Validation {
    expression: Expression,
    /// The message, trimmed.
    message: Box<str>,
    said: Option<Expression>,
    reason: Box<str>,
}

#[derive(Debug)]
struct Annotation {
    key: Box<str>,
    value: Expression,
}

/// The result of a policy for a write with one parameter.
#[derive(Debug, Default)]
pub(in crate::write::admission) struct Judgement {
    pub(in crate::write::admission) failures: Vec<Failed>,
    /// The annotations: key and value.
    pub(in crate::write::admission) annotations: Vec<(Box<str>, String)>,
    /// The errors of annotations that could not be evaluated. They deny the write, whatever the actions of the binding
    /// are.
    pub(in crate::write::admission) broken_annotations: Vec<String>,
    pub(in crate::write::admission) is_out_of_budget: bool,
}

/// A validation that does not hold or cannot be evaluated.
#[derive(Debug)]
pub(in crate::write::admission) struct Failed {
    /// The index in the policy.
    pub(in crate::write::admission) index: usize,
    pub(in crate::write::admission) message: String,
    pub(in crate::write::admission) reason: Box<str>,
    pub(in crate::write::admission) outcome: Outcome,
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
            value: compiler.compile(str_at(annotation, &["valueExpression"]).unwrap_or_default(), Purpose::Value),
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
            expression: compiler.compile(text("expression"), Purpose::Value),
            message: text("message").trim().into(),
            said: (!said.trim().is_empty()).then(|| compiler.compile(said, Purpose::Message)),
            reason: match text("reason") {
                "" => "Invalid".into(),
                reason => reason.into(),
            },
        }
    }
}

impl Validating {
    /// Evaluates the policy for a write with a parameter.
    pub(in crate::write::admission) async fn judge(&self, inputs: &Inputs<'_>, params: &Value) -> Judgement {
        match self.definition.conditions.judge(inputs, params, self.definition.names).await {
            Matched::Yes => {}
            Matched::No => return Judgement::default(),
            Matched::Failed(why) => return Judgement::of_error(why),
        }
        inputs.until_answered(|| self.evaluate(inputs, params)).await
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

    /// The result when evaluation must end: only this error, unless failures are ignored.
    fn failed(&self, why: String) -> Judgement {
        match self.definition.ignores_failures {
            true => Judgement::default(),
            false => Judgement { is_out_of_budget: true, ..Judgement::of_error(why) },
        }
    }

    fn validate(&self, inputs: &Inputs<'_>, params: &Value, judgement: &mut Judgement) -> Result<(), String> {
        let definition = &self.definition;
        let seen = inputs.with(params, definition.names);
        let mut activation = Activation::of(&seen).with_composed(&definition.variables);
        let mut budget = Budget::new(OBJECT_BUDGET, inputs.allowance());
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

    /// The message of a validation that does not hold.
    fn message(
        &self,
        validation: &Validation,
        inputs: &Inputs<'_>,
        params: &Value,
        budget: &mut Budget<'_>,
    ) -> Result<String, String> {
        if let Some(said) = &validation.said {
            // A messageExpression has no authorizer, and neither have the variables that it uses.
            let names = Names { authorizer: false, ..self.definition.names };
            let seen = inputs.with(params, names);
            let mut activation = Activation::of(&seen).with_composed(&self.definition.variables);
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
        let seen = inputs.with(params, definition.names);
        let mut activation = Activation::of(&seen).with_composed(&definition.variables);
        let mut budget = Budget::new(OBJECT_BUDGET, inputs.allowance());
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
