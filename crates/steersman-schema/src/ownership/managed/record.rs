//! Reads and writes `metadata.managedFields`.

use crate::ownership::fields::{FieldSet, ParseError};
use std::collections::BTreeMap;
use steersman_machinery::value::{self, Map};
use steersman_machinery::{Value, time as times};

const PATH: [&str; 2] = ["metadata", "managedFields"];
/// The maximum number of entries of updates; older ones are merged.
pub(crate) const UPDATERS_MAX: usize = 10;
const FOLDED: &str = "ancient-changes";

/// Why a record cannot be read or updated.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// An object cannot be converted to the version in which a record was written.
    #[error("{0}")]
    Conversion(String),
    /// The FieldsV1 of an entry cannot be parsed.
    #[error("the fields of entry {index} of metadata.managedFields cannot be read")]
    Fields {
        /// The index in the list.
        index: usize,
        /// The error of the parser.
        #[source]
        source: ParseError,
    },
    /// An entry is incomplete or has an unknown value.
    #[error("entry {index} of metadata.managedFields is invalid: {fault}")]
    Entry {
        /// The index in the list.
        index: usize,
        /// The error of the entry.
        fault: String,
    },
}

/// Each manager with the fields that it owns.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Record(pub(crate) BTreeMap<Manager, Owned>);

/// A manager. Updates, applies and writes through a subresource of the same manager are separate.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    /// Empty for applies: each apply replaces all fields, whatever its version.
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// The fields of a manager.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Owned {
    pub(crate) fields: FieldSet,
    /// The FieldsV1 that the server has written, if the fields have not changed since.
    pub(crate) written: Option<Value>,
    /// The version in which the fields are named.
    pub(crate) api_version: String,
    pub(crate) time: Option<String>,
}

// === impl Record ===

impl Record {
    /// Reads the record of an object; empty if it has none.
    pub(crate) fn of(object: &Value) -> Result<Record, RecordError> {
        Record::read(value::at(object, &PATH))
    }

    /// The `managedFields` of an object.
    pub(crate) fn entries(object: &Value) -> Option<&Value> {
        value::at(object, &PATH)
    }

    /// Reads entries that the server has written, and moves their FieldsV1 out, to be written again unchanged.
    pub(crate) fn take_over(entries: &mut Value) -> Result<Record, RecordError> {
        let mut record = Record::default();
        for (index, entry) in entries.as_array_mut().into_iter().flatten().enumerate() {
            let (manager, mut owned) = read_entry(index, entry)?;
            owned.written = entry.get_mut("fieldsV1").map(Value::take);
            record.0.insert(manager, owned);
        }
        Ok(record)
    }

    /// Reads a list of entries.
    pub(crate) fn read(entries: Option<&Value>) -> Result<Record, RecordError> {
        let mut record = Record::default();
        for (index, entry) in entries.and_then(Value::as_array).into_iter().flatten().enumerate() {
            let (manager, owned) = read_entry(index, entry)?;
            record.0.insert(manager, owned);
        }
        Ok(record)
    }

    /// Whether an object resets its record: an empty list, or a list of one empty entry.
    pub(crate) fn is_reset(object: &Value) -> bool {
        let entries = value::at(object, &PATH).and_then(Value::as_array);
        entries.is_some_and(|entries| match entries.as_slice() {
            [] => true,
            [entry] => entry.as_object().is_some_and(Map::is_empty),
            _ => false,
        })
    }

    /// A copy of an object without its record.
    pub(crate) fn without(object: &Value) -> Value {
        let Value::Object(fields) = object else {
            return object.clone();
        };
        let copy = fields.iter().map(|(name, value)| match (name.as_str(), value) {
            ("metadata", Value::Object(metadata)) => {
                let others = metadata.iter().filter(|(name, _)| name.as_str() != PATH[1]);
                (name.clone(), Value::Object(others.map(|(name, value)| (name.clone(), value.clone())).collect()))
            }
            _ => (name.clone(), value.clone()),
        });
        Value::Object(copy.collect())
    }

    /// Removes the record from an object.
    pub(crate) fn take(object: &mut Value) -> Option<Value> {
        value::remove_at(object, &PATH)
    }

    /// Sets the record of an object.
    pub(crate) fn put(self, object: &mut Value) {
        match self.write() {
            Value::Array(entries) if entries.is_empty() => {
                Record::take(object);
            }
            entries => {
                value::set_at(object, &PATH, entries);
            }
        }
    }

    /// Writes the entries: applies first, then by time, manager, version and subresource.
    pub(crate) fn write(self) -> Value {
        let with_time = self.0.into_iter().map(|(manager, owned)| (seconds(&owned), manager, owned));
        let mut entries: Vec<(i64, Manager, Owned)> = with_time.collect();
        entries.sort_by(|(a_time, a, a_owned), (b_time, b, b_owned)| {
            a.operation
                .cmp(&b.operation)
                .then_with(|| a_time.cmp(b_time))
                .then_with(|| a.name.cmp(&b.name))
                .then_with(|| a_owned.api_version.cmp(&b_owned.api_version))
                .then_with(|| a.subresource.cmp(&b.subresource))
        });
        entries.into_iter().map(|(_, manager, owned)| write_entry(manager, owned)).collect()
    }

