//! The kinds of API priority and fairness: flow schemas and priority levels.

use crate::builtin::rules::rule::{Check, Rule};

pub mod bootstrap;
pub mod level;
pub mod schema;

pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// The rules of the conditions of the status.
const CONDITIONS: Rule =
    Rule::new("status.conditions[]", Check::Rules(&[Rule::new("type", Check::Unique), Rule::required("type", "")]));
