//! Values as JSON, for the results of mutations and audit annotations.

use crate::error::EvalError;
use crate::evaluation::data::time;
use crate::evaluation::value::{Entries, Fields, Items, Key, List, Map, Object, Value};
use steersman_machinery::Value as Json;
use steersman_machinery::value::Map as JsonMap;

impl Value<'_> {
    /// The value as JSON. Timestamps and durations become strings, bytes become base64.
    ///
    /// # Errors
    /// For values that JSON cannot represent: types, optionals, library values, non-finite numbers, keys that are not
    /// strings.
    pub fn to_json(&self) -> Result<Json, EvalError> {
        Ok(match self {
            Value::Bool(bool) => Json::Bool(*bool),
            Value::Bytes(bytes) => {
                use base64::Engine as _;
                Json::String(base64::engine::general_purpose::STANDARD.encode(bytes))
            }
            Value::Double(double) => {
                let number = serde_json::Number::from_f64(*double);
                Json::Number(number.ok_or_else(|| EvalError::new(format!("{double} is no JSON number")))?)
            }
            Value::Duration(nanos) => Json::String(time::duration_text(*nanos)),
            Value::Int(int) => Json::from(*int),
            Value::List(List { items: Items::Json(items), .. }) => Json::Array(items.to_vec()),
            Value::List(list) => Json::Array(list.iter().map(|item| item?.to_json()).collect::<Result<Vec<_>, _>>()?),
            Value::Map(Map(Entries::Json(map, _))) | Value::Object(Object(Fields::Json(map, _))) => {
                Json::Object((*map).clone())
            }
            Value::Map(Map(Entries::Values(map))) => {
                let mut out = JsonMap::new();
                for (key, value) in map.iter() {
                    let Key::String(key) = key else {
                        return Err(EvalError::new("a map in JSON has texts as keys"));
                    };
                    out.insert((**key).to_owned(), value.to_json()?);
                }
                Json::Object(out)
            }
            Value::Null => Json::Null,
            Value::Object(Object(Fields::Values(_, fields))) => {
                let mut out = JsonMap::new();
                for (name, value) in fields.iter() {
                    out.insert(name.to_string(), value.to_json()?);
                }
                Json::Object(out)
            }
            Value::String(text) => Json::String((**text).to_owned()),
            Value::Timestamp(timestamp) => Json::String(timestamp.to_string()),
            Value::Uint(uint) => Json::from(*uint),
            Value::Opaque(_) | Value::Optional(_) | Value::Type(_) => {
                return Err(EvalError::new(format!("a value of type {} has no form in JSON", self.type_name())));
            }
        })
    }

    /// Checks that object literals have the type of their position: the field `spec` of an `Object` must contain an
    /// `Object.spec`.
    ///
    /// # Errors
    /// Names the object with another type.
    pub fn check_names(&self) -> Result<(), EvalError> {
        match self {
            Value::Object(Object(Fields::Values(decl, fields))) => {
                fields.iter().try_for_each(|(field, value)| value.check_names_at(&format!("{}.{field}", decl.name())))
            }
            _ => Ok(()),
        }
    }

    fn check_names_at(&self, path: &str) -> Result<(), EvalError> {
        match self {
            Value::Object(object @ Object(Fields::Values(..))) => {
                if object.type_name() == path {
                    return self.check_names();
                }
                let found = object.type_name();
                Err(EvalError::new(format!(
                    "unexpected type name \"{found}\", expected \"{path}\", which matches field name path from root Object type"
                )))
            }
            Value::List(list @ List { items: Items::Values(_), .. }) => {
                list.iter().try_for_each(|item| item?.check_names_at(path))
            }
            Value::Map(map @ Map(Entries::Values(_))) => {
                map.iter().try_for_each(|(_, value)| value?.check_names_at(path))
            }
            _ => Ok(()),
        }
    }
}
