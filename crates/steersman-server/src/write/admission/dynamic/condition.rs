//! The variables of expressions about a write, and the `matchConditions` of webhooks and policies.
//!
//! Follows apiserver's `admission/plugin/webhook/matchconditions`.

use crate::shared::conversion;
use crate::shared::status::Failure;
use crate::write::admission::admitted_write::{AdmittedWrite, Objects};
use crate::write::admission::dynamic::questions::Questions;
use std::sync::OnceLock;
use steersman_cel::{Activation, MATCH_CONDITIONS_BUDGET, Resource, Value as Cel, Variables};
use steersman_kinds::catalog::Served;
use steersman_kinds::expressions::{Allowance, Budget, Expression, NAMESPACE, REQUEST};
use steersman_machinery::value::str_at;
use steersman_machinery::{Object, Value};

pub(crate) use steersman_kinds::expressions::Names;

static NULL: Value = Value::Null;

/// The variables of expressions about one write. The request and the namespace are built when the first expression
/// refers to them.
#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    write: &'a AdmittedWrite<'a>,
    target: &'a Served,
    objects: &'a Objects<'a>,
    questions: &'a Questions<'a>,
    in_namespace: Option<&'a Object>,
    request: OnceLock<Value>,
    namespace: OnceLock<Value>,
}

/// The variables of expressions about one write, with a parameter.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    inputs: &'a Inputs<'a>,
    params: &'a Value,
    names: Names,
}

/// The `matchConditions` of a webhook or a policy.
#[derive(Debug)]
pub(crate) struct Conditions {
    conditions: Vec<Expression>,
    /// `failurePolicy: Ignore`.
    ignores_failures: bool,
}

/// The result of conditions for a write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Matched {
    Yes,
    No,
    /// They cannot be evaluated, and failures are not ignored.
    Failed(String),
}

// === impl Inputs ===

impl<'a> Inputs<'a> {
    /// The variables of expressions about a write in a version.
    ///
    /// # Errors
    /// When the namespace does not exist.
    pub(crate) fn new(
        write: &'a AdmittedWrite<'a>,
        target: &'a Served,
        objects: &'a Objects<'a>,
        questions: &'a Questions<'a>,
    ) -> Result<Inputs<'a>, Failure> {
        let in_namespace = write.namespace_object()?;
        let (request, namespace) = (OnceLock::new(), OnceLock::new());
        Ok(Inputs { write, target, objects, questions, in_namespace, request, namespace })
    }

    /// The variables with a parameter, which is null where a policy has none.
    pub(crate) fn with<'b>(&'b self, params: &'b Value, names: Names) -> Seen<'b> {
        Seen { inputs: self, params, names }
    }

    fn request(&self) -> &Value {
        self.request.get_or_init(|| self.write.request(self.target))
    }

    /// The namespace of the object; null for cluster-scoped ones.
    fn namespace(&self) -> &Value {
        let parsed = || self.in_namespace.and_then(|namespace| conversion::parse(namespace).ok());
        self.namespace.get_or_init(|| parsed().unwrap_or_default())
    }

    /// The attributes of `authorizer.requestResource`.
    fn resource(&self) -> Resource {
        let attributes = &self.write.attributes;
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        Resource {
            group: attributes.group.to_owned(),
            resource: attributes.resource.to_owned(),
            subresource: text(attributes.subresource),
            namespace: text(attributes.namespace),
            name: self.write.name.to_owned(),
            ..Resource::default()
        }
    }

    /// The remaining cost of all expressions about the write.
    pub(crate) fn allowance(&self) -> &'a Allowance {
        &self.write.operation.expressions
    }

    /// The budget of the request.
    pub(crate) fn budget(&self) -> &'a steersman_machinery::Budget {
        &self.write.operation.budget
    }

    /// Evaluates until no question is open: within little cost at first, and if that is not enough, within all that is left on a thread for heavy
    /// requests. `evaluate` must only depend on the answers.
    pub(crate) async fn until_answered<T>(&self, mut evaluate: impl FnMut() -> T) -> T {
        let (load, allowance) = (&self.write.operation.load, self.allowance());
        if load.is_light() {
            if let Some(value) = self.questions.until_answered(|| allowance.briefly(&mut evaluate)).await {
                return value;
            }
            load.expect_more().await;
        }
        self.questions.until_answered(evaluate).await
    }
}

// === impl Seen ===

impl Variables for Seen<'_> {
    fn variable(&self, name: &str) -> Option<Cel<'_>> {
        let Inputs { objects, questions, .. } = self.inputs;
        Some(match name {
            "object" => Cel::json(objects.new.as_deref().unwrap_or(&NULL)),
            "oldObject" => Cel::json(objects.old.as_deref().unwrap_or(&NULL)),
            // The request is built by the server, so it conforms to its declaration.
            "request" => Cel::declared(self.inputs.request(), &REQUEST).ok()?,
            "namespaceObject" => Cel::declared(self.inputs.namespace(), &NAMESPACE).ok()?,
            "params" if self.names.params => Cel::json(self.params),
            "authorizer" if self.names.authorizer => Cel::authorizer(*questions),
            "authorizer.requestResource" if self.names.authorizer => {
                Cel::request_resource(*questions, self.inputs.resource())
            }
            _ => return None,
        })
    }
}

// === impl Conditions ===

impl Conditions {
    /// The `matchConditions` of a webhook or of the spec of a policy.
    pub(crate) fn read(from: &Value, names: Names) -> Conditions {
        let list = from.get("matchConditions").and_then(Value::as_array).into_iter().flatten();
        let text = |condition: &Value| str_at(condition, &["expression"]).unwrap_or_default().to_owned();
        Conditions {
            conditions: list.map(|one| Expression::compile(names.environment(), &text(one))).collect(),
            ignores_failures: str_at(from, &["failurePolicy"]) == Some("Ignore"),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether all conditions hold. A condition that does not hold takes precedence over others that fail.
    pub(crate) async fn judge(&self, inputs: &Inputs<'_>, params: &Value, names: Names) -> Matched {
        if self.conditions.is_empty() {
            return Matched::Yes;
        }
        inputs.until_answered(|| self.evaluate(inputs, params, names)).await
    }

    fn evaluate(&self, inputs: &Inputs<'_>, params: &Value, names: Names) -> Matched {
        let seen = inputs.with(params, names);
        let mut activation = Activation::of(&seen);
        let mut budget = Budget::new(MATCH_CONDITIONS_BUDGET, inputs.allowance());
        let mut found = Vec::with_capacity(self.conditions.len());
        // All conditions are evaluated before any result is checked, as upstream, so an exhausted budget takes
        // precedence.
        for condition in &self.conditions {
            match condition.evaluate(&mut activation, &mut budget) {
                Ok(value) => found.push(value),
                Err(spent) => return self.failed(spent.to_string()),
            }
        }
        if found.iter().any(|value| matches!(value, Ok(Cel::Bool(false)))) {
            return Matched::No;
        }
        let errors: Vec<String> = found.into_iter().filter_map(Result::err).collect();
        match errors.as_slice() {
            [] => Matched::Yes,
            [one] => self.failed(one.clone()),
            several => self.failed(format!("[{}]", several.join(", "))),
        }
    }

    fn failed(&self, why: String) -> Matched {
        if self.ignores_failures { Matched::No } else { Matched::Failed(why) }
    }
}
