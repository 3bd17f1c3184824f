//! Estimates how long a definition's CEL rules may take on an object.

use crate::shared::operation::Operation;
use steersman_machinery::Value;

/// Rules may read each value of an object several times, and compare each with every other. Running them on one value
/// is estimated to cost as much as reading this many bytes of objects.
const VALUE_BYTES: usize = 256;
/// Further values need not be counted: the request is heavy.
const VALUES_MAX: usize = 1024;

/// Awaited before the rules run.
pub(super) async fn expect(operation: &Operation<'_>, object: &Value) {
    if operation.strategy().may_judge_long(operation.version()) {
        let mut left = VALUES_MAX;
        count(object, &mut left);
        operation.load.expect((VALUES_MAX - left) * VALUE_BYTES).await;
    }
}

/// Subtracts the number of values in a tree from `left`.
fn count(value: &Value, left: &mut usize) {
    if *left == 0 {
        return;
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter().for_each(|item| count(item, left)),
        Value::Object(fields) => fields.values().for_each(|field| count(field, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
