//! JSON Patch (RFC 6902) with the outcomes that clients of Kubernetes know.
//!
//! Beyond the RFC, as upstream's library does: indices may be negative, `replace` may set a field that an object does not have,
//! and testing a field that is not there for null holds. Bounded by operations and by what `copy` copies.

use crate::decode::{self, Fault};
use steersman_machinery::Value;

/// More operations are refused.
pub const OPERATIONS_MAX: usize = 10_000;
/// All that `copy` operations of one patch may copy, as JSON.
pub const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// A parsed patch; apply it as often as the object it is for changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// What a strict reader refuses in the patch itself, such as `[0].vlaue`.
    pub faults: Vec<Fault>,
    /// Those that cannot be read are refused when it is their turn, after those before them; this says why.
    operations: Vec<Result<Operation, String>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Operation {
    kind: Kind,
    path: Pointer,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Add(Value),
    Copy(Pointer),
    Move(Pointer),
    Remove,
    Replace(Value),
    Test(Value),
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Pointer {
    text: String,
    keys: Vec<String>,
}

/// Why a patch could not be read or applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The patch is no JSON list of operations: a bad request.
    #[error("error decoding patch: {detail}")]
    Malformed { detail: String },
    /// The request is too large.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}")]
    TooManyOperations { count: usize },
    /// An operation cannot be carried out on this object: the request cannot be processed.
    #[error("operation {index} ({operation} {path:?}): {cause}")]
    Operation { index: usize, operation: &'static str, path: String, cause: Cause },
    /// An operation lacks something, or is none: the request cannot be processed.
    #[error("operation {index}: {detail}")]
    Unreadable { index: usize, detail: String },
}

/// What stops an operation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Cause {
    #[error("more than {COPIED_BYTES_MAX} bytes are copied")]
    CopiedTooMuch,
    #[error("there is nothing at {path:?}")]
    Missing { path: String },
    #[error("{index:?} is no index of a list of {length}")]
    NoIndex { index: String, length: usize },
    #[error("the value there is another")]
    TestFailed,
    #[error("the object would be nested deeper than {} levels", decode::DEPTH_MAX)]
    TooDeep,
}

impl Patch {
    /// Reads a patch.
    ///
    /// # Errors
    /// When it is no JSON list of operations, or has too many.
    pub fn parse(json: &[u8]) -> Result<Patch, Error> {
        let decoded = decode::document(json).map_err(|error| Error::Malformed { detail: error.to_string() })?;
        let Value::Array(entries) = decoded.value else {
            return Err(Error::Malformed { detail: "a JSON patch is a list of operations".to_owned() });
        };
        if entries.len() > OPERATIONS_MAX {
            return Err(Error::TooManyOperations { count: entries.len() });
        }
        let mut patch = Patch { faults: decoded.faults, operations: Vec::with_capacity(entries.len()) };
        for (index, entry) in entries.into_iter().enumerate() {
            let operation = Operation::read(index, entry, &mut patch.faults)?;
            patch.operations.push(operation);
        }
        Ok(patch)
    }

    /// Whether it has no operation.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Applies all operations or none: gives the object as it would become.
    ///
    /// # Errors
    /// When an operation cannot be carried out.
    pub fn apply(&self, object: &Value) -> Result<Value, Error> {
        let mut patched = object.clone();
        let mut n_copied = 0;
        for (index, operation) in self.operations.iter().enumerate() {
            let operation = operation.as_ref().map_err(|why| Error::Unreadable { index, detail: why.clone() })?;
            operation.apply(&mut patched, &mut n_copied).map_err(|cause| Error::Operation {
                index,
                operation: operation.kind.name(),
                path: operation.path.text.clone(),
                cause,
            })?;
        }
        Ok(patched)
    }
}

// === reading ===

impl Operation {
    fn read(index: usize, entry: Value, faults: &mut Vec<Fault>) -> Result<Result<Operation, String>, Error> {
        let Value::Object(mut fields) = entry else {
            return Err(Error::Malformed { detail: format!("operation {index} is not an object") });
        };
        let mut text = |key: &str| match fields.remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Error::Malformed { detail: format!("{key} of operation {index} is not a string") }),
        };
        let (name, path, from) = (text("op")?, text("path")?, text("from")?);
        let value = fields.remove("value").unwrap_or(Value::Null);
        faults.extend(fields.keys().map(|key| Fault::Unknown(format!("[{index}].{key}"))));
        let pointer = |key: &str, text: Option<String>| match text {
            Some(text) => Pointer::parse(text),
            None => Err(format!("it has no {key}")),
        };
        let path_read = pointer("path", path);
        let kind = match name.as_deref() {
            Some("add") => Ok(Kind::Add(value)),
            Some("copy") => pointer("from", from).map(Kind::Copy),
            Some("move") => pointer("from", from).map(Kind::Move),
            Some("remove") => Ok(Kind::Remove),
            Some("replace") => Ok(Kind::Replace(value)),
            Some("test") => Ok(Kind::Test(value)),
            Some(other) => {
                Err(format!("there is no operation {other:?}: want add, copy, move, remove, replace or test"))
            }
            None => Err("it has no op".to_owned()),
        };
        Ok(kind.and_then(|kind| Ok(Operation { kind, path: path_read? })))
    }
}

impl Pointer {
    fn parse(text: String) -> Result<Pointer, String> {
        if text.is_empty() {
            return Ok(Pointer::default());
        }
        let Some(rest) = text.strip_prefix('/') else { return Err(format!("the path {text:?} does not start with /")) };
        let keys = rest.split('/').map(|key| key.replace("~1", "/").replace("~0", "~")).collect();
        Ok(Pointer { text, keys })
    }

