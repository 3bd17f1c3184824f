//! The record itself: `metadata.managedFields` read and written.

use crate::fields::{FieldSet, ParseError};
use std::collections::BTreeMap;
use steersman_machinery::value::{self, Map};
use steersman_machinery::{Value, time as times};

const PATH: [&str; 2] = ["metadata", "managedFields"];
/// More entries of updates than this are folded into one.
pub(crate) const UPDATERS_MAX: usize = 10;
const FOLDED: &str = "ancient-changes";

/// Why a record cannot be read or kept up.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// An object does not convert to the version a record was written in.
    #[error("{0}")]
    Conversion(String),
    /// An entry's set of fields cannot be read.
    #[error("the fields of entry {index} of metadata.managedFields cannot be read")]
    Fields {
        /// Its place in the list.
        index: usize,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// An entry lacks something or says something unknown.
    #[error("entry {index} of metadata.managedFields is invalid: {fault}")]
    Entry {
        /// Its place in the list.
        index: usize,
        /// What is wrong with it.
        fault: String,
    },
}

/// Owners and what each owns.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Record(pub(crate) BTreeMap<Manager, Owned>);

/// An owner. The same manager owns apart what it updated, what it applied, and what it wrote through a subresource.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    /// Empty for what was applied: each apply says all anew, in whatever version.
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// What an owner owns.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Owned {
    pub(crate) fields: FieldSet,
    /// The same as FieldsV1, if the server has written it and it has not changed since.
    pub(crate) written: Option<Value>,
    /// The version the fields are named in.
    pub(crate) api_version: String,
    pub(crate) time: Option<String>,
}

// === impl Record ===

impl Record {
    /// Reads the record of an object; one without any has an empty one.
    pub(crate) fn of(object: &Value) -> Result<Record, RecordError> {
        Record::read(value::at(object, &PATH))
    }

    /// The entries of an object.
    pub(crate) fn entries(object: &Value) -> Option<&Value> {
        value::at(object, &PATH)
    }

    /// Reads entries that the server has written, and takes their fields to write them again as they are.
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

    /// Whether an object asks for its record to be forgotten: an empty list, or a list of one empty entry.
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

    /// Takes the record out of an object.
    pub(crate) fn take(object: &mut Value) -> Option<Value> {
        value::remove_at(object, &PATH)
    }

    /// Puts the record into an object.
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

    /// Writes the entries: what was applied first, then by time, manager, version and subresource.
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

    /// Folds the oldest entries of updates into one per version, until there are no more than the limit.
    pub(crate) fn cap(&mut self) {
        let mut updaters: Vec<Manager> =
            self.0.keys().filter(|manager| manager.operation == Operation::Update).cloned().collect();
        let mut excess = updaters.len().saturating_sub(UPDATERS_MAX);
        if excess == 0 {
            return;
        }
        updaters.sort_by(|a, b| self.age(a).cmp(&self.age(b)).then_with(|| a.cmp(b)));
        // The first of a version is folded only once there is a second.
        let mut firsts: BTreeMap<String, Manager> = BTreeMap::new();
        // United at the end, because each union costs as much as what there is already, and a client may send thousands of entries.
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

/// When an entry was written; one that does not say counts as the oldest.
fn seconds(owned: &Owned) -> i64 {
    owned.time.as_deref().map_or(0, seconds_of)
}

/// A time in seconds; zero if it is none.
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
    /// The fields, to be changed.
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
