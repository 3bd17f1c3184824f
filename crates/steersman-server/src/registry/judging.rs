//! How long the rules that a definition has in CEL may take on an object.

use crate::operation::Operation;
use steersman_machinery::Value;

/// Rules may look at each value of an object several times, and at each with each other. The cost of trying them on one value is
/// taken to be that of reading so many bytes of objects.
const VALUE_BYTES: usize = 256;
/// More values need not be counted: the request is heavy.
const VALUES_MAX: usize = 1024;

/// To be awaited before the rules are tried.
pub(super) async fn expect(operation: &Operation<'_>, object: &Value) {
    if operation.strategy().may_judge_long(operation.version()) {
        let mut left = VALUES_MAX;
        count(object, &mut left);
        operation.load.expect((VALUES_MAX - left) * VALUE_BYTES).await;
    }
}

/// Takes the values in a tree off what is left.
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
