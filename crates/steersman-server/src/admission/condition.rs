//! What expressions see of a write, and the `matchConditions` of webhooks and policies.
//!
//! Follows apiserver's `admission/plugin/webhook/matchconditions`.

use crate::admission::questions::Questions;
use crate::admission::subject::{Objects, Subject};
use crate::catalog::Served;
use crate::expressions::{Budget, Expression, NAMESPACE, REQUEST};
use crate::status::Failure;
use std::borrow::Cow;
use steersman_cel::{Activation, DeclType, MATCH_CONDITIONS_BUDGET, Resource, Value as Cel};
use steersman_machinery::Value;
use steersman_machinery::value::str_at;

pub(crate) use crate::expressions::Names;

static NULL: Value = Value::Null;

/// What expressions about one write see.
#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    objects: &'a Objects<'a>,
    request: Value,
    namespace: Value,
    questions: &'a Questions<'a>,
    resource: Resource,
}

/// The `matchConditions` of a webhook or a policy.
#[derive(Debug)]
pub(crate) struct Conditions {
    conditions: Vec<Expression>,
    /// `failurePolicy: Ignore`.
    ignores_failures: bool,
}

/// What conditions say of a write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Matched {
    Yes,
    No,
    /// They cannot be evaluated, and failures are not ignored.
    Failed(String),
}

// === impl Inputs ===

impl<'a> Inputs<'a> {
    /// What expressions see of a write in a version.
    ///
    /// # Errors
    /// When the namespace does not exist or cannot be read.
    pub(crate) fn new(
        subject: &Subject<'_>,
        target: &Served,
        objects: &'a Objects<'a>,
        questions: &'a Questions<'a>,
    ) -> Result<Inputs<'a>, Failure> {
        let attributes = &subject.attributes;
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        Ok(Inputs {
            objects,
            request: subject.request(target),
            namespace: subject.namespace_object()?.unwrap_or(Value::Null),
            questions,
            resource: Resource {
                group: attributes.group.to_owned(),
                resource: attributes.resource.to_owned(),
                subresource: text(attributes.subresource),
                namespace: text(attributes.namespace),
                name: subject.name.to_owned(),
                ..Resource::default()
            },
        })
    }

    /// The variables of an evaluation. `params` is null where a policy has none.
    ///
    /// # Errors
    /// When the request or the namespace is not what is declared, which no served object is.
    pub(crate) fn activation<'b>(&'b self, params: &'b Value, names: Names) -> Result<Activation<'b>, String> {
        let read =
            |value: &'b Value, decl: &'static DeclType| Cel::declared(value, decl).map_err(|error| error.to_string());
        let object = |object: &'b Option<Cow<'a, Value>>| Cel::json(object.as_deref().unwrap_or(&NULL));
        let mut activation = Activation::new()
            .with("object", object(&self.objects.new))
            .with("oldObject", object(&self.objects.old))
            .with("request", read(&self.request, &REQUEST)?)
            .with("namespaceObject", read(&self.namespace, &NAMESPACE)?);
        if names.params {
            activation.set("params", Cel::json(params));
        }
        if names.authorizer {
            activation.set("authorizer", Cel::authorizer(self.questions));
            activation.set("authorizer.requestResource", Cel::request_resource(self.questions, self.resource.clone()));
        }
        Ok(activation)
    }

    pub(crate) fn questions(&self) -> &'a Questions<'a> {
        self.questions
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

    /// Whether all of them hold. One that does not counts more than others that fail.
    pub(crate) async fn judge(&self, inputs: &Inputs<'_>, params: &Value, names: Names) -> Matched {
        if self.conditions.is_empty() {
            return Matched::Yes;
        }
        inputs.questions().settle(|| self.evaluate(inputs, params, names)).await
    }

    fn evaluate(&self, inputs: &Inputs<'_>, params: &Value, names: Names) -> Matched {
        let mut activation = match inputs.activation(params, names) {
            Ok(activation) => activation,
            Err(error) => return self.failed(error),
        };
        let mut budget = Budget::new(MATCH_CONDITIONS_BUDGET);
        let mut found = Vec::with_capacity(self.conditions.len());
        // As upstream, all are evaluated before any is looked at, so that a spent budget counts most.
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
