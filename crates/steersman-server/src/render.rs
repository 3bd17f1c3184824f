//! The forms of objects in answers: as they are, as metadata alone, as rows of a table.

use crate::answer::ListHead;
use crate::at_rest;
use crate::body::Item;
use crate::endpoint::context::Context;
use crate::negotiate::Form;
use crate::payload::Payload;
use crate::status::Failure;
use serde_json::json;
use steersman_machinery::value::{self, Map};
use steersman_machinery::{Object, Revision, Value};

/// An object in the requested form.
pub(crate) fn tree(cx: &Context<'_>, payload: &Payload) -> Result<Value, Failure> {
    match payload {
        Payload::Stored(object) => cx.requested(object),
        Payload::Tree(tree) => Ok(tree.clone()),
    }
}

/// `meta.k8s.io/v1 PartialObjectMetadata` of an object.
pub(crate) fn partial_metadata(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// An object as an item of a list: of built-in kinds without kind and apiVersion, which the list says.
pub(crate) fn list_item(cx: &Context<'_>, payload: &Payload, form: Form) -> Result<Item, Failure> {
    const NOTHING: &[u8] = b"";
    const BRACE: &[u8] = b"{";
    if let (Form::Object, Payload::Stored(object)) = (form, payload) {
        let is_stored_form = cx.operation.strategy().is_stored_form(cx.operation.resource(), cx.operation.version());
        if is_stored_form && cx.operation.resource().is_custom() {
            return Ok(Item { opening: NOTHING, bytes: object.json_bytes() });
        }
        let cut = at_rest::list_item(&at_rest::prefix(cx.operation.resource()), &object.json_bytes());
        if let (true, Some(bytes)) = (is_stored_form, cut) {
            return Ok(Item { opening: BRACE, bytes });
        }
    }
    let mut tree = tree(cx, payload)?;
    if form == Form::PartialMetadata {
        tree = partial_metadata(&tree);
    } else if !cx.operation.resource().is_custom() {
        value::remove_at(&mut tree, &["kind"]);
        value::remove_at(&mut tree, &["apiVersion"]);
    }
    let bytes = crate::codec::encode(&tree, crate::negotiate::Encoding::Json, false);
    Ok(Item { opening: NOTHING, bytes })
}

/// The metadata of a list.
pub(crate) fn list_metadata(head: &ListHead) -> Value {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), head.revision.to_string().into());
    if let Some(token) = &head.token {
        metadata.insert("continue".to_owned(), token.as_str().into());
    }
    if let Some(remaining) = head.remaining {
        metadata.insert("remainingItemCount".to_owned(), remaining.into());
    }
    Value::Object(metadata)
}

/// The metadata of a table of one object.
pub(crate) fn table_head(object: &Value) -> Value {
    match value::str_at(object, &["metadata", "resourceVersion"]) {
        Some(version) => json!({"resourceVersion": version}),
        None => json!({}),
    }
}

/// Objects in the requested form as a table.
///
/// # Errors
/// 400 if the client asks for something of the rows that there is not.
pub(crate) fn table(cx: &Context<'_>, objects: &[Value], metadata: Value) -> Result<Value, Failure> {
    let rows = objects.iter().map(|object| row(cx, object)).collect::<Result<Vec<_>, _>>()?;
    Ok(json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns(cx),
        "rows": rows,
    }))
}

/// The object of a watch event in another form than the stored one. Tables say their columns once in a watch.
pub(crate) fn event_object(
    cx: &Context<'_>,
    object: &Object,
    form: Form,
    says_columns: bool,
) -> Result<Value, Failure> {
    let tree = cx.requested(object)?;
    match form {
        Form::Object => Ok(tree),
        Form::PartialMetadata => Ok(partial_metadata(&tree)),
        Form::Table => {
            let head = table_head(&tree);
            let mut table = table(cx, &[tree], head)?;
            if !says_columns {
                table["columnDefinitions"] = Value::Null;
            }
            Ok(table)
        }
    }
}

/// The last content of an object at the version of a later change.
pub(crate) fn at_revision(object: &Object, revision: Revision) -> Option<Object> {
    Some(object.copy_at(revision))
}

fn columns(cx: &Context<'_>) -> Vec<Value> {
    let columns = cx.operation.version().columns.iter();
    let columns = columns.map(|column| {
        json!({
            "name": column.name,
            "type": column.kind,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        })
    });
    columns.collect()
}

fn row(cx: &Context<'_>, object: &Value) -> Result<Value, Failure> {
    let included = match cx.query.non_empty("includeObject") {
        None | Some("Metadata") => partial_metadata(object),
        Some("None") => Value::Null,
        Some("Object") => object.clone(),
        Some(other) => {
            let text = format!("unrecognized includeObject value: {other:?}: want None, Metadata or Object");
            return Err(Failure::bad_request(text));
        }
    };
    let cells = cx.operation.strategy().cells(cx.operation.version(), object, cx.operation.now);
    Ok(json!({"cells": cells, "object": included}))
}
