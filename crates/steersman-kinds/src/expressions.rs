//! Expressions about writes: the names that they may use, and how they are compiled and evaluated.
//!
//! The kinds that register webhooks and policies check expressions with this, and admission evaluates them. Follows
//! apiserver's `admission/plugin/cel`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use steersman_cel::{
    Activation, CompileError, DeclType, Environment, Meter, OBJECT_BUDGET, PER_CALL_LIMIT, Program, Type, Value as Cel,
};
use steersman_machinery::Value;

/// The cost limit of all expressions about one request together: that of three policies.
const REQUEST_BUDGET: u64 = 3 * OBJECT_BUDGET;

/// The cost and the work of expressions up to which a request stays on the worker that polls it: a millisecond or two.
pub(crate) const BRIEF_COST: u64 = 20_000;
pub(crate) const BRIEF_WORK: u64 = 256 << 10;

/// The steps that compiling an expression takes, and those that it takes for each byte.
pub(crate) const COMPILING_STEPS: usize = 2000;
pub(crate) const COMPILING_STEPS_PER_BYTE: usize = 50;

/// The variables of expressions besides the objects, the request and the namespace.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Names {
    pub params: bool,
    pub authorizer: bool,
}

/// The use of an expression, which decides whether it may ask the authorizer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// It makes the message of a refusal, and cannot ask the authorizer.
    Message,
    /// It decides, or makes a value.
    Value,
}

/// An expression, compiled or not.
#[derive(Debug)]
pub struct Expression {
    pub text: Box<str>,
    program: Result<Program, CompileError>,
}

/// The cost that is left for the evaluations of one webhook or policy.
#[derive(Debug)]
pub struct Budget<'a> {
    cost: u64,
    work: u64,
    /// Shared by all policies and webhooks of the request.
    shared: &'a Allowance,
}

/// The cost that is left for all expressions about one request. Upstream bounds the cost of each policy and each webhook, but not
/// their number. It is changed by one task at a time; it is atomic because the task may change its thread.
#[derive(Debug)]
pub struct Allowance {
    cost: AtomicU64,
    work: AtomicU64,
    /// The cost of one evaluation.
    per_call: AtomicU64,
}

/// A budget is spent. Nothing more is evaluated.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OutOfBudget {
    /// The budget of the policy or the webhook. The message is upstream's.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    Own,
    /// The allowance of the request.
    #[error(
        "the expressions of the policies and webhooks that are about this request cost more than {REQUEST_BUDGET} together, which is the most for one request; the rest of them is not evaluated"
    )]
    Shared,
}

static BASE: LazyLock<Environment> = LazyLock::new(|| {
    let any = DeclType::dynamic;
    Environment::new()
        .declare("object", any())
        .declare("oldObject", any())
        .declare("request", REQUEST.clone())
        .declare("namespaceObject", NAMESPACE.clone())
});

/// The size that the cost estimate assumes for texts, lists and maps in requests.
const ELEMENTS_MAX: u64 = 1024;

/// An object whose fields have their JSON names, even where CEL would have them escaped, such as `namespace`.
fn object<const N: usize>(name: &str, fields: [(&str, DeclType); N]) -> DeclType {
    DeclType::object_of(name, fields.map(|(field, decl)| (field.to_owned(), decl)))
}

