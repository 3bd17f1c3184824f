//! CEL as Kubernetes 1.36 defines it: expressions are parsed, checked against declared types, estimated, and evaluated
//! within a budget.
//!
//! ```
//! use steersman_cel::{Activation, DeclType, Environment, Meter, PER_CALL_LIMIT, Value};
//! use steersman_schema::structural;
//!
//! let schema = serde_json::json!({"type": "object", "properties": {
//!     "replicas": {"type": "integer"}, "names": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 63}}}});
//! let decl = DeclType::from_schema(&structural::compile(&schema)).expect("an object is seen");
//! let environment = Environment::new().declare("self", decl.clone());
//!
//! let rule = environment.compile("self.replicas > 0 && self.names.all(name, name.startsWith('a'))")?;
//! assert_eq!(rule.output().to_string(), "bool");
//! assert!(rule.cost().max < steersman_cel::RULE_COST_LIMIT);
//!
//! let object = serde_json::json!({"replicas": 3, "names": ["ab", "b"]});
//! let mut activation = Activation::new().with("self", Value::declared(&object, &decl)?);
//! let mut meter = Meter::new(PER_CALL_LIMIT);
//! assert_eq!(rule.evaluate(&mut activation, &mut meter)?.as_bool(), Some(false));
//! assert_eq!(meter.spent(), 16);
//!
//! let error = environment.compile("self.size > 0").unwrap_err();
//! assert_eq!(error.to_string(), "ERROR: <input>:1:5: undefined field 'size'\n | self.size > 0\n | ....^");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An [`Environment`] has variables with a [`DeclType`], which is made from a structural schema or by hand. It compiles
//! an expression once into a [`Program`], which has an output type and an estimated cost. A program is evaluated with
//! an [`Activation`], the values of its variables, and a [`Meter`], which counts the cost of evaluations. Values borrow
//! JSON trees and the strings of the expression instead of copying them.
//!
//! No input causes a panic, or unbounded recursion, time or memory: an expression is bounded by its length, its depth,
//! its budget, and by the work that a [meter](Meter) allows besides the budget. Messages, costs and functions follow
//! cel-go and Kubernetes' environment; the parser is our own, because the `cel` crate links a parser generator's
//! runtime, and has no macros of two variables.

mod checking;
mod cost;
mod evaluation;
mod syntax;

mod environment;
mod error;
mod program;

pub use crate::checking::decl::{DeclType, ObjectDecl};
pub use crate::checking::types::Type;
pub use crate::cost::estimate::{Range, factor_over};
pub use crate::cost::meter::Meter;
pub use crate::environment::Environment;
pub use crate::error::{CompileError, EvalError};
pub use crate::evaluation::data::authorizer::{Authorizer, Decision, Question, Resource, ServiceAccount, Target};
pub use crate::evaluation::value::Value;
pub use crate::program::{Activation, Program, Variables};
pub use crate::syntax::escape::escape;

/// The cost limit of one evaluation.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// The cost limit of all rules of an object together, or of all expressions of a policy for a request.
pub const OBJECT_BUDGET: u64 = 10_000_000;
/// The cost limit of all match conditions of a webhook or a policy together.
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;
/// The limit of the estimated cost of one rule of a definition.
pub const RULE_COST_LIMIT: u64 = 10_000_000;
/// The limit of the estimated cost of all rules of a schema.
pub const SCHEMA_COST_LIMIT: u64 = 100_000_000;
