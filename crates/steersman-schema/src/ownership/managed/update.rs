//! Ownership after a create, an update or a patch: changed fields become the writer's.

use crate::ownership::fields::compare;
use crate::ownership::managed::record::{Manager, Operation, Owned, Record, RecordError};
use crate::ownership::managed::{Kind, Origin, Writer, engine, renewal};
use steersman_machinery::Value;
use steersman_machinery::value;

/// Writes the record of an object that is about to be created, updated or patched.
///
/// `live` is the stored object in the request's version, none on create. `new` is decoded, defaulted and in the
/// request's version, before mutating admission. Its `managedFields` as sent by the client are used, so that a client
/// may correct the record; an empty list resets it. Through a subresource they are ignored.
///
/// # Errors
/// When an object cannot be converted to the version of an entry. `new` then has the record of `live`: log the error
/// and continue.
pub fn on_update(
    kind: &Kind<'_>,
    writer: &Writer<'_>,
    live: Option<&Value>,
    new: &mut Value,
) -> Result<(), RecordError> {
    if live.is_some_and(|live| renewal::renew(kind, writer, live, new)) {
        return Ok(());
    }
    record_anew(kind, writer, live, new)
}

/// Records any update: all entries are decoded into sets of fields and written again.
pub(crate) fn record_anew(
    kind: &Kind<'_>,
    writer: &Writer<'_>,
    live: Option<&Value>,
    new: &mut Value,
) -> Result<(), RecordError> {
    let sent = starting_record(writer, live, new);
    match record_update(kind, writer, live, new, sent) {
        Ok(record) => {
            record.put(new);
            Ok(())
        }
        Err(error) => {
            if let Some(entries) = live.and_then(|live| value::at(live, &["metadata", "managedFields"])) {
                value::set_at(new, &["metadata", "managedFields"], entries.clone());
            }
            Err(error)
        }
    }
}

/// The record to start from: the client's, or else the live one. An invalid one counts as empty. The record is removed
/// from the new object.
fn starting_record(writer: &Writer<'_>, live: Option<&Value>, new: &mut Value) -> Record {
    let is_reset = Record::is_reset(new);
    let mut sent = Record::take(new);
    let of_live = || live.and_then(|live| Record::of(live).ok()).unwrap_or_default();
    // Usually the client sends the live record. The server has written it, so unchanged parts need not be encoded
    // again.
    let is_live = sent.as_ref().is_some_and(|sent| live.and_then(Record::entries) == Some(sent));
    if let (true, Some(sent)) = (is_live && !is_reset, &mut sent) {
        return Record::take_over(sent).unwrap_or_default();
    }
    if !writer.subresource.is_empty() {
        return of_live();
    }
    if is_reset {
        return Record::default();
    }
    match Record::read(sent.as_ref()) {
        Ok(record) if !record.0.is_empty() => record,
        _ => of_live(),
    }
}

fn record_update(
    kind: &Kind<'_>,
    writer: &Writer<'_>,
    live: Option<&Value>,
    new: &Value,
    record: Record,
) -> Result<Record, RecordError> {
    let exists = live.is_some_and(|live| value::str_at(live, &["metadata", "uid"]).is_some_and(|uid| !uid.is_empty()));
    // An object whose record was reset stays without one until it is applied.
    if record.0.is_empty() && exists {
        return Ok(record);
    }
    let mut record = match live {
        Some(live) => move_to_writer(kind, writer, live, new, record)?,
        None => move_to_writer(kind, writer, &kind.nothing(), new, record)?,
    };
    record.cap();
    Ok(record)
}

/// Gives the writer all fields that differ between two objects; the new one has no record of its own.
pub(crate) fn move_to_writer(
    kind: &Kind<'_>,
    writer: &Writer<'_>,
    old: &Value,
    new: &Value,
    mut record: Record,
) -> Result<Record, RecordError> {
    engine::reconcile_record(kind, &mut record);
    let difference = compare(kind.schema, old, new).without(kind.reset);
    if difference.lacks_key && kind.origin == Origin::BuiltIn {
        // Upstream cannot read such an object as one of its type, and gives up the whole record.
        return Ok(Record::default());
    }
    engine::losses(kind, &record, None, old, new, &difference)?.take_from(&mut record);

    let mut taken = match difference.modified {
        modified if modified.is_empty() => difference.added,
        modified => modified.union(&difference.added),
    };
    engine::leave_ownable(&mut taken);
    if !taken.is_empty() {
        let api_version = kind.api_version();
        let time = Some(writer.time.to_owned());
        match record.0.entry(writer.manager(Operation::Update, &api_version)) {
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let owned = entry.get_mut();
                if !taken.is_subset(&owned.fields) {
                    owned.fields_mut().add(&taken);
                }
                owned.time = time;
            }
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(Owned { fields: taken, written: None, api_version, time });
            }
        }
    }
    Ok(record)
}

// === impl Writer ===

impl Writer<'_> {
    /// The manager of this writer.
    pub(crate) fn manager(&self, operation: Operation, api_version: &str) -> Manager {
        let name = if self.manager.is_empty() { "unknown" } else { self.manager };
        let api_version = match operation {
            Operation::Apply => "",
            Operation::Update => api_version,
        };
        Manager {
            name: name.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }
}
