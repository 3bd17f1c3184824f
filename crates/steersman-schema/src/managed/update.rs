//! Ownership after a create, an update or a patch: what changed is the writer's.

use crate::fields::compare;
use crate::managed::record::{Manager, Operation, Owned, Record, RecordError};
use crate::managed::{Kind, Writer, engine, renewal};
use steersman_machinery::Value;
use steersman_machinery::value;

/// Writes the record of an object that is about to be created, updated or patched.
///
/// `live` is the stored object in the request's version, none on create. `new` is decoded, defaulted and in the request's
/// version, before mutating admission, and carries the `managedFields` the client sent: those count, so that a client may
/// correct the record; an empty list forgets it. Through a subresource they do not count.
///
/// # Errors
/// When an object does not convert to the version of an entry. `new` then has the record of `live`: log it and go on.
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

/// The same for any update: all entries are read as sets of fields and written again.
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

/// The record to go on from: what the client sent, else the live one. One that cannot be read counts as none. The new object is
/// left without any.
fn starting_record(writer: &Writer<'_>, live: Option<&Value>, new: &mut Value) -> Record {
    let is_reset = Record::is_reset(new);
    let mut sent = Record::take(new);
    let of_live = || live.and_then(|live| Record::of(live).ok()).unwrap_or_default();
    // Mostly it is the live one that comes back. The server has written it, so what stays as it is need not be written anew.
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
    // An object whose record was forgotten stays without until it is applied to.
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

/// Gives the writer all that differs between two objects; the new one carries no record of its own.
pub(crate) fn move_to_writer(
    kind: &Kind<'_>,
    writer: &Writer<'_>,
    old: &Value,
    new: &Value,
    mut record: Record,
) -> Result<Record, RecordError> {
    engine::reconcile_record(kind, &mut record);
    let difference = compare(kind.schema, old, new).without(kind.reset);
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
    /// The owner that this writer is.
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
