//! The evaluation of the mutations of a MutatingAdmissionPolicy.
//!
//! Independent of plugins and state: `mutating_policy` applies the results.

use crate::write::admission::dynamic::condition::Inputs;
use crate::write::admission::dynamic::policy::definition::{Definition, Policy};
use crate::write::admission::dynamic::policy::patch::{self, Kind};
use steersman_cel::{Activation, OBJECT_BUDGET};
use steersman_kinds::expressions::{Budget, Compiler, Expression, Purpose};
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};

/// A compiled policy.
#[derive(Debug)]
pub(in crate::write::admission) struct Mutating {
    definition: Definition,
    pub(in crate::write::admission) mutations: Vec<Mutation>,
    /// `reinvocationPolicy: IfNeeded`.
    pub(in crate::write::admission) is_reinvoked: bool,
}

#[derive(Debug)]
pub(in crate::write::admission) struct Mutation {
    kind: Kind,
    expression: Expression,
}

impl Policy for Mutating {
    fn read(policy: &Value) -> Mutating {
        let (mut definition, compiler) = Definition::read(policy, Compiler::mutating);
        let list = at(policy, &["spec", "mutations"]).and_then(Value::as_array).into_iter().flatten();
        let mutations = list.map(|mutation| {
            let (kind, field) = match str_at(mutation, &["patchType"]) {
                Some("JSONPatch") => (Kind::JsonPatch, "jsonPatch"),
                _ => (Kind::ApplyConfiguration, "applyConfiguration"),
            };
            let text = str_at(mutation, &[field, "expression"]).unwrap_or_default();
            Mutation { kind, expression: compiler.compile(text, Purpose::Value) }
        });
        let mutations = mutations.collect();
        definition.variables = compiler.into_variables();
        let is_reinvoked = str_at(policy, &["spec", "reinvocationPolicy"]) == Some("IfNeeded");
        Mutating { definition, mutations, is_reinvoked }
    }

    fn definition(&self) -> &Definition {
        &self.definition
    }
}

impl Mutating {
    /// Evaluates a mutation to its patch.
    pub(in crate::write::admission) fn evaluate(
        &self,
        mutation: &Mutation,
        inputs: &Inputs<'_>,
        params: &Value,
    ) -> Result<patch::Patch, patch::Error> {
        let definition = &self.definition;
        let seen = inputs.with(params, definition.names);
        let mut activation = Activation::of(&seen).with_composed(&definition.variables);
        let mut budget = Budget::new(OBJECT_BUDGET, inputs.allowance());
        let value = mutation.expression.evaluate(&mut activation, &mut budget);
        let value = value.map_err(|spent| patch::Error::Unfit(spent.to_string()))?.map_err(patch::Error::Unfit)?;
        patch::Patch::read(mutation.kind, &value, &mut budget, inputs.budget())
    }
}
