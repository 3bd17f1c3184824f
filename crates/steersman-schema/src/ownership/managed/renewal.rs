//! The fast path for updates that change no ownership, which most do: a writer mostly changes the fields that it
//! changed the last time. Only the time of the writer's entry changes in the record, so the entries are neither decoded
//! nor written anew. Called by [`crate::ownership::managed::update`], which records every other update.

use crate::ownership::fields::{FieldSet, compare, written};
use crate::ownership::managed::record::{Record, UPDATERS_MAX, seconds_of};
use crate::ownership::managed::{Kind, Writer, engine};
use steersman_machinery::Value;
use steersman_machinery::value::{self, Map};

/// An encoded entry.
struct Entry<'a> {
    api_version: &'a str,
    fields: &'a Map,
    manager: &'a str,
    operation: &'a str,
    subresource: &'a str,
}

/// Renews the record of an object that comes with the record of the live one. `false`, with nothing done, where
/// managers gain or lose fields, or the encoded entries cannot tell.
pub(crate) fn renew(kind: &Kind<'_>, writer: &Writer<'_>, live: &Value, new: &mut Value) -> bool {
    let Some(entries) = Record::entries(live).filter(|entries| Record::entries(new) == Some(*entries)) else {
        return false;
    };
    let Some(entries) = entries.as_array().filter(|entries| !entries.is_empty()) else { return false };
    let difference = compare(kind.schema, live, new).without(kind.reset);
    let changed = difference.modified.union(&difference.added);
    let mut taken = changed.clone();
    engine::leave_ownable(&mut taken);
    let is_plain = taken.len() == changed.len() && taken.has_names_only() && difference.removed.has_names_only();
    if !is_plain || difference.lacks_key {
        return false;
    }
    let Some(own) = own_entry(kind, writer, entries, &taken, &difference.removed) else { return false };
    if taken.is_empty() {
        return true;
    }
    let metadata = value::object_at(new, &["metadata"]);
    let entries = metadata.and_then(|metadata| metadata.get_mut("managedFields")).and_then(Value::as_array_mut);
    let (Some(own), Some(entries)) = (own, entries) else { return false };
    entries[own]["time"] = writer.time.into();
    if 1 < entries.len() {
        entries.sort_by(|a, b| rank(a).cmp(&rank(b)));
    }
    true
}

/// The index of the writer's entry, if it has one; `None` if a manager gains or loses fields, or an entry must be
/// decoded.
fn own_entry(
    kind: &Kind<'_>,
    writer: &Writer<'_>,
    entries: &[Value],
    taken: &FieldSet,
    removed: &FieldSet,
) -> Option<Option<usize>> {
    let manager = if writer.manager.is_empty() { "unknown" } else { writer.manager };
    let (mut own, mut n_updaters) = (None, 0);
    for (place, entry) in entries.iter().enumerate() {
        let entry = Entry::read(entry)?;
        let is_known = kind.is_own(entry.api_version) && written::is_settled(kind.schema, entry.fields);
        if !is_known || removed.overlaps(entry.fields) {
            return None;
        }
        let is_updater = entry.operation == "Update";
        n_updaters += usize::from(is_updater);
        let is_own = is_updater && entry.manager == manager && entry.subresource == writer.subresource;
        let is_untouched = match is_own {
            true => own.replace(place).is_none() && taken.is_within(entry.fields),
            false => !taken.overlaps(entry.fields),
        };
        if !is_untouched {
            return None;
        }
    }
    (n_updaters <= UPDATERS_MAX).then_some(own)
}

/// The sort key of entries, as in [`Record::write`].
fn rank(entry: &Value) -> (&str, i64, &str, &str, &str) {
    let text = |key: &str| value::str_at(entry, &[key]).unwrap_or_default();
    (text("operation"), seconds_of(text("time")), text("manager"), text("apiVersion"), text("subresource"))
}

impl<'a> Entry<'a> {
    fn read(entry: &'a Value) -> Option<Entry<'a>> {
        let text = |key: &str| value::str_at(entry, &[key]).unwrap_or_default();
        let operation = text("operation");
        let is_known = matches!(operation, "Apply" | "Update") && text("fieldsType") == "FieldsV1";
        let fields = value::at(entry, &["fieldsV1"])?.as_object().filter(|fields| is_known && !fields.is_empty())?;
        Some(Entry {
            api_version: text("apiVersion"),
            fields,
            manager: text("manager"),
            operation,
            subresource: text("subresource"),
        })
    }
}
