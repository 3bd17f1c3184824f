//! The types that values at the paths of `/scale` must have: checked on every write, whatever the schema says.

use crate::crd::text;
use steersman_machinery::value::at;
use steersman_machinery::{Value, field};

/// The paths of a version with a scale subresource, as written.
#[derive(Debug)]
pub(super) struct Paths {
    spec: String,
    status: String,
    selector: Option<String>,
}

impl Paths {
    /// The paths of a version, if it has a scale subresource.
    pub(super) fn of(version: &Value) -> Option<Paths> {
        let scale = at(version, &["subresources", "scale"]).filter(|scale| scale.is_object())?;
        let selector = Some(text(scale, &["labelSelectorPath"])).filter(|path| !path.is_empty());
        Some(Paths {
            spec: text(scale, &["specReplicasPath"]).to_owned(),
            status: text(scale, &["statusReplicasPath"]).to_owned(),
            selector: selector.map(str::to_owned),
        })
    }

    /// The error of the desired number of replicas.
    pub(super) fn spec_errors(&self, object: &Value) -> Option<field::Error> {
        replicas(object, &self.spec)
    }

    /// The errors of the current number of replicas and of the selector.
    pub(super) fn status_errors(&self, object: &Value) -> Vec<field::Error> {
        let selector = self.selector.as_ref().and_then(|path| match find(object, path) {
            Ok(None | Some(Value::String(_))) => None,
            Ok(Some(other)) => Some(misfit(path, Value::from(""), path, other, "string")),
            Err(error) => Some(error(Value::from(""))),
        });
        replicas(object, &self.status).into_iter().chain(selector).collect()
    }
}

fn replicas(object: &Value, path: &str) -> Option<field::Error> {
    let place = field::Path::new(path);
    match find(object, path) {
        Err(error) => Some(error(Value::from(0))),
        Ok(None) => None,
        Ok(Some(value)) => match value.as_i64() {
            None => Some(misfit(path, Value::from(0), path, value, "int64")),
            Some(number @ ..=-1) => Some(field::Error::invalid(&place, number, "should be a non-negative integer")),
            Some(number) if number > i64::from(i32::MAX) => {
                let detail = format!("should be less than or equal to {}", i32::MAX);
                Some(field::Error::invalid(&place, number, detail))
            }
            Some(_) => None,
        },
    }
}

/// The value at a path, or an error if a value on the way is not an object. The caller provides the value that the
/// error shows.
fn find<'a>(object: &'a Value, path: &'a str) -> Result<Option<&'a Value>, impl FnOnce(Value) -> field::Error> {
    let mut here = object;
    let mut walked = String::new();
    for step in path.trim_start_matches('.').split('.') {
        let Some(fields) = here.as_object() else {
            let (at, found) = (walked, here);
            return Err(move |shown| misfit(path, shown, &at, found, "map[string]interface{}"));
        };
        walked.push('.');
        walked.push_str(step);
        match fields.get(step) {
            Some(next) => here = next,
            None => return Ok(None),
        }
    }
    Ok(Some(here))
}

/// The error of a value of the wrong type, with Go's message that clients expect.
fn misfit(path: &str, shown: Value, at: &str, found: &Value, expected: &str) -> field::Error {
    let (value, kind) = match found {
        Value::Null => ("<nil>".to_owned(), "<nil>"),
        Value::Bool(flag) => (flag.to_string(), "bool"),
        Value::Number(number) if number.is_f64() => (number.to_string(), "float64"),
        Value::Number(number) => (number.to_string(), "int64"),
        Value::String(text) => (text.clone(), "string"),
        Value::Array(_) => (found.to_string(), "[]interface {}"),
        Value::Object(_) => (found.to_string(), "map[string]interface {}"),
    };
    let detail = format!("{at} accessor error: {value} is of the type {kind}, expected {expected}");
    field::Error::invalid(&field::Path::new(path), shown, detail)
}
