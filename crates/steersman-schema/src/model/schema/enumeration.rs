//! The values of an `enum`: in the order in which they are written, with a binary search.

use std::cmp::Ordering;
use std::ops::Deref;
use steersman_machinery::Value;

/// The allowed values; empty: any value.
#[derive(Clone, Debug, Default)]
pub struct Enumeration {
    /// The values as written, for messages and documents.
    values: Box<[Value]>,
    /// The indexes of the values, sorted by value.
    sorted: Box<[u32]>,
}

impl Enumeration {
    /// Takes the values in the order in which they are written.
    pub(crate) fn new(values: &[Value]) -> Enumeration {
        let n_values = u32::try_from(values.len()).unwrap_or(u32::MAX);
        let mut sorted: Vec<u32> = (0..n_values).collect();
        sorted.sort_by(|a, b| order(&values[*a as usize], &values[*b as usize]));
        Enumeration { values: values.into(), sorted: sorted.into() }
    }

    /// Whether a value is one of them. Numbers are compared by value, everything else exactly.
    pub fn has(&self, value: &Value) -> bool {
        self.sorted.binary_search_by(|place| order(&self.values[*place as usize], value)).is_ok()
    }
}

impl Deref for Enumeration {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.values
    }
}

fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Number(x), Value::Number(y)) if x == y => Ordering::Equal,
        (Value::Number(x), Value::Number(y)) => {
            x.as_f64().unwrap_or(f64::NAN).total_cmp(&y.as_f64().unwrap_or(f64::NAN))
        }
        _ => rank(a).cmp(&rank(b)).then_with(|| a.to_string().cmp(&b.to_string())),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_value_is_found_whatever_its_type_and_numbers_by_amount() {
        let values =
            [json!("b"), json!(1), json!("a"), json!({"x": [1]}), json!(true), json!(2.5), json!([]), json!("b")];
        let enumeration = Enumeration::new(&values);
        assert!(values.iter().all(|value| enumeration.has(value)));
        assert_eq!(&*enumeration, &values);
        assert!(enumeration.has(&json!(1.0)));
        for other in [json!("c"), json!(2), json!(false), json!({"x": [2]}), json!([1]), json!(null)] {
            assert!(!enumeration.has(&other), "{other}");
        }
        assert!(!Enumeration::default().has(&json!("a")));
    }
}
