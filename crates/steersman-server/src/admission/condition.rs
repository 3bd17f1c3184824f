//! Expressions about a write: what they may name, how they are compiled, and the `matchConditions` of webhooks and policies.
//!
//! Follows apiserver's `admission/plugin/cel` and `webhook/matchconditions`.

use crate::admission::questions::Questions;
use crate::admission::subject::{Objects, Subject};
use crate::catalog::Served;
use crate::status::Failure;
use std::borrow::Cow;
use std::sync::{Arc, LazyLock};
use steersman_cel::{
    Activation, CompileError, DeclType, Environment, MATCH_CONDITIONS_BUDGET, Meter, PER_CALL_LIMIT, Program, Resource,
    Type, Value as Cel,
};
use steersman_machinery::Value;
use steersman_machinery::value::str_at;

static NULL: Value = Value::Null;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// What expressions may name beside the objects, the request and the namespace.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Names {
    pub(crate) params: bool,
    pub(crate) authorizer: bool,
}

/// An expression, compiled or not.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) text: Box<str>,
    program: Result<Program, CompileError>,
}

/// What the evaluations of one webhook or policy may still cost.
#[derive(Debug)]
pub(crate) struct Budget(u64);

/// The budget is spent. Nothing more is evaluated.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{OUT_OF_BUDGET}")]
pub(crate) struct OutOfBudget;

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

static BASE: LazyLock<Environment> = LazyLock::new(|| {
    let any = DeclType::dynamic;
    Environment::new()
        .declare("object", any())
        .declare("oldObject", any())
        .declare("request", REQUEST.clone())
        .declare("namespaceObject", NAMESPACE.clone())
});

/// How large texts, lists and maps in requests are taken to be when costs are estimated.
const ELEMENTS_MAX: u64 = 1024;

static REQUEST: LazyLock<DeclType> = LazyLock::new(|| {
    let text = DeclType::string;
    let texts = || DeclType::list(text(), ELEMENTS_MAX);
    let kind = || {
        let fields = ["group", "version", "kind"].map(|name| (name, text()));
        DeclType::object("kubernetes.GroupVersionKind", fields)
    };
    let resource = || {
        let fields = ["group", "version", "resource"].map(|name| (name, text()));
        DeclType::object("kubernetes.GroupVersionResource", fields)
    };
    let user = DeclType::object(
        "kubernetes.UserInfo",
        [("username", text()), ("uid", text()), ("groups", texts()), ("extra", DeclType::map(texts(), ELEMENTS_MAX))],
    );
    DeclType::object(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", text()),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", DeclType::boolean()),
            ("options", DeclType::dynamic()),
        ],
    )
});

/// Of a Namespace what does not change from one to the next: no uid, no owners, no managers.
static NAMESPACE: LazyLock<DeclType> = LazyLock::new(|| {
    let (text, time, number) = (DeclType::string, DeclType::timestamp, DeclType::integer);
    let texts = || DeclType::list(text(), ELEMENTS_MAX);
    let map = || DeclType::map(text(), ELEMENTS_MAX);
    let metadata = DeclType::object(
        "kubernetes.NamespaceMetadata",
        [
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", map()),
            ("annotations", map()),
            // As upstream, where the field of this name is never set.
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", number()),
            ("deletionTimestamp", time()),
            ("generation", number()),
            ("resourceVersion", text()),
            ("finalizers", texts()),
        ],
    );
    let condition = DeclType::object(
        "kubernetes.NamespaceCondition",
        [("status", text()), ("type", text()), ("lastTransitionTime", time()), ("message", text()), ("reason", text())],
    );
    let status = DeclType::object(
        "kubernetes.NamespaceStatus",
        [("conditions", DeclType::list(condition, ELEMENTS_MAX)), ("phase", text())],
    );
    let spec = DeclType::object("kubernetes.NamespaceSpec", [("finalizers", texts())]);
    DeclType::object("kubernetes.Namespace", [("metadata", metadata), ("spec", spec), ("status", status)])
});

static ENVIRONMENTS: LazyLock<[Environment; 4]> = LazyLock::new(|| {
    [(false, false), (false, true), (true, false), (true, true)].map(|(params, authorizer)| {
        let with_params = if params { BASE.clone().declare("params", DeclType::dynamic()) } else { BASE.clone() };
        if authorizer { with_params.with_authorizer() } else { with_params }
    })
});

impl Names {
    /// What the conditions of webhooks may name.
    pub(crate) const WEBHOOK: Names = Names { params: false, authorizer: true };

    /// The environment in which expressions are compiled.
    pub(crate) fn environment(self) -> &'static Environment {
        &ENVIRONMENTS[usize::from(self.params) * 2 + usize::from(self.authorizer)]
    }
}

// === impl Expression ===

impl Expression {
    pub(crate) fn compile(environment: &Environment, text: &str) -> Expression {
        Expression { text: text.into(), program: environment.compile(text) }
    }

    /// What it compiles to; none if it does not.
    pub(crate) fn program(&self) -> Option<&Program> {
        self.program.as_ref().ok()
    }

    /// Its value, or why it has none in upstream's words.
    ///
    /// # Errors
    /// When the budget is spent.
    pub(crate) fn evaluate<'a>(
        &'a self,
        activation: &mut Activation<'a>,
        budget: &mut Budget,
    ) -> Result<Result<Cel<'a>, String>, OutOfBudget> {
        let program = match &self.program {
            Ok(program) => program,
            Err(error) => return Ok(Err(format!("compilation error: compilation failed: {error}"))),
        };
        let mut meter = Meter::new(PER_CALL_LIMIT);
        let value = program.evaluate(activation, &mut meter);
        budget.take(meter.spent())?;
        Ok(value.map_err(|error| format!("expression '{}' resulted in error: {error}", self.text)))
    }
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Budget {
        Budget(limit)
    }

    fn take(&mut self, cost: u64) -> Result<(), OutOfBudget> {
        self.0 = self.0.checked_sub(cost).ok_or(OutOfBudget)?;
        Ok(())
    }
}

/// What is wrong with an expression that must have one of these types; none if nothing is.
pub(crate) fn fault(environment: &Environment, text: &str, wanted: &[Type]) -> Option<String> {
    let program = match environment.compile(text) {
        Ok(program) => program,
        Err(error) => return Some(format!("compilation failed: {error}")),
    };
    let found = program.output();
    if wanted.is_empty() || wanted.contains(found) {
        return None;
    }
    match wanted {
        [one] => Some(format!("must evaluate to {one} but got {found}")),
        several => {
            let several: Vec<String> = several.iter().map(ToString::to_string).collect();
            Some(format!("must evaluate to one of [{}]", several.join(" ")))
        }
    }
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

/// Earlier expressions of a policy, known as fields of `variables`.
pub(crate) type Variables = Vec<(Arc<str>, Program)>;