    /// Merges the oldest entries of updates into one per version, until the limit is met.
    pub(crate) fn cap(&mut self) {
        let mut updaters: Vec<Manager> =
            self.0.keys().filter(|manager| manager.operation == Operation::Update).cloned().collect();
        let mut excess = updaters.len().saturating_sub(UPDATERS_MAX);
        if excess == 0 {
            return;
        }
        updaters.sort_by(|a, b| self.age(a).cmp(&self.age(b)).then_with(|| a.cmp(b)));
        // The first entry of a version is merged only once there is a second.
        let mut firsts: BTreeMap<String, Manager> = BTreeMap::new();
        // United at the end, because each union costs as much as the previous result, and a client may send thousands
        // of entries.
        let mut folded_fields: BTreeMap<Manager, Vec<FieldSet>> = BTreeMap::new();
        for manager in updaters {
            if excess == 0 {
                break;
            }
            let Some(owned) = self.0.get(&manager).cloned() else {
                continue;
            };
            let version = owned.api_version.clone();
            let Some(first) = firsts.get(&version).cloned() else {
                firsts.insert(version, manager);
                continue;
            };
            let folded = Manager {
                name: FOLDED.to_owned(),
                operation: Operation::Update,
                api_version: version,
                subresource: String::new(),
            };
            if !self.0.contains_key(&folded)
                && let Some(oldest) = self.0.remove(&first)
            {
                self.0.insert(folded.clone(), oldest);
            }
            self.0.remove(&manager);
            let place = folded.clone();
            let into = self.0.entry(folded).or_insert_with(|| Owned {
                fields: FieldSet::new(),
                written: None,
                ..owned.clone()
            });
            folded_fields.entry(place).or_default().push(owned.fields);
            into.time = owned.time;
            excess -= 1;
        }
        for (manager, sets) in folded_fields {
            if let Some(owned) = self.0.get_mut(&manager) {
                owned.fields_mut().add(&FieldSet::union_of(sets));
            }
        }
    }

    fn age(&self, manager: &Manager) -> Option<i64> {
        self.0.get(manager).map(seconds)
    }
}

/// The time of an entry; an entry without one counts as the oldest.
fn seconds(owned: &Owned) -> i64 {
    owned.time.as_deref().map_or(0, seconds_of)
}

/// A time in seconds; zero if it is invalid.
pub(crate) fn seconds_of(time: &str) -> i64 {
    times::parse(time).map_or(0, jiff::Timestamp::as_second)
}

fn read_entry(index: usize, entry: &Value) -> Result<(Manager, Owned), RecordError> {
    let text = |key: &str| value::str_at(entry, &[key]).unwrap_or_default().to_owned();
    let invalid = |fault: String| RecordError::Entry { index, fault };
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        other => return Err(invalid(format!("the operation must be `Apply` or `Update`, not {other:?}"))),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err(invalid("apiVersion must not be empty".to_owned()));
    }
    match text("fieldsType").as_str() {
        "FieldsV1" => {}
        other => return Err(invalid(format!("fieldsType must be `FieldsV1`, not {other:?}"))),
    }
    let fields = match entry.get("fieldsV1") {
        Some(fields) => FieldSet::from_value(fields).map_err(|source| RecordError::Fields { index, source })?,
        None => FieldSet::new(),
    };
    let manager = Manager {
        name: text("manager"),
        operation,
        api_version: if operation == Operation::Apply { String::new() } else { api_version.clone() },
        subresource: text("subresource"),
    };
    let time = value::str_at(entry, &["time"]).map(str::to_owned);
    Ok((manager, Owned { fields, written: None, api_version, time }))
}

fn write_entry(manager: Manager, owned: Owned) -> Value {
    let mut entry = Map::new();
    let mut put = |key: &str, text: String| {
        if !text.is_empty() {
            entry.insert(key.to_owned(), Value::String(text));
        }
    };
    put("apiVersion", owned.api_version);
    put("fieldsType", "FieldsV1".to_owned());
    put("manager", manager.name);
    put("operation", manager.operation.name().to_owned());
    put("subresource", manager.subresource);
    put("time", owned.time.unwrap_or_default());
    entry.insert("fieldsV1".to_owned(), owned.written.unwrap_or_else(|| owned.fields.to_value()));
    Value::Object(entry)
}

// === impl Owned ===

impl Owned {
    /// The fields, for changing them.
    pub(crate) fn fields_mut(&mut self) -> &mut FieldSet {
        self.written = None;
        &mut self.fields
    }
}

// === impl Operation ===

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}
