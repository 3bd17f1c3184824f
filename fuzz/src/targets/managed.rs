//! Server-side apply and `managedFields`: several managers write one object in turn.
//!
//! `managedFields` can always be read, and repeating an apply changes nothing.

use steersman_machinery::budget::Budget;
use crate::input::Draw;
use crate::kinds;
use serde_json::Value;
use steersman_schema::fields::FieldSet;
use steersman_schema::managed::{self, Kind, OnConflict, OneVersion, Origin, Writer};
use steersman_schema::decode;

const WRITES_MAX: usize = 8;
/// The beginning of the message about an object that is stored and no longer fits its schema.
const UNREADABLE: &str = "failed to create typed live object";

pub fn run(data: &[u8]) {
    let Some(mut draw) = Draw::of(data) else { return };
    let (gvk, schema) = kinds::kind(&mut draw);
    let reset = FieldSet::of_names(&[&["status"]]);
    let origin = if draw.once_in(4) { Origin::Custom } else { Origin::BuiltIn };
    let budget = Budget::unlimited();
    let kind = Kind { gvk, schema, origin, reset: &reset, versions: &OneVersion, budget: &budget };
    let mut live: Option<Value> = None;
    for _ in 0..WRITES_MAX {
        if draw.is_done() {
            return;
        }
        let manager = draw.choose(&["a", "b", "kubectl", ""]);
        let writer = Writer { manager, subresource: "", time: "2020-02-29T01:02:03Z" };
        let mut wish = draw.fitting(schema, 0);
        kinds::name(gvk, &mut wish);
        let next = match draw.below(3) {
            0 => applied(&kind, &writer, live.as_ref(), &wish, OnConflict::Refuse),
            1 => applied(&kind, &writer, live.as_ref(), &wish, OnConflict::Force),
            _ => updated(&kind, &writer, live.as_ref(), wish),
        };
        if let Some(next) = next {
            managed::check(&next).unwrap_or_else(|error| panic!("{error}: {next}"));
            live = Some(next);
        }
    }
}

fn applied(
    kind: &Kind<'_>,
    writer: &Writer<'_>,
    live: Option<&Value>,
    wish: &Value,
    on_conflict: OnConflict,
) -> Option<Value> {
    let merged = managed::on_apply(kind, writer, live, wish, on_conflict).ok()?;
    let once = read(kind, &merged).ok()?;
    // An apply that sets no field leaves no manager, and the next one finds fields without an owner, as upstream does.
    if once.pointer("/metadata/managedFields").is_none() {
        return Some(once);
    }
    let again = match managed::on_apply(kind, writer, Some(&once), wish, OnConflict::Force) {
        Ok(again) => again,
        // An empty key is not stored, and an item of a keyed list without its key cannot be read, as upstream.
        Err(error) if error.to_string().contains(UNREADABLE) => return None,
        Err(error) => panic!("{wish} was applied and is refused now: {error}"),
    };
    let twice = read(kind, &again).unwrap_or_else(|error| panic!("{again}: {error}"));
    assert_eq!(twice, once, "{wish} is applied once more by {:?}", writer.manager);
    Some(once)
}

fn updated(kind: &Kind<'_>, writer: &Writer<'_>, live: Option<&Value>, wish: Value) -> Option<Value> {
    let mut new = read(kind, &wish).ok()?;
    if let (Some(live), Some(metadata)) = (live, new.get_mut("metadata").and_then(Value::as_object_mut))
        && !live["metadata"]["managedFields"].is_null()
    {
        metadata.insert("managedFields".to_owned(), live["metadata"]["managedFields"].clone());
    }
    managed::on_update(kind, writer, live, &mut new).ok()?;
    if let Some(live) = live {
        managed::keep_times(live, &mut new);
    }
    Some(new)
}

/// The object as a request for it is read: Go's empty fields appear in a built-in kind, and in no other.
fn read(kind: &Kind<'_>, object: &Value) -> Result<Value, decode::Error> {
    match kind.origin {
        Origin::BuiltIn => decode::from_value(kind.schema, object, &Budget::unlimited()).map(|decoded| decoded.value),
        Origin::Custom => Ok(object.clone()),
    }
}
