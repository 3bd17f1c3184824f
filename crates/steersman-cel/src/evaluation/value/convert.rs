//! Values as JSON, for the results of mutations and audit annotations.

use crate::cost::meter::Meter;
use crate::error::EvalError;
use crate::evaluation::data::time;
use crate::evaluation::value::{Entries, Fields, Items, Key, List, Map, Object, Value};
use steersman_machinery::Value as Json;
use steersman_machinery::budget::cost;
use steersman_machinery::value::Map as JsonMap;

impl Value<'_> {
    /// The value as JSON. Timestamps and durations become strings, bytes become base64.
    ///
    /// The meter is charged for each value, and for the memory that it takes in the tree, before it is made: the parts of a value may be shared,
    /// so that a small value has a large form in JSON.
    ///
    /// # Errors
    /// For values that JSON cannot represent: types, optionals, library values, non-finite numbers, keys that are not
    /// strings. [`EvalError::is_budget`] when the meter's work is done.
    pub fn to_json(&self, meter: &mut Meter) -> Result<Json, EvalError> {
        meter.visit()?;
        match self {
            Value::Bool(bool) => Ok(Json::Bool(*bool)),
            Value::Bytes(bytes) => {
                use base64::Engine as _;
                meter.work(cost::text(bytes.len() / 3 * 4))?;
                Ok(Json::String(base64::engine::general_purpose::STANDARD.encode(bytes)))
            }
            Value::Double(double) => {
                let number = serde_json::Number::from_f64(*double);
                number.map(Json::Number).ok_or_else(|| EvalError::new(format!("{double} is no JSON number")))
            }
            Value::Duration(nanos) => Ok(Json::String(time::duration_text(*nanos))),
            Value::Int(int) => Ok(Json::from(*int)),
            Value::List(list) => nested(meter, |meter| list.to_json(meter)),
            Value::Map(map) => nested(meter, |meter| map.to_json(meter)),
            Value::Null => Ok(Json::Null),
            Value::Object(object) => nested(meter, |meter| object.to_json(meter)),
            Value::String(text) => {
                meter.work(cost::text(text.len()))?;
                Ok(Json::String((**text).to_owned()))
            }
            Value::Timestamp(timestamp) => Ok(Json::String(timestamp.to_string())),
            Value::Uint(uint) => Ok(Json::from(*uint)),
            Value::Opaque(_) | Value::Optional(_) | Value::Type(_) => {
                Err(EvalError::new(format!("a value of type {} has no form in JSON", self.type_name())))
            }
        }
    }

    /// Checks that object literals have the type of their position: the field `spec` of an `Object` must contain an
    /// `Object.spec`. The meter is charged for each value.
    ///
    /// # Errors
    /// Names the object with another type. [`EvalError::is_budget`] when the meter's work is done.
    pub fn check_names(&self, meter: &mut Meter) -> Result<(), EvalError> {
        match self {
            Value::Object(Object(Fields::Values(decl, fields))) => nested(meter, |meter| {
                fields.iter().try_for_each(|(field, value)| {
                    meter.work(decl.name().len() + field.len())?;
                    value.check_names_at(&format!("{}.{field}", decl.name()), meter)
                })
            }),
            _ => Ok(()),
        }
    }

    fn check_names_at(&self, path: &str, meter: &mut Meter) -> Result<(), EvalError> {
        meter.visit()?;
        match self {
            Value::Object(object @ Object(Fields::Values(..))) => {
                if object.type_name() == path {
                    return self.check_names(meter);
                }
                let found = object.type_name();
                Err(EvalError::new(format!(
                    "unexpected type name \"{found}\", expected \"{path}\", which matches field name path from root Object type"
                )))
            }
            Value::List(list @ List { items: Items::Values(_), .. }) => {
                nested(meter, |meter| list.iter().try_for_each(|item| item?.check_names_at(path, meter)))
            }
            Value::Map(map @ Map(Entries::Values(_))) => {
                nested(meter, |meter| map.iter().try_for_each(|(_, value)| value?.check_names_at(path, meter)))
            }
            _ => Ok(()),
        }
    }
}

impl List<'_> {
    fn to_json(&self, meter: &mut Meter) -> Result<Json, EvalError> {
        if let Items::Json(items) = &self.items {
            charge(meter, items.iter().map(cost::of).fold((0, items.len() * cost::VALUE), sum))?;
            return Ok(Json::Array(items.to_vec()));
        }
        meter.work(self.len() * cost::VALUE)?;
        self.iter().map(|item| item?.to_json(meter)).collect()
    }
}

impl Map<'_> {
    fn to_json(&self, meter: &mut Meter) -> Result<Json, EvalError> {
        let fields = match &self.0 {
            Entries::Json(fields, _) => return copy(fields, meter),
            Entries::Values(fields) => fields,
        };
        let mut out = JsonMap::new();
        for (key, value) in fields.iter() {
            let Key::String(key) = key else {
                return Err(EvalError::new("a map in JSON has texts as keys"));
            };
            meter.work(cost::field(key, out.len()))?;
            out.insert((**key).to_owned(), value.to_json(meter)?);
        }
        Ok(Json::Object(out))
    }
}

impl Object<'_> {
    fn to_json(&self, meter: &mut Meter) -> Result<Json, EvalError> {
        let fields = match &self.0 {
            Fields::Json(fields, _) => return copy(fields, meter),
            Fields::Values(_, fields) => fields,
        };
        let mut out = JsonMap::new();
        for (name, value) in fields.iter() {
            meter.work(cost::field(name, out.len()))?;
            out.insert(name.to_string(), value.to_json(meter)?);
        }
        Ok(Json::Object(out))
    }
}

/// Enters a value that has others in it.
fn nested<T>(meter: &mut Meter, inside: impl FnOnce(&mut Meter) -> Result<T, EvalError>) -> Result<T, EvalError> {
    meter.enter()?;
    let outcome = inside(meter);
    meter.leave();
    outcome
}

/// Charges a tree of so many values and bytes.
fn charge(meter: &mut Meter, (n_values, bytes): (usize, usize)) -> Result<(), EvalError> {
    meter.visit_all(n_values)?;
    meter.work(bytes)
}

fn copy(fields: &JsonMap, meter: &mut Meter) -> Result<Json, EvalError> {
    charge(meter, cost::of_map(fields))?;
    Ok(Json::Object(fields.clone()))
}

fn sum(a: (usize, usize), b: (usize, usize)) -> (usize, usize) {
    (a.0 + b.0, a.1 + b.1)
}