    /// What is there; a field that an object does not have is null.
    fn get<'v>(&self, value: &'v Value) -> Result<Option<&'v Value>, Cause> {
        let Some((last, way)) = self.keys.split_last() else { return Ok(Some(value)) };
        let mut here = value;
        for key in way {
            here = match here {
                Value::Object(fields) => fields.get(key),
                Value::Array(items) => items.get(place(key, items.len())?),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            }
            .ok_or_else(|| self.missing())?;
        }
        match here {
            Value::Object(fields) => Ok(fields.get(last)),
            Value::Array(items) => Ok(items.get(place(last, items.len())?)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(self.missing()),
        }
    }

    /// What holds the last key, and that key; none for the whole object.
    fn parent<'v>(&self, value: &'v mut Value) -> Result<Option<(&'v mut Value, &str)>, Cause> {
        let Some((last, way)) = self.keys.split_last() else { return Ok(None) };
        let mut here = value;
        for key in way {
            here = match here {
                Value::Object(fields) => fields.get_mut(key),
                Value::Array(items) => {
                    let place = place(key, items.len())?;
                    items.get_mut(place)
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            }
            .ok_or_else(|| self.missing())?;
        }
        if !here.is_object() && !here.is_array() {
            return Err(self.missing());
        }
        Ok(Some((here, last)))
    }

    fn missing(&self) -> Cause {
        Cause::Missing { path: self.text.clone() }
    }
}

/// The place of an existing item.
fn place(index: &str, length: usize) -> Result<usize, Cause> {
    nth(index, length).filter(|place| *place < length).ok_or_else(|| Cause::NoIndex { index: index.to_owned(), length })
}

/// An index counted from the start, or if negative from the end of `length`.
fn nth(index: &str, length: usize) -> Option<usize> {
    let number: i64 = index.parse().ok()?;
    match usize::try_from(number.unsigned_abs()).ok()? {
        back if number < 0 => length.checked_sub(back),
        place => Some(place),
    }
}

// === applying ===

impl Operation {
    fn apply(&self, object: &mut Value, n_copied: &mut usize) -> Result<(), Cause> {
        match &self.kind {
            Kind::Add(value) => self.path.add(object, value.clone()),
            Kind::Copy(from) => {
                let value = from.get(object)?.cloned().unwrap_or(Value::Null);
                *n_copied = n_copied.saturating_add(size(&value));
                if *n_copied > COPIED_BYTES_MAX {
                    return Err(Cause::CopiedTooMuch);
                }
                self.path.add(object, value)
            }
            Kind::Move(from) => {
                let value = from.remove(object)?;
                self.path.add(object, value)
            }
            Kind::Remove => self.path.remove(object).map(drop),
            Kind::Replace(value) => self.path.replace(object, value.clone()),
            Kind::Test(value) => {
                let have = self.path.get(object)?.unwrap_or(&Value::Null);
                if same(have, value) { Ok(()) } else { Err(Cause::TestFailed) }
            }
        }
    }
}

impl Pointer {
    /// Nothing may be put so deep that it could not be read again, nor be dropped without running out of stack.
    fn bound_depth(&self, value: &Value) -> Result<(), Cause> {
        let is_too_deep = self.keys.len() + depth(value) > decode::DEPTH_MAX;
        if is_too_deep { Err(Cause::TooDeep) } else { Ok(()) }
    }

    fn add(&self, object: &mut Value, value: Value) -> Result<(), Cause> {
        self.bound_depth(&value)?;
        match self.parent(object)? {
            Some((Value::Object(fields), key)) => {
                fields.insert(key.to_owned(), value);
            }
            Some((Value::Array(items), "-")) => items.push(value),
            Some((Value::Array(items), index)) => {
                // One place more than there are items: -1 is behind the last.
                let length = items.len() + 1;
                let place = nth(index, length).filter(|place| *place < length);
                let place = place.ok_or_else(|| Cause::NoIndex { index: index.to_owned(), length: items.len() })?;
                items.insert(place, value);
            }
            Some(_) | None => return Err(self.missing()),
        }
        Ok(())
    }

    fn remove(&self, object: &mut Value) -> Result<Value, Cause> {
        match self.parent(object)? {
            Some((Value::Object(fields), key)) => fields.remove(key).ok_or_else(|| self.missing()),
            Some((Value::Array(items), index)) => {
                let place = place(index, items.len())?;
                Ok(items.remove(place))
            }
            Some(_) | None => Err(self.missing()),
        }
    }

    fn replace(&self, object: &mut Value, value: Value) -> Result<(), Cause> {
        self.bound_depth(&value)?;
        match self.parent(object)? {
            None if value.is_object() || value.is_array() => *object = value,
            Some((Value::Object(fields), key)) => {
                fields.insert(key.to_owned(), value);
            }
            Some((Value::Array(items), index)) => {
                let place = place(index, items.len())?;
                items[place] = value;
            }
            Some(_) | None => return Err(self.missing()),
        }
        Ok(())
    }
}

/// Equal with numbers taken by amount.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => {
            x == y || x.as_f64().zip(y.as_f64()).is_some_and(|(x, y)| x.total_cmp(&y).is_eq())
        }
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| same(x, y)))
        }
        _ => a == b,
    }
}

/// How many objects and lists are within one another.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// How long a value is as JSON, about: escapes are not counted.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| size(item) + 1).sum::<usize>(),
        Value::Object(fields) => 2 + fields.iter().map(|(key, field)| key.len() + 4 + size(field)).sum::<usize>(),
    }
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Kind::Add(_) => "add",
            Kind::Copy(_) => "copy",
            Kind::Move(_) => "move",
            Kind::Remove => "remove",
            Kind::Replace(_) => "replace",
            Kind::Test(_) => "test",
        }
    }
}
