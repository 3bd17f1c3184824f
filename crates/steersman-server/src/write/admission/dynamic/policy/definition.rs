//! The common parts of policies of both kinds, and their bindings, read from their stored form.

use crate::write::admission::dynamic::condition::Conditions;
use crate::write::admission::dynamic::matching::Criteria;
use std::fmt;
use steersman_kinds::builtin::rules::selector;
use steersman_kinds::expressions::{Compiler, Names, Variables};
use steersman_machinery::selector::Labels;
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{GroupVersion, Value};

/// A policy of one of the two kinds.
pub(in crate::write::admission) trait Policy:
    fmt::Debug + Send + Sync + Sized + 'static
{
    /// Reads and compiles a policy. An expression that does not compile fails when it is evaluated.
    fn read(policy: &Value) -> Self;

    fn definition(&self) -> &Definition;
}

/// The common parts of policies of both kinds.
#[derive(Debug)]
pub(in crate::write::admission) struct Definition {
    pub(in crate::write::admission) name: Box<str>,
    pub(in crate::write::admission) criteria: Criteria,
    pub(in crate::write::admission) param_kind: Option<ParamKind>,
    pub(in crate::write::admission) names: Names,
    pub(in crate::write::admission) conditions: Conditions,
    pub(in crate::write::admission) variables: Variables,
    /// `failurePolicy: Ignore`.
    pub(in crate::write::admission) ignores_failures: bool,
}

/// The kind of the parameters.
#[derive(Debug)]
pub(in crate::write::admission) struct ParamKind {
    pub(in crate::write::admission) version: GroupVersion,
    pub(in crate::write::admission) kind: Box<str>,
}

/// A binding of a policy.
#[derive(Debug)]
pub(in crate::write::admission) struct Binding {
    pub(in crate::write::admission) name: Box<str>,
    pub(in crate::write::admission) policy: Box<str>,
    pub(in crate::write::admission) criteria: Criteria,
    pub(in crate::write::admission) params: Option<ParamRef>,
    pub(in crate::write::admission) actions: Actions,
    /// The actions as written, for the audit log.
    pub(in crate::write::admission) action_names: Value,
}

/// The actions of a validating policy on a write that violates it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(in crate::write::admission) struct Actions {
    pub(in crate::write::admission) audit: bool,
    pub(in crate::write::admission) deny: bool,
    pub(in crate::write::admission) warn: bool,
}

/// The parameters that a binding selects.
#[derive(Debug)]
pub(in crate::write::admission) struct ParamRef {
    pub(in crate::write::admission) which: Which,
    pub(in crate::write::admission) namespace: Option<Box<str>>,
    /// `parameterNotFoundAction: Deny`.
    pub(in crate::write::admission) must_exist: bool,
}

#[derive(Debug)]
pub(in crate::write::admission) enum Which {
    Named(Box<str>),
    /// `None` if the selector cannot be parsed.
    Selected(Option<Labels>),
}

impl Definition {
    /// Reads the common parts of a policy. The returned compiler has its variables, for the expressions that use them.
    pub(in crate::write::admission) fn read(
        policy: &Value,
        compiler: impl FnOnce(Names) -> Compiler,
    ) -> (Definition, Compiler) {
        let spec = at(policy, &["spec"]).unwrap_or(&Value::Null);
        let text = |value: &Value, key: &str| -> Box<str> { str_at(value, &[key]).unwrap_or_default().into() };
        let param_kind = spec.get("paramKind").filter(|kind| !kind.is_null()).map(|kind| {
            let api_version = text(kind, "apiVersion");
            let version = GroupVersion::parse(&api_version).unwrap_or_else(|| GroupVersion::new("", &*api_version));
            ParamKind { version, kind: text(kind, "kind") }
        });
        let names = Names { params: param_kind.is_some(), authorizer: true };
        let mut compiler = compiler(names);
        for variable in spec.get("variables").and_then(Value::as_array).into_iter().flatten() {
            // A variable that does not compile was refused at its write; an expression that uses it fails.
            let _fault = compiler.add(&text(variable, "name"), &text(variable, "expression"));
        }
        let definition = Definition {
            name: str_at(policy, &["metadata", "name"]).unwrap_or_default().into(),
            criteria: Criteria::of_resources(spec.get("matchConstraints")),
            param_kind,
            names,
            conditions: Conditions::read(spec, names),
            variables: Variables::new(),
            ignores_failures: str_at(spec, &["failurePolicy"]) == Some("Ignore"),
        };
        (definition, compiler)
    }
}

impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupVersion { group, version } = &self.version;
        match group.is_empty() {
            true => write!(f, "/{version}, Kind={}", self.kind),
            false => write!(f, "{group}/{version}, Kind={}", self.kind),
        }
    }
}

impl Binding {
    pub(in crate::write::admission) fn read(binding: &Value) -> Binding {
        let spec = at(binding, &["spec"]).unwrap_or(&Value::Null);
        let actions = spec.get("validationActions").cloned().unwrap_or_default();
        let has = |action: &str| actions.as_array().into_iter().flatten().any(|one| one == action);
        Binding {
            name: str_at(binding, &["metadata", "name"]).unwrap_or_default().into(),
            policy: str_at(spec, &["policyName"]).unwrap_or_default().into(),
            criteria: Criteria::of_resources(spec.get("matchResources")),
            params: spec.get("paramRef").filter(|reference| !reference.is_null()).map(ParamRef::read),
            actions: Actions { audit: has("Audit"), deny: has("Deny"), warn: has("Warn") },
            action_names: actions,
        }
    }
}

impl ParamRef {
    fn read(reference: &Value) -> ParamRef {
        let text = |key: &str| str_at(reference, &[key]).filter(|text| !text.is_empty()).map(Box::from);
        ParamRef {
            which: match text("name") {
                Some(name) => Which::Named(name),
                None => Which::Selected(selector::parse(reference.get("selector").unwrap_or(&Value::Null))),
            },
            namespace: text("namespace"),
            must_exist: str_at(reference, &["parameterNotFoundAction"]) != Some("Allow"),
        }
    }
}
