//! Merges the apply configuration of a mutating admission policy into an object.
//!
//! It is merged by the schema like server-side apply, but without ownership. Atomic values cannot be set: setting an
//! atomic list would drop the items of others. The budget is charged for the result, which is no larger than both together,
//! and for the walks over both. Follows apiserver's `admission/plugin/policy/mutating/patch/smd.go`.

use crate::model::schema::Schema;
use crate::ownership::fields::merge;
use crate::ownership::fields::shape::{Form, Node, Split};
use crate::ownership::fields::typed::{self, Duplicates};
use crate::values::decode::DEPTH_MAX;
use steersman_machinery::budget::{self, Budget, cost};
use steersman_machinery::{Value, value};

/// The number of times that a merge reads each value: two checks, the search for atomic values, the depth, and the merge itself.
const WALKS: usize = 5;

/// Why a configuration was not applied.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// The configuration sets atomic values.
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}", paths.join(", "))]
    Atomic {
        /// Their paths.
        paths: Vec<String>,
    },
    /// The object would be too large, too much would be computed, or the request was canceled.
    #[error(transparent)]
    Budget(#[from] budget::Error),
    /// The object does not match its schema.
    #[error("failed to convert original object to typed object: {0}")]
    Object(String),
    /// The configuration does not match the schema.
    #[error("failed to convert patch object to typed object: {0}")]
    Patch(String),
    /// The result could not be parsed again.
    #[error("the object would be nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
}

/// Merges a configuration into an object.
///
/// # Errors
/// When the configuration sets atomic values, either does not match the schema, or the budget is exceeded.
pub fn apply(schema: &Schema, object: &Value, configuration: &Value, budget: &Budget) -> Result<Value, Error> {
    budget.begin_tree();
    for value in [object, configuration] {
        budget.work(WALKS * cost::of(value).0)?;
        budget.copy(value)?;
    }
    if value::depth(configuration) > DEPTH_MAX {
        return Err(Error::TooDeep);
    }
    typed::validate(schema, configuration, Duplicates::Allow).map_err(|mismatch| Error::Patch(mismatch.to_string()))?;
    let mut paths = Vec::new();
    find_atomic(Node::root(schema), configuration, &mut String::new(), &mut paths);
    if !paths.is_empty() {
        return Err(Error::Atomic { paths });
    }
    typed::validate(schema, object, Duplicates::Allow).map_err(|mismatch| Error::Object(mismatch.to_string()))?;
    Ok(merge::merge(schema, object, configuration))
}

/// Appends the paths of atomic values in the configuration. Values of maps are not checked, as upstream.
fn find_atomic(node: Node<'_>, value: &Value, path: &mut String, paths: &mut Vec<String>) {
    let length = path.len();
    match (node.form(Some(value)), value) {
        (Form::List(list), Value::Array(items)) => match list.split {
            Split::Atomic => paths.push(path.clone()),
            Split::Keys(_) | Split::Set => {
                for (index, item) in items.iter().enumerate() {
                    path.push_str(&format!("[{index}]"));
                    find_atomic(list.item, item, path, paths);
                    path.truncate(length);
                }
            }
        },
        (Form::Map(map), Value::Object(_)) if map.is_atomic => paths.push(path.clone()),
        (Form::Map(map), Value::Object(fields)) => {
            for (name, value) in fields {
                if let Some(node) = map.named(name) {
                    path.push('.');
                    path.push_str(name);
                    find_atomic(node, value, path, paths);
                    path.truncate(length);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Definitions;
    use serde_json::json;

    fn pod() -> &'static Schema {
        Definitions::builtin().schema("io.k8s.api.core.v1.Pod").unwrap()
    }

    #[test]
    fn keyed_lists_are_merged_and_others_refused() {
        let object = json!({"spec": {"containers": [{"name": "a", "image": "i", "args": ["x"]}]}});
        let merged = |configuration: Value| apply(pod(), &object, &configuration, &Budget::default());
        let made = merged(json!({"spec": {"containers": [{"name": "a", "image": "j"}, {"name": "b", "image": "k"}]}}));
        let wanted = json!([{"name": "a", "image": "j", "args": ["x"]}, {"name": "b", "image": "k"}]);
        assert_eq!(made.unwrap()["spec"]["containers"], wanted);
        let refused = merged(json!({"spec": {"containers": [{"name": "a", "args": ["y"]}]}})).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].args"
        );
        let unknown = merged(json!({"data": {"a": 1}})).unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "failed to convert patch object to typed object: .data: field not declared in schema"
        );
    }

    #[test]
    fn a_merge_is_charged_before_it_is_made() {
        use steersman_machinery::budget::{Amount, Interrupt, Limits};

        let object = json!({"metadata": {"annotations": {"a": "x".repeat(600)}}});
        let configuration = json!({"metadata": {"annotations": {"b": "y".repeat(600)}}});
        let limits = Limits { bytes_max: 1 << 20, items_max: 100, steps_max: 1000 };
        let merged = |limits| apply(pod(), &object, &configuration, &Budget::new(limits, Interrupt::default()));
        assert!(merged(limits).is_ok());
        let exceeded = |amount, limit| Err(Error::Budget(budget::Error::Exceeded { amount, limit }));
        assert_eq!(merged(Limits { bytes_max: 1000, ..limits }), exceeded(Amount::Bytes, 1000));
        assert_eq!(merged(Limits { items_max: 7, ..limits }), exceeded(Amount::Items, 7));
        assert_eq!(merged(Limits { steps_max: 39, ..limits }), exceeded(Amount::Steps, 39));
    }

    #[test]
    fn a_configuration_whose_result_could_not_be_parsed_again_is_refused() {
        let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!({"a": inner}));
        let merged = |depth| apply(&Schema::default(), &json!({}), &nested(depth), &Budget::default());
        assert!(merged(DEPTH_MAX).is_ok());
        assert_eq!(merged(DEPTH_MAX + 1), Err(Error::TooDeep));
    }
}
