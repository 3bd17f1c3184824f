//! How objects are sent: in which version, form and serialisation.
//!
//! One [`Representation`] serves an object, the items of a list and the events of a watch alike. It works on the bytes that
//! objects are stored as and makes a tree only where the requested form is another one than the stored. Forms have a file
//! each (`metadata`, `table`; an object as it is needs none), serialisations are in `encoding`.
//!
//! Knows nothing of requests and operations: what is to be sent is handed in.

pub(crate) mod encoding;
mod event;
mod list;
mod metadata;
mod table;

use crate::at_rest;
use crate::catalog::{Resource, Served};
use crate::conversion;
use crate::negotiate::{Encoding, Form, Negotiated};
use crate::payload::Payload;
use crate::projection::Projection;
use crate::representation::encoding::{Encoder, encoder};
use crate::status::Failure;
use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use std::sync::Arc;
use steersman_machinery::{Object, Value, value};

pub(crate) use self::event::{Word, frame_of};
pub(crate) use self::list::{ListHead, Reload, list};

/// How objects are sent.
#[derive(Clone, Debug)]
pub(crate) struct Representation {
    served: Served,
    encoding: Encoding,
    form: Form,
    is_pretty: bool,
    included: Included,
    now: Timestamp,
    /// Whether the stored bytes are what is asked for.
    is_stored_form: bool,
    /// What the stored bytes of a built-in kind begin with; nothing for custom ones.
    prefix: Box<[u8]>,
    /// What the cells of a table are made of.
    cells_read: Option<Arc<Projection>>,
}

/// What a row of a table has of its object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Included {
    Metadata,
    Nothing,
    Object,
}

/// What of a request is about the looks of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes<'a> {
    pub(crate) negotiated: Negotiated,
    pub(crate) is_pretty: bool,
    /// `includeObject`, if it is given.
    pub(crate) include_object: Option<&'a str>,
    pub(crate) now: Timestamp,
}

impl Representation {
    /// How objects of a resource are sent to somebody.
    ///
    /// # Errors
    /// 400 if the client asks for something of the rows of a table that there is not.
    pub(crate) fn new(served: &Served, wishes: Wishes<'_>) -> Result<Representation, Failure> {
        let Negotiated { encoding, form } = wishes.negotiated;
        let included = match wishes.include_object.filter(|_| form == Form::Table) {
            None | Some("Metadata") => Included::Metadata,
            Some("None") => Included::Nothing,
            Some("Object") => Included::Object,
            Some(other) => {
                let text = format!("unrecognized includeObject value: {other:?}: want None, Metadata or Object");
                return Err(Failure::bad_request(text));
            }
        };
        let (resource, version) = (&served.resource, served.version());
        let strategy = &resource.strategy;
        Ok(Representation {
            is_stored_form: strategy.is_stored_form(resource, version),
            prefix: if resource.is_custom() { Box::default() } else { at_rest::prefix(resource).into() },
            cells_read: (form == Form::Table).then(|| Arc::new(strategy.cells_read(version))),
            served: served.clone(),
            encoding,
            form,
            is_pretty: wishes.is_pretty,
            included,
            now: wishes.now,
        })
    }

    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding
    }

    pub(crate) fn form(&self) -> Form {
        self.form
    }

    pub(crate) fn served(&self) -> &Served {
        &self.served
    }

    /// The same at another time: the age of an object is shown as of then.
    pub(crate) fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    fn resource(&self) -> &Resource {
        &self.served.resource
    }

    fn encoder(&self) -> &'static dyn Encoder {
        encoder(self.encoding, self.is_pretty)
    }

    /// Stored objects as they can be written: those whose bytes are not what is asked for are converted.
    ///
    /// # Errors
    /// When one cannot be read, or cannot be had in the version asked for.
    pub(crate) async fn convert(&self, objects: Vec<Arc<Object>>) -> Result<Vec<Payload>, Failure> {
        if self.is_stored_form {
            return Ok(objects.into_iter().map(Payload::Stored).collect());
        }
        let stored = objects.iter().map(|object| conversion::parse(object)).collect::<Result<Vec<_>, _>>()?;
        let requested = conversion::to_requested(&self.served, stored).await?;
        Ok(requested.into_iter().map(Payload::Tree).collect())
    }

    /// One object as the whole answer.
    ///
    /// # Errors
    /// When it cannot be read, or cannot be had in the version asked for.
    pub(crate) async fn one(&self, payload: Payload) -> Result<Bytes, Failure> {
        let payload = match payload {
            Payload::Stored(object) if !self.is_stored_form => {
                let converted = self.convert(vec![object]).await?;
                let one = converted.into_iter().next();
                one.ok_or_else(|| Failure::internal("the conversion of an object gave nothing"))?
            }
            payload => payload,
        };
        let encoder = self.encoder();
        let json = self.whole(&payload)?;
        if encoder.is_identity() {
            return Ok(json);
        }
        let mut out = Vec::with_capacity(json.len() * 2);
        encoder.document(&json, &mut out);
        Ok(out.into())
    }

    /// One object as JSON that stands for itself: with kind and apiVersion, or as a table of its own.
    fn whole(&self, payload: &Payload) -> Result<Bytes, Failure> {
        match (self.form, payload) {
            (Form::Object, Payload::Stored(object)) => Ok(object.json_bytes()),
            (Form::Object, Payload::Tree(tree)) => Ok(text(tree).into()),
            (Form::PartialMetadata, _) => {
                let mut out = Vec::new();
                metadata::write(payload, &mut out)?;
                Ok(out.into())
            }
            (Form::Table, _) => self.table_of_one(payload, true),
        }
    }

    /// One object as JSON among the items of a list: of built-in kinds without kind and apiVersion, which the list says.
    fn item<'a>(&self, payload: &'a Payload, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], Failure> {
        scratch.clear();
        match (self.form, payload) {
            (Form::Object, Payload::Stored(object)) if self.resource().is_custom() => return Ok(object.json()),
            (Form::Object, Payload::Stored(object)) => match at_rest::list_item(&self.prefix, object.json()) {
                Some(rest) => {
                    scratch.push(b'{');
                    scratch.extend_from_slice(rest);
                }
                None => write_item(conversion::parse(object)?, scratch),
            },
            (Form::Object, Payload::Tree(tree)) if self.resource().is_custom() => write(tree, scratch),
            (Form::Object, Payload::Tree(tree)) => write_item(tree.clone(), scratch),
            (Form::PartialMetadata, _) => metadata::write(payload, scratch)?,
            (Form::Table, _) => self.write_row(payload, scratch)?,
        }
        Ok(scratch)
    }
}

fn write_item(mut tree: Value, out: &mut Vec<u8>) {
    value::remove_at(&mut tree, &["kind"]);
    value::remove_at(&mut tree, &["apiVersion"]);
    write(&tree, out);
}

/// Writes a value as JSON.
fn write(value: &impl Serialize, out: &mut Vec<u8>) {
    // Trees and texts have nothing in them that does not serialise, and a vector takes everything.
    let _ = serde_json::to_writer(out, value);
}

fn text(value: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    write(value, &mut out);
    out
}

#[cfg(test)]
mod tests;
