//! Compiled expressions, and the variables for their evaluation.

use crate::checking::types::Type;
use crate::cost::estimate::Range;
use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::eval;
use crate::evaluation::plan::Plan;
use crate::evaluation::value::Value;
use std::sync::Arc;

/// A compiled expression. It can be evaluated repeatedly, from any thread.
#[derive(Debug)]
pub struct Program {
    pub(crate) plan: Plan,
    pub(crate) cost: Range,
    pub(crate) output: Type,
}

impl Program {
    /// The type of its value.
    pub fn output(&self) -> &Type {
        &self.output
    }

    /// The estimated cost of an evaluation, from the declarations.
    pub fn cost(&self) -> Range {
        self.cost
    }

    /// Whether it refers to a variable of the environment.
    pub fn uses(&self, variable: &str) -> bool {
        self.plan.variables.iter().any(|name| **name == *variable)
    }

    /// The names of the composed expressions that it refers to.
    pub fn composed(&self) -> impl Iterator<Item = &str> {
        self.plan.composed.iter().map(|name| &**name)
    }

    /// The value for these variables. The cost is added to the meter.
    ///
    /// # Errors
    /// With upstream's message; [`EvalError::is_budget`] when the meter's limit is reached.
    pub fn evaluate<'a>(&'a self, activation: &mut Activation<'a>, meter: &mut Meter) -> Result<Value<'a>, EvalError> {
        eval::evaluate(&self.plan, activation, meter)
    }
}

/// A source of variables whose values are costly to make: each is only requested if an expression refers to it.
pub trait Variables {
    /// The value of a variable, if it has one.
    fn variable(&self, name: &str) -> Option<Value<'_>>;
}

/// The values of variables, and of the composed expressions evaluated so far.
#[derive(Default)]
pub struct Activation<'a> {
    variables: Vec<(&'static str, Value<'a>)>,
    others: Option<&'a dyn Variables>,
    composed: &'a [(Arc<str>, Program)],
    values: Vec<Option<Result<Value<'a>, EvalError>>>,
}

impl<'a> Activation<'a> {
    /// An activation without variables.
    pub fn new() -> Activation<'a> {
        Activation::default()
    }

    /// An activation with the variables of a source.
    pub fn of(variables: &'a dyn Variables) -> Activation<'a> {
        Activation { others: Some(variables), ..Activation::default() }
    }

    /// Adds a variable.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: Value<'a>) -> Activation<'a> {
        self.set(name, value);
        self
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &'static str, value: Value<'a>) {
        match self.variables.iter_mut().find(|(known, _)| *known == name) {
            Some((_, slot)) => *slot = value,
            None => self.variables.push((name, value)),
        }
    }

    /// Adds expressions that are fields of `variables`. Each is evaluated once, when it is first used.
    #[must_use]
    pub fn with_composed(mut self, composed: &'a [(Arc<str>, Program)]) -> Activation<'a> {
        self.composed = composed;
        self.values = composed.iter().map(|_| None).collect();
        self
    }

    pub(crate) fn variable(&self, name: &str) -> Option<Value<'a>> {
        match self.variables.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => Some(value.clone()),
            None => self.others?.variable(name),
        }
    }

    /// The value of a composed expression.
    pub(crate) fn compose(&mut self, name: &str, meter: &mut Meter) -> Result<Value<'a>, EvalError> {
        let composed = self.composed;
        let found = composed.iter().position(|(known, _)| **known == *name);
        let Some(at) = found else { return Err(EvalError::no_key(name)) };
        if let Some(value) = &self.values[at] {
            return value.clone();
        }
        let value = composed[at].1.evaluate(self, meter).map_err(|error| {
            if error.is_budget() {
                return error;
            }
            EvalError::new(format!("composited variable \"{name}\" fails to evaluate: {error}"))
        });
        self.values[at] = Some(value.clone());
        value
    }
}