pub static REQUEST: LazyLock<DeclType> = LazyLock::new(|| {
    let text = DeclType::string;
    let texts = || DeclType::list(text(), ELEMENTS_MAX);
    let kind = || {
        let fields = ["group", "version", "kind"].map(|name| (name, text()));
        object("kubernetes.GroupVersionKind", fields)
    };
    let resource = || {
        let fields = ["group", "version", "resource"].map(|name| (name, text()));
        object("kubernetes.GroupVersionResource", fields)
    };
    let user = object(
        "kubernetes.UserInfo",
        [("username", text()), ("uid", text()), ("groups", texts()), ("extra", DeclType::map(texts(), ELEMENTS_MAX))],
    );
    object(
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

/// The fields of a Namespace that policies may read: those that have the same meaning for every Namespace, so no uid,
/// no owners, no managers.
pub static NAMESPACE: LazyLock<DeclType> = LazyLock::new(|| {
    let (text, time, number) = (DeclType::string, DeclType::timestamp, DeclType::integer);
    let texts = || DeclType::list(text(), ELEMENTS_MAX);
    let map = || DeclType::map(text(), ELEMENTS_MAX);
    let metadata = object(
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
    let condition = object(
        "kubernetes.NamespaceCondition",
        [("status", text()), ("type", text()), ("lastTransitionTime", time()), ("message", text()), ("reason", text())],
    );
    let status = object(
        "kubernetes.NamespaceStatus",
        [("conditions", DeclType::list(condition, ELEMENTS_MAX)), ("phase", text())],
    );
    let spec = object("kubernetes.NamespaceSpec", [("finalizers", texts())]);
    object("kubernetes.Namespace", [("metadata", metadata), ("spec", spec), ("status", status)])
});

static ENVIRONMENTS: LazyLock<[Environment; 4]> = LazyLock::new(|| {
    [(false, false), (false, true), (true, false), (true, true)].map(|(params, authorizer)| {
        let with_params = if params { BASE.clone().declare("params", DeclType::dynamic()) } else { BASE.clone() };
        if authorizer { with_params.with_authorizer() } else { with_params }
    })
});

/// Earlier expressions of a policy, available as fields of `variables`.
pub type Variables = Vec<(Arc<str>, Program)>;

/// Compiles the expressions of a policy, each of which may use the variables before it.
#[derive(Debug)]
pub struct Compiler {
    names: Names,
    has_objects: bool,
    /// The declared types of objects and parameters; `None` for any.
    declared: Option<(DeclType, Option<DeclType>)>,
    types: BTreeMap<Arc<str>, Type>,
    variables: Variables,
}

impl Names {
    /// The variables of webhooks' match conditions.
    pub const WEBHOOK: Names = Names { params: false, authorizer: true };

    /// The environment in which expressions are compiled.
    pub fn environment(self) -> &'static Environment {
        &ENVIRONMENTS[usize::from(self.params) * 2 + usize::from(self.authorizer)]
    }
}

// === impl Expression ===

impl Expression {
    pub fn compile(environment: &Environment, text: &str) -> Expression {
        Expression { text: text.into(), program: environment.compile(text) }
    }

    /// Its value, or upstream's message if it has none.
    ///
    /// # Errors
    /// When the budget is spent.
    pub fn evaluate<'a>(
        &'a self,
        activation: &mut Activation<'a>,
        budget: &mut Budget<'_>,
    ) -> Result<Result<Cel<'a>, String>, OutOfBudget> {
        if budget.shared.is_spent() {
            return Err(OutOfBudget::Shared);
        }
        let program = match &self.program {
            Ok(program) => program,
            Err(error) => return Ok(Err(format!("compilation error: {}", failed(error)))),
        };
        let value = budget.metered(|meter| program.evaluate(activation, meter))?;
        Ok(value.map_err(|error| format!("expression '{}' resulted in error: {error}", self.text)))
    }
}

impl<'a> Budget<'a> {
    pub fn new(limit: u64, shared: &'a Allowance) -> Budget<'a> {
        Budget { cost: limit, work: Meter::object_work(), shared }
    }

    /// Evaluates an expression, or converts its value, within what is left.
    ///
    /// # Errors
    /// When the budget is spent.
    pub fn metered<T>(&mut self, compute: impl FnOnce(&mut Meter) -> T) -> Result<T, OutOfBudget> {
        if self.shared.is_spent() {
            return Err(OutOfBudget::Shared);
        }
        let mut meter = Meter::sharing(self.shared.per_call.load(Ordering::Relaxed), self.work_now());
        let value = compute(&mut meter);
        self.take(&meter)?;
        Ok(value)
    }

    /// The work that the next evaluation may do.
    fn work_now(&self) -> u64 {
        self.work.min(self.shared.work.load(Ordering::Relaxed))
    }

    fn take(&mut self, meter: &Meter) -> Result<(), OutOfBudget> {
        let before = self.work_now();
        let done = before - meter.work_left(before);
        self.shared.take(meter.spent(), done);
        self.work -= done;
        self.cost = self.cost.checked_sub(meter.spent()).ok_or(OutOfBudget::Own)?;
        Ok(())
    }
}

impl Default for Allowance {
    fn default() -> Allowance {
        let work = Meter::object_work() * (REQUEST_BUDGET / OBJECT_BUDGET);
        let per_call = AtomicU64::new(PER_CALL_LIMIT);
        Allowance { cost: AtomicU64::new(REQUEST_BUDGET), work: AtomicU64::new(work), per_call }
    }
}

impl Allowance {
    /// Evaluates within a small part of what is left. `None` if that was too little: what was found out then means nothing.
    pub fn briefly<T>(&self, evaluate: impl FnOnce() -> T) -> Option<T> {
        let parts = [(&self.cost, BRIEF_COST), (&self.work, BRIEF_WORK)];
        let withheld = parts.map(|(left, part)| {
            let all = left.load(Ordering::Relaxed);
            left.store(all.min(part), Ordering::Relaxed);
            all.saturating_sub(part)
        });
        self.per_call.store(BRIEF_COST, Ordering::Relaxed);
        let value = evaluate();
        let is_enough = !self.is_spent();
        self.per_call.store(PER_CALL_LIMIT, Ordering::Relaxed);
        for ((left, _), withheld) in parts.into_iter().zip(withheld) {
            left.store(left.load(Ordering::Relaxed).saturating_add(withheld), Ordering::Relaxed);
        }
        is_enough.then_some(value)
    }

    fn is_spent(&self) -> bool {
        self.cost.load(Ordering::Relaxed) == 0 || self.work.load(Ordering::Relaxed) == 0
    }

    fn take(&self, cost: u64, work: u64) {
        for (left, taken) in [(&self.cost, cost), (&self.work, work)] {
            left.store(left.load(Ordering::Relaxed).saturating_sub(taken), Ordering::Relaxed);
        }
    }
}

/// The steps that compiling the expressions of an object takes, which are the texts of the fields `expression`, `messageExpression` and
/// `valueExpression` wherever they are, and those of the search for them.
pub(crate) fn compiling_steps(object: &Value) -> usize {
    let of_field = |(name, value): (&String, &Value)| match value {
        Value::String(text) if name.ends_with("xpression") => COMPILING_STEPS + text.len() * COMPILING_STEPS_PER_BYTE,
        value => compiling_steps(value),
    };
    match object {
        Value::Object(fields) => 1 + fields.iter().map(of_field).sum::<usize>(),
        Value::Array(items) => 1 + items.iter().map(compiling_steps).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// The message of an expression that does not compile, as upstream words it.
fn failed(error: &CompileError) -> String {
    match error.is_of_instantiation() {
        true => format!("instantiation failed: {error}"),
        false => format!("compilation failed: {error}"),
    }
}

/// The error of an expression that must have one of these types, or any type if there are none.
pub fn fault(environment: &Environment, text: &str, wanted: &[Type]) -> Option<String> {
    match environment.compile(text) {
        Ok(program) => mismatch(program.output(), wanted),
        Err(error) => Some(failed(&error)),
    }
}

fn mismatch(found: &Type, wanted: &[Type]) -> Option<String> {
    if wanted.is_empty() || wanted.contains(found) {
        return None;
    }
    Some(match wanted {
        [one] => format!("must evaluate to {} but got {}", type_name(one), type_name(found)),
        several => {
            let several: Vec<String> = several.iter().map(type_name).collect();
            format!("must evaluate to one of [{}]", several.join(" "))
        }
    })
}

/// The name of a type where upstream prints the type itself, not the checker's form.
fn type_name(of: &Type) -> String {
    match of {
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::Null => "null_type".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        other => other.to_string(),
    }
}

// === impl Compiler ===

impl Compiler {
    /// Compiles the expressions of a validating policy.
    pub fn validating(names: Names) -> Compiler {
        Compiler { names, has_objects: false, declared: None, types: BTreeMap::new(), variables: Vec::new() }
    }

    /// Compiles the expressions of a mutating policy, which may write object literals.
    pub fn mutating(names: Names) -> Compiler {
        Compiler { has_objects: true, ..Compiler::validating(names) }
    }

    /// Checks expressions against the types of objects and parameters.
    pub fn checking(object: &DeclType, params: Option<&DeclType>) -> Compiler {
        let names = Names { params: params.is_some(), authorizer: true };
        Compiler { declared: Some((object.clone(), params.cloned())), ..Compiler::validating(names) }
    }

    /// The environment of an expression. Only variables whose names occur in it are declared, so that many variables do
    /// not make each expression slower.
    pub fn environment(&self, text: &str, purpose: Purpose) -> Environment {
        let names = Names { authorizer: purpose == Purpose::Value, ..self.names };
        let environment = self.declare(names.environment().clone());
        let environment = if self.has_objects { environment.with_object_types() } else { environment };
        let words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
        environment
            .with_composed(words.filter_map(|word| self.types.get_key_value(word)).map(|(name, of)| (&**name, of)))
    }

    fn declare(&self, environment: Environment) -> Environment {
        let Some((object, params)) = &self.declared else { return environment };
        let environment = environment.declare("object", object.clone()).declare("oldObject", object.clone());
        match params {
            Some(params) => environment.declare("params", params.clone()),
            None => environment,
        }
    }

    /// Adds a variable for the expressions after it. Returns its error, if it has one; its type is then `dyn`.
    pub fn add(&mut self, name: &str, text: &str) -> Option<String> {
        let (of, fault) = match self.environment(text, Purpose::Value).compile(text) {
            Ok(program) => {
                let of = program.output().clone();
                self.variables.push((name.into(), program));
                (of, None)
            }
            Err(error) => (Type::Dyn, Some(failed(&error))),
        };
        self.types.insert(name.into(), of);
        fault
    }

    /// The error of an expression that must have one of these types.
    pub fn fault(&self, text: &str, purpose: Purpose, wanted: &[Type]) -> Option<String> {
        fault(&self.environment(text, purpose), text, wanted)
    }

    pub fn compile(&self, text: &str, purpose: Purpose) -> Expression {
        Expression::compile(&self.environment(text, purpose), text)
    }

    /// The variables with which expressions are evaluated.
    pub fn into_variables(self) -> Variables {
        self.variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression() -> Expression {
        Expression::compile(&Environment::new(), "[1, 2, 3].all(n, n < 4)")
    }

    /// Evaluates with a budget of its own.
    fn evaluate(expression: &Expression, shared: &Allowance) -> Result<bool, OutOfBudget> {
        let mut budget = Budget::new(OBJECT_BUDGET, shared);
        let value = expression.evaluate(&mut Activation::new(), &mut budget)?;
        Ok(value.ok().and_then(|value| value.as_bool()) == Some(true))
    }

    #[test]
    fn fifteen_hundred_policies_cost_no_more_than_the_request_may() {
        let expression = expression();
        let probe = Allowance::default();
        assert_eq!(evaluate(&expression, &probe), Ok(true));
        let cost = REQUEST_BUDGET - probe.cost.load(Ordering::Relaxed);
        assert!(cost > 0);
        let shared = Allowance { cost: AtomicU64::new(100 * cost), ..Allowance::default() };
        let outcomes: Vec<_> = (0..1500).map(|_| evaluate(&expression, &shared)).collect();
        assert!(outcomes[..100].iter().all(|outcome| *outcome == Ok(true)));
        assert!(outcomes[100..].iter().all(|outcome| *outcome == Err(OutOfBudget::Shared)));
        assert_eq!(
            OutOfBudget::Shared.to_string(),
            "the expressions of the policies and webhooks that are about this request cost more than 30000000 together, \
             which is the most for one request; the rest of them is not evaluated"
        );
    }

    #[test]
    fn one_policy_that_spends_its_own_budget_leaves_the_rest_to_others() {
        let (expression, shared) = (expression(), Allowance::default());
        let mut own = Budget::new(1, &shared);
        let spent = expression.evaluate(&mut Activation::new(), &mut own).map(|_| ());
        assert_eq!(spent, Err(OutOfBudget::Own));
        assert_eq!(evaluate(&expression, &shared), Ok(true));
    }
}
