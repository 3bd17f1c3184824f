//! `x-kubernetes-validations`: the CEL rules of a definition for its objects.
//!
//! [`Rules`] are those of one version, compiled from its schema when an object is first written in it, so that
//! definitions whose objects are never written cost nothing, and those without rules next to nothing. [`Rules::judge`]
//! evaluates them on an object, [`errors`] validates them in a definition. Texts, order and budgets are
//! kube-apiserver's.
//!
//! Rules are evaluated at their positions in the schema without copying: the values of `self` and `oldSelf` borrow the
//! trees of the object.

mod compile;
mod definition;
mod evaluate;

pub(super) use crate::crd::rules::definition::{SchemaContext, errors, judge_default};

use crate::crd::rules::compile::Node;
use crate::crd::rules::evaluate::Pass;
use crate::strategy::Effort;
use std::sync::{Arc, OnceLock};
use steersman_cel::{DeclType, OBJECT_BUDGET};
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Kind, Path};
use steersman_schema::Schema;

/// The rules of one version of a definition.
#[derive(Debug)]
pub(super) struct Rules {
    schema: Arc<Schema>,
    /// `None` if there is no rule.
    compiled: OnceLock<Option<Box<Node>>>,
}

impl Rules {
    pub(super) fn new(schema: Arc<Schema>) -> Rules {
        Rules { schema, compiled: OnceLock::new() }
    }

    /// Whether they are compiled, or there are none.
    pub(super) fn are_ready(&self) -> bool {
        self.compiled.get().is_some() || !has_rules(&self.schema)
    }

    /// Tries the rules on an object whose other errors are known, and adds the errors that they find. Returns what a client
    /// is warned of: rules that do not hold for values that the update does not change. `None`, and no error, if the effort was too little.
    pub(super) fn judge(
        &self,
        object: &Value,
        old: Option<&Value>,
        errors: &mut Vec<Error>,
        effort: Effort,
    ) -> Option<Vec<String>> {
        let Some(root) = self.compiled.get_or_init(|| compiled(&self.schema)) else { return Some(Vec::new()) };
        if errors.iter().any(is_blocking) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors \
                          to complete validation";
            errors.push(Error::invalid(&Path::new("<nil>"), Value::Null, detail));
            return Some(Vec::new());
        }
        if effort == Effort::Whole {
            let mut pass = Pass::new(None, OBJECT_BUDGET, errors);
            pass.object(root, object, old);
            return Some(pass.into_warnings());
        }
        let mut found = Vec::new();
        let mut pass = Pass::brief(&mut found);
        pass.object(root, object, old);
        pass.budget()?;
        let warnings = pass.into_warnings();
        errors.append(&mut found);
        Some(warnings)
    }
}

/// The rules of a schema and of all schemas in it.
fn compiled(schema: &Schema) -> Option<Box<Node>> {
    if !has_rules(schema) {
        return None;
    }
    let decl = DeclType::from_resource_schema(schema)?;
    Node::compile(schema, &decl).map(Box::new)
}

/// Whether a schema, or one in it, has a rule. Alternatives have none.
fn has_rules(schema: &Schema) -> bool {
    !schema.rules.is_empty()
        || schema.item().is_some_and(has_rules)
        || schema.values().is_some_and(has_rules)
        || schema.properties.iter().any(|(_, property)| has_rules(property))
}

/// Whether an error prevents rules from being evaluated: the object does not have the shape for which they were
/// written.
fn is_blocking(error: &Error) -> bool {
    matches!(error.kind, Kind::NotSupported | Kind::Required | Kind::TooLong | Kind::TooMany | Kind::TypeInvalid)
}

#[cfg(test)]
mod tests;
