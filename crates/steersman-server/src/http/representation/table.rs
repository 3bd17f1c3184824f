//! The `Table` of `meta.k8s.io`: a row of cells for each object, as kubectl prints them.

use crate::http::representation::{Included, Representation, text, write};
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use bytes::Bytes;
use serde_json::json;
use steersman_machinery::{Value, value};

/// Whether a table describes its columns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Columns {
    /// The table describes them.
    Described,
    /// The client has their description from an earlier table of the same watch.
    Known,
}

impl Representation {
    /// Writes an object as a row.
    ///
    /// # Errors
    /// When a stored object is not readable.
    pub(super) fn write_row(&self, payload: &Payload, out: &mut Vec<u8>) -> Result<(), Failure> {
        out.extend_from_slice(b"{\"cells\":");
        let (strategy, version) = (&self.served.resource.strategy, self.served.version());
        let (cells, conditions) = match payload {
            Payload::Stored(object) => {
                let read = self.cells_read.as_ref().map(|parts| parts.read(object.json()));
                let read = read.unwrap_or_else(|| serde_json::from_slice(object.json())).map_err(|error| {
                    tracing::error!(key = %object.key, %error, "a stored object is not readable");
                    Failure::internal(format!("the stored object {} is not readable", object.key))
                })?;
                let is_converted = self.included == Included::Object || self.resource().is_custom();
                let stored = if is_converted { version } else { self.resource().storage_version() };
                (strategy.cells(stored, &read, self.now), strategy.row_conditions(stored, &read))
            }
            Payload::Tree(tree) => (strategy.cells(version, tree, self.now), strategy.row_conditions(version, tree)),
        };
        write(&cells, out);
        if !conditions.is_empty() {
            out.extend_from_slice(b",\"conditions\":");
            write(&conditions, out);
        }
        out.extend_from_slice(b",\"object\":");
        match (self.included, payload) {
            (Included::Metadata, _) => self.write_metadata(payload, out)?,
            (Included::Nothing, _) => out.extend_from_slice(b"null"),
            (Included::Object, Payload::Stored(object)) => out.extend_from_slice(object.json()),
            (Included::Object, Payload::Tree(tree)) => write(tree, out),
        }
        out.push(b'}');
        Ok(())
    }

    /// A table of one object, at its version.
    ///
    /// # Errors
    /// When a stored object is not readable.
    pub(super) fn table_of_one(&self, payload: &Payload, columns: Columns) -> Result<Bytes, Failure> {
        let version = match payload {
            Payload::Stored(object) => Some(object.revision.to_string()),
            Payload::Tree(tree) => value::str_at(tree, &["metadata", "resourceVersion"]).map(str::to_owned),
        };
        let mut out = b"{\"kind\":\"Table\",\"apiVersion\":\"".to_vec();
        out.extend_from_slice(self.meta_version.api_version().as_bytes());
        out.extend_from_slice(b"\",\"metadata\":");
        write(&version.map_or_else(|| json!({}), |version| json!({"resourceVersion": version})), &mut out);
        out.extend_from_slice(b",\"columnDefinitions\":");
        match columns {
            Columns::Described => out.extend_from_slice(&self.columns()),
            Columns::Known => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"rows\":[");
        self.write_row(payload, &mut out)?;
        out.extend_from_slice(b"]}");
        Ok(out.into())
    }

    /// The definitions of the columns.
    pub(super) fn columns(&self) -> Vec<u8> {
        let columns = self.served.version().columns.iter();
        let columns = columns.map(|column| {
            json!({
                "name": column.name,
                "type": column.kind,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            })
        });
        text(&columns.collect::<Vec<Value>>())
    }
}
