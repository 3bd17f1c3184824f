//! JSON Patch (RFC 6902) with the behavior that Kubernetes clients expect.
//!
//! Beyond the RFC, as in upstream's library: indices may be negative, `replace` may set a field that an object does not
//! have, and a test of an absent field for null succeeds. The number of operations, the bytes that `copy` copies and
//! the budget bound a patch: values that are put into the object are charged as built, and the items of a list that an
//! operation moves as work.

use crate::values::decode::{self, Fault};
use steersman_machinery::Value;
use steersman_machinery::budget::{self, Budget, cost};
use steersman_machinery::value::{depth, normalize_numbers};

/// A patch with more operations is refused.
pub const OPERATIONS_MAX: usize = 10_000;
/// The bytes, as JSON, that all `copy` operations of one patch may copy.
pub const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// A parsed patch; it can be applied again whenever the object has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// The errors of the patch itself that a strict reader reports, such as the unknown field `[0].vlaue`.
    pub faults: Vec<Fault>,
    /// The operations. One that cannot be parsed is an error with the reason, which is reported after the operations
    /// before it were applied.
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

/// Why a patch could not be parsed or applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The patch or the object would be too large, too much would be computed, or the request was canceled.
    #[error(transparent)]
    Budget(#[from] budget::Error),
    /// The patch is not a JSON list of operations: a bad request.
    #[error("error decoding patch: {detail}")]
    Malformed { detail: String },
    /// The request is too large.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}")]
    TooManyOperations { count: usize },
    /// An operation cannot be carried out on this object: the request cannot be processed.
    #[error("operation {index} ({operation} {path:?}): {cause}")]
    Operation { index: usize, operation: &'static str, path: String, cause: Cause },
    /// An operation is incomplete or unknown: the request cannot be processed.
    #[error("operation {index}: {detail}")]
    Unreadable { index: usize, detail: String },
}

/// Why an operation cannot be carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Cause {
    #[error(transparent)]
    Budget(#[from] budget::Error),
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
    /// Parses a patch.
    ///
    /// # Errors
    /// When it is not a JSON list of operations, or has too many.
    pub fn parse(json: &[u8], budget: &Budget) -> Result<Patch, Error> {
        let decoded = decode::document(json, budget).map_err(|error| match error {
            decode::Error::Budget(error) => Error::Budget(error),
            error => Error::Malformed { detail: error.to_string() },
        })?;
        Patch::read(decoded.value, decoded.faults, budget)
    }

    /// Reads a patch that is a tree already, whose making was charged.
    ///
    /// # Errors
    /// When it is not a list of operations, has too many, or is nested too deep.
    pub fn of(mut tree: Value, budget: &Budget) -> Result<Patch, Error> {
        if depth(&tree) > decode::DEPTH_MAX {
            return Err(Error::Malformed { detail: decode::Error::TooDeep.to_string() });
        }
        normalize_numbers(&mut tree);
        Patch::read(tree, Vec::new(), budget)
    }

    fn read(tree: Value, faults: Vec<Fault>, budget: &Budget) -> Result<Patch, Error> {
        let Value::Array(entries) = tree else {
            return Err(Error::Malformed { detail: "a JSON patch is a list of operations".to_owned() });
        };
        if entries.len() > OPERATIONS_MAX {
            return Err(Error::TooManyOperations { count: entries.len() });
        }
        let mut patch = Patch { faults, operations: Vec::with_capacity(entries.len()) };
        for (index, entry) in entries.into_iter().enumerate() {
            let operation = Operation::read(index, entry, &mut patch.faults, budget)?;
            patch.operations.push(operation);
        }
        Ok(patch)
    }

    /// Whether it has no operation.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Applies all operations or none, and returns the changed object.
    ///
    /// # Errors
    /// When an operation cannot be carried out.
    pub fn apply(&self, object: &Value, budget: &Budget) -> Result<Value, Error> {
        budget.begin_tree();
        budget.copy(object)?;
        let mut patched = object.clone();
        let mut applying = Applying { budget, n_copied: 0 };
        for (index, operation) in self.operations.iter().enumerate() {
            let operation = operation.as_ref().map_err(|why| Error::Unreadable { index, detail: why.clone() })?;
            operation.apply(&mut patched, &mut applying).map_err(|cause| match cause {
                Cause::Budget(error) => Error::Budget(error),
                cause => Error::Operation {
                    index,
                    operation: operation.kind.name(),
                    path: operation.path.text.clone(),
                    cause,
                },
            })?;
        }
        Ok(patched)
    }
}

// === reading ===

impl Operation {
    fn read(
        index: usize,
        entry: Value,
        faults: &mut Vec<Fault>,
        budget: &Budget,
    ) -> Result<Result<Operation, String>, Error> {
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
        let room = decode::FAULTS_MAX.saturating_sub(faults.len());
        faults.extend(fields.keys().take(room).map(|key| Fault::Unknown(format!("[{index}].{key}"))));
        for text in [&path, &from].into_iter().flatten() {
            let n_keys = text.bytes().filter(|byte| *byte == b'/').count();
            budget.build_all(n_keys, n_keys * size_of::<String>() + cost::text(text.len()))?;
        }
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

    /// The value at the path; null for a field that an object does not have.
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

    /// The container of the last key, and that key; none for the whole object.
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

/// The position of an existing item.
fn place(index: &str, length: usize) -> Result<usize, Cause> {
    nth(index, length).filter(|place| *place < length).ok_or_else(|| Cause::NoIndex { index: index.to_owned(), length })
}

/// An index from the start; a negative one counts from the end of `length`.
fn nth(index: &str, length: usize) -> Option<usize> {
    let number: i64 = index.parse().ok()?;
    match usize::try_from(number.unsigned_abs()).ok()? {
        back if number < 0 => length.checked_sub(back),
        place => Some(place),
    }
}

// === applying ===

/// The amounts that the operations applied so far have used.
struct Applying<'b> {
    budget: &'b Budget,
    /// The bytes copied, as JSON.
    n_copied: usize,
}

impl Applying<'_> {
    /// A copy of a value, charged before it is made.
    fn copy(&self, value: &Value) -> Result<Value, Cause> {
        self.budget.copy(value)?;
        Ok(value.clone())
    }

    /// Charges the items of a list that an operation moves.
    fn shift(&self, n_items: usize) -> Result<(), Cause> {
        Ok(self.budget.work_on_bytes(n_items * cost::VALUE)?)
    }
}

impl Operation {
    fn apply(&self, object: &mut Value, applying: &mut Applying<'_>) -> Result<(), Cause> {
        applying.budget.work(1 + self.path.keys.len())?;
        match &self.kind {
            Kind::Add(value) => self.path.add(object, applying.copy(value)?, applying),
            Kind::Copy(from) => {
                let value = from.get(object)?.unwrap_or(&Value::Null);
                applying.budget.work(cost::of(value).0)?;
                applying.n_copied = applying.n_copied.saturating_add(size(value));
                if applying.n_copied > COPIED_BYTES_MAX {
                    return Err(Cause::CopiedTooMuch);
                }
                let value = applying.copy(value)?;
                self.path.add(object, value, applying)
            }
            Kind::Move(from) => {
                let value = from.remove(object, applying)?;
                self.path.add(object, value, applying)
            }
            Kind::Remove => self.path.remove(object, applying).map(drop),
            Kind::Replace(value) => self.path.replace(object, applying.copy(value)?, applying),
            Kind::Test(value) => {
                let have = self.path.get(object)?.unwrap_or(&Value::Null);
                if same(have, value) { Ok(()) } else { Err(Cause::TestFailed) }
            }
        }
    }
}

impl Pointer {
    /// Bounds the depth of the result, so that it can be parsed again, and dropped without overflowing the stack.
    fn bound_depth(&self, value: &Value, applying: &Applying<'_>) -> Result<(), Cause> {
        applying.budget.work(cost::of(value).0)?;
        let is_too_deep = self.keys.len() + depth(value) > decode::DEPTH_MAX;
        if is_too_deep { Err(Cause::TooDeep) } else { Ok(()) }
    }

    fn add(&self, object: &mut Value, value: Value, applying: &Applying<'_>) -> Result<(), Cause> {
        self.bound_depth(&value, applying)?;
        match self.parent(object)? {
            Some((Value::Object(fields), key)) => {
                fields.insert(key.to_owned(), value);
            }
            Some((Value::Array(items), "-")) => items.push(value),
            Some((Value::Array(items), index)) => {
                // One position more than the number of items: -1 is the position after the last item.
                let length = items.len() + 1;
                let place = nth(index, length).filter(|place| *place < length);
                let place = place.ok_or_else(|| Cause::NoIndex { index: index.to_owned(), length: items.len() })?;
                applying.shift(items.len() - place)?;
                items.insert(place, value);
            }
            Some(_) | None => return Err(self.missing()),
        }
        Ok(())
    }

    fn remove(&self, object: &mut Value, applying: &Applying<'_>) -> Result<Value, Cause> {
        match self.parent(object)? {
            Some((Value::Object(fields), key)) => fields.remove(key).ok_or_else(|| self.missing()),
            Some((Value::Array(items), index)) => {
                let place = place(index, items.len())?;
                applying.shift(items.len() - place)?;
                Ok(items.remove(place))
            }
            Some(_) | None => Err(self.missing()),
        }
    }

    fn replace(&self, object: &mut Value, value: Value, applying: &Applying<'_>) -> Result<(), Cause> {
        self.bound_depth(&value, applying)?;
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

/// Equality that compares numbers by value.
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

/// The approximate length of a value as JSON: escapes are not counted.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use steersman_machinery::budget::Amount;

    /// The work of applying some operations to an object with a list of some length.
    fn steps(n_operations: usize, n_items: usize, operation: &Value) -> Result<u64, Error> {
        let budget = Budget::default();
        let patch = Value::Array(vec![operation.clone(); n_operations]).to_string();
        let patch = Patch::parse(patch.as_bytes(), &budget)?;
        patch.apply(&json!({"list": vec![1; n_items], "other": {}}), &budget)?;
        Ok(budget.steps())
    }

    #[test]
    fn moving_items_of_a_long_list_ten_thousand_times_is_refused() {
        let shuffle = json!({"op": "move", "from": "/list/-1", "path": "/list/0"});
        let refused = steps(OPERATIONS_MAX, 500_000, &shuffle).unwrap_err();
        assert!(matches!(refused, Error::Budget(budget::Error::Exceeded { amount: Amount::Steps, .. })), "{refused}");
        let add = json!({"op": "add", "path": "/list/0", "value": 1});
        assert!(matches!(steps(OPERATIONS_MAX, 500_000, &add).unwrap_err(), Error::Budget(_)));
        // Appending moves no items.
        let append = json!({"op": "add", "path": "/list/-", "value": 1});
        assert!(steps(OPERATIONS_MAX, 100_000, &append).unwrap() < 100_000);
        assert!(steps(100, 100_000, &shuffle).is_ok());
    }

    #[test]
    fn moving_a_large_value_to_and_fro_is_charged_each_time() {
        let there = json!({"op": "move", "from": "/list", "path": "/other/list"});
        let back = json!({"op": "move", "from": "/other/list", "path": "/list"});
        let patch: Vec<&Value> = (0..OPERATIONS_MAX / 2).flat_map(|_| [&there, &back]).collect();
        let budget = Budget::default();
        let patch = Patch::parse(json!(patch).to_string().as_bytes(), &budget).unwrap();
        let object = json!({"list": vec![1; 100_000], "other": {}});
        assert!(matches!(patch.apply(&object, &budget), Err(Error::Budget(_))));
    }

    #[test]
    fn copies_are_charged_by_the_memory_that_they_take() {
        let budget = Budget::default();
        let operations: Vec<Value> =
            (0..9000).map(|n| json!({"op": "copy", "from": "/from", "path": format!("/to/{n}")})).collect();
        let patch = Patch::parse(json!(operations).to_string().as_bytes(), &budget).unwrap();
        // Fifty objects of one field are less than 350 bytes of JSON and more than 30 KB of memory.
        let object = json!({"from": vec![json!({"a": 1}); 50], "to": {}});
        assert!(matches!(
            patch.apply(&object, &budget),
            Err(Error::Budget(budget::Error::Exceeded { amount: Amount::Bytes, .. }))
        ));
    }
}
