//! The condition `StoredObjectsCurrent`: whether the stored objects of a definition have its current form.
//!
//! An object is stored in the form that its definition had when it was last written: perhaps in an older version, with
//! fields that the schema no longer has, or without defaults that were added since. Readers get the current form
//! anyway, but every object must be converted for them, which rewriting the stored objects avoids. Upstream does not
//! have the condition. It is only valid for the generation in its `observedGeneration`.

use crate::crd::status::condition::{self, Condition, ConditionStatus};
use crate::crd::{flag, text, texts, versions};
use jiff::Timestamp;
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::{at, object_at, set_at};

const CONDITION: &str = "StoredObjectsCurrent";

/// The progress of rewriting the stored objects.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Rewriting {
    /// Every object has the form of the definition.
    Completed,
    /// It failed, for this reason, and will be retried.
    Failed(String),
    InProgress {
        /// Objects checked, and rewritten where needed.
        checked: usize,
        /// Objects in the store.
        total: usize,
    },
}

/// Whether every stored object has the form of the definition (in the internal form).
pub fn are_current(definition: &Value) -> bool {
    let generation = generation(definition);
    let is_unchanged = generation <= 1 && texts(definition, &["status", "storedVersions"]).len() <= 1;
    is_unchanged || observed(definition) == Some(generation)
}

/// The generation of a definition: it counts the changes of its spec.
pub fn generation(definition: &Value) -> i64 {
    at(definition, &["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(1)
}

/// The generation for which all stored objects were rewritten.
fn observed(definition: &Value) -> Option<i64> {
    let is_completed = condition::is_true(definition, CONDITION);
    condition::find(definition, CONDITION).filter(|_| is_completed)?.get("observedGeneration")?.as_i64()
}

/// Sets the condition for the current generation of a definition.
///
/// Once it is completed, all objects are stored in the storage version, and `storedVersions` is updated.
pub fn set_rewriting(definition: &mut Value, rewriting: &Rewriting, now: Timestamp) {
    let generation = generation(definition);
    let of = |status, reason, message| Condition::new(CONDITION, status, reason, message);
    let condition = match rewriting {
        Rewriting::Completed => {
            of(ConditionStatus::True, "Completed", "all stored objects have the form of this generation".to_owned())
        }
        Rewriting::Failed(why) => of(ConditionStatus::False, "Failed", why.clone()),
        Rewriting::InProgress { checked, total } => {
            of(ConditionStatus::False, "InProgress", format!("{checked} of {total} stored objects have been checked"))
        }
    };
    if object_at(definition, &["status"]).is_none() {
        return;
    }
    condition::set(&mut definition["status"], &condition, now);
    let conditions = definition["status"].get_mut("conditions").and_then(Value::as_array_mut);
    let written = conditions.into_iter().flatten().find(|one| text(one, &["type"]) == CONDITION);
    if let Some(Value::Object(written)) = written {
        written.insert("observedGeneration".to_owned(), json!(generation));
    }
    let storage = versions(definition).iter().find(|version| flag(version, &["storage"]));
    let storage = storage.map(|version| text(version, &["name"]).to_owned());
    if let (Rewriting::Completed, Some(storage)) = (rewriting, storage) {
        set_at(definition, &["status", "storedVersions"], json!([storage]));
    }
}
