//! The patch that a mutation returns, and its application to an object.

use crate::write::admission::admitted_write::AdmittedWrite;
use steersman_cel::Value as Cel;
use steersman_kinds::catalog::Served;
use steersman_kinds::expressions::{self, OutOfBudget};
use steersman_kinds::strategy::DecodeError;
use steersman_machinery::budget;
use steersman_machinery::value::set_at;
use steersman_machinery::{Budget, Value};
use steersman_schema::decode::Body;
use steersman_schema::json_patch::{self, Cause};
use steersman_schema::{Definitions, Schema, mutation};

/// The form of a mutation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::write::admission) enum Kind {
    ApplyConfiguration,
    JsonPatch,
}

/// The patch that a mutation returns.
#[derive(Debug)]
pub(in crate::write::admission) enum Patch {
    ApplyConfiguration(Value),
    JsonPatch(json_patch::Patch),
}

/// The result of a patch.
#[derive(Debug)]
pub(in crate::write::admission) enum Patched {
    /// The changed object, decoded and defaulted.
    Changed(Value),
    Same,
}

/// Why a patch was not applied.
#[derive(Debug, thiserror::Error)]
pub(in crate::write::admission) enum Error {
    /// The request needs too much, or was canceled. No policy can ignore that.
    #[error(transparent)]
    Budget(#[from] budget::Error),
    /// The patch does not apply: upstream's message.
    #[error("{0}")]
    Unfit(String),
}

impl Patch {
    /// Reads the value of an expression. Its form in JSON is charged to both budgets.
    ///
    /// # Errors
    /// When it is not a patch, or a budget is exceeded.
    pub(in crate::write::admission) fn read(
        kind: Kind,
        value: &Cel<'_>,
        expressions: &mut expressions::Budget<'_>,
        budget: &Budget,
    ) -> Result<Patch, Error> {
        let is_object = matches!(value, Cel::Object(_));
        if kind == Kind::ApplyConfiguration && !is_object {
            let why = "unsupported return type from ApplyConfiguration expression: want an Object";
            return Err(Error::Unfit(why.to_owned()));
        }
        let unfit = |spent: OutOfBudget| Error::Unfit(spent.to_string());
        if kind == Kind::ApplyConfiguration {
            let checked = expressions.metered(|meter| value.check_names(meter)).map_err(unfit)?;
            checked.map_err(|error| Error::Unfit(format!("type mismatch: {error}")))?;
        }
        let tree = expressions.metered(|meter| value.to_json(meter)).map_err(unfit)?;
        let tree = tree.map_err(|error| Error::Unfit(error.to_string()))?;
        match kind {
            Kind::ApplyConfiguration => Ok(Patch::ApplyConfiguration(tree)),
            Kind::JsonPatch => json_patch::Patch::of(tree, budget).map(Patch::JsonPatch).map_err(|error| match error {
                json_patch::Error::Budget(error) => Error::Budget(error),
                error => Error::Unfit(format!("JSON Patch: {error}")),
            }),
        }
    }

    /// Applies the patch to an object in a version.
    ///
    /// # Errors
    /// When it does not apply to this object, or the budget of the request is exceeded.
    pub(in crate::write::admission) fn apply(
        self,
        write: &AdmittedWrite<'_>,
        target: &Served,
        object: &Value,
    ) -> Result<Patched, Error> {
        let budget = &write.operation.budget;
        let patched = match self {
            Patch::ApplyConfiguration(mut configuration) => {
                for key in ["apiVersion", "kind"] {
                    if let Some(value) = object.get(key) {
                        set_at(&mut configuration, &[key], value.clone());
                    }
                }
                let (any, builtin) = (Schema::default(), Definitions::builtin());
                let schema = match (write.is_of_scale(), write.is_of_other_kind()) {
                    (true, _) => builtin.schema("io.k8s.api.autoscaling.v1.Scale").unwrap_or(&any),
                    (false, true) => &any,
                    (false, false) => &target.version().schema,
                };
                mutation::apply(schema, object, &configuration, budget).map_err(|error| match error {
                    mutation::Error::Budget(error) => Error::Budget(error),
                    error => unfit(&error),
                })?
            }
            Patch::JsonPatch(patch) => match patch.apply(object, budget) {
                Ok(patched) => patched,
                // A test that fails is no error: the patch does not apply to this object.
                Err(json_patch::Error::Operation { cause: Cause::TestFailed, .. }) => return Ok(Patched::Same),
                Err(json_patch::Error::Budget(error)) => return Err(Error::Budget(error)),
                Err(error) => return Err(Error::Unfit(format!("JSON Patch: {}", told(&error, object)))),
            },
        };
        if patched == *object {
            return Ok(Patched::Same);
        }
        // Custom resources are stored with these fields, so no later check would find the change.
        for key in ["apiVersion", "kind"] {
            if patched.get(key) != object.get(key) {
                return Err(Error::Unfit(format!("error applying patch: {key} was changed: that is not possible")));
            }
        }
        if write.is_of_other_kind() || write.is_of_scale() {
            return Ok(Patched::Changed(patched));
        }
        let (strategy, version) = (&target.resource.strategy, target.version());
        let decoded = strategy.decode(version, Body::Tree(patched), budget);
        let decoded = decoded.map_err(|error| match error {
            DecodeError::Budget(error) => Error::Budget(error),
            error => unfit(&error),
        });
        let mut decoded = decoded?.value;
        strategy.default(version, &mut decoded, budget)?;
        Ok(Patched::Changed(decoded))
    }
}

fn unfit(error: &dyn std::error::Error) -> Error {
    Error::Unfit(format!("error applying patch: {error}"))
}

/// Why a patch does not apply, in the words of upstream's library where it has a message.
fn told(error: &json_patch::Error, object: &Value) -> String {
    let json_patch::Error::Operation { operation, path, cause: Cause::Missing { path: missing }, .. } = error else {
        return error.to_string();
    };
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let key = path.rsplit('/').next().unwrap_or_default();
    match *operation {
        "copy" | "move" if missing != path => {
            format!("{operation} operation does not apply: doc is missing from path: {missing}: missing value")
        }
        "remove" if object.pointer(parent).is_some() => {
            format!("error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value")
        }
        "replace" => format!("replace operation does not apply: doc is missing path: {path}: missing value"),
        _ => format!("{operation} operation does not apply: doc is missing path: \"{path}\": missing value"),
    }
}
