//! The representation of objects in answers: version, form and serialisation.
//!
//! One [`Representation`] is used for an object, the items of a list and the events of a watch alike. It works on the
//! stored bytes, and parses an object only if the requested form differs from the stored one. Each form has a file
//! (`metadata`, `table`; the object itself needs none), serialisations are in `encoding`.
//!
//! Independent of requests and operations.

pub(crate) mod encoding;
mod event;
mod list;
mod metadata;
mod table;

use crate::http::representation::encoding::{Encoder, Protobuf, encoder};
use crate::shared::conversion;
use crate::shared::request::negotiate::{Encoding, Form, Layout, MEDIA_TYPES, MetaVersion, Negotiated};
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use std::sync::Arc;
use steersman_kinds::at_rest;
use steersman_kinds::catalog::{Resource, Served};
use steersman_kinds::projection::Projection;
use steersman_kinds::protobuf;
use steersman_machinery::{GroupVersionKind, Object, Value, value};

pub(crate) use self::event::{EventType, FrameKey, error_frame};
pub(crate) use self::list::{ListHead, Reload, list};
pub(crate) use self::table::Columns;

/// The version, form and serialisation in which objects are sent.
#[derive(Clone, Debug)]
pub(crate) struct Representation {
    served: Served,
    encoding: Encoding,
    form: Form,
    meta_version: MetaVersion,
    layout: Layout,
    /// `Some` where the encoding is protobuf.
    protobuf: Option<Arc<Protobuf>>,
    included: Included,
    now: Timestamp,
    /// Whether the stored bytes are already in the requested form.
    is_stored_form: bool,
    /// The prefix of the stored bytes of a built-in kind; empty for custom resources.
    prefix: Box<[u8]>,
    /// The fields from which the cells of a table are computed.
    cells_read: Option<Arc<Projection>>,
}

/// The part of its object that a row of a table includes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Included {
    Metadata,
    Nothing,
    Object,
}

/// The options of a request that concern the form of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerOptions<'a> {
    pub(crate) negotiated: Negotiated,
    pub(crate) layout: Layout,
    /// The parameter `includeObject`, if it is given.
    pub(crate) include_object: Option<&'a str>,
    pub(crate) now: Timestamp,
}

impl Representation {
    /// The representation of a resource's objects for one request.
    ///
    /// # Errors
    /// 400 for an unknown value of `includeObject`, 406 for protobuf of a kind that has no such form.
    pub(crate) fn new(served: &Served, answer_options: AnswerOptions<'_>) -> Result<Representation, Failure> {
        let Negotiated { encoding, form, meta_version } = answer_options.negotiated;
        let included = match answer_options.include_object.filter(|_| form == Form::Table) {
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
        // The cells of a built-in kind are those of its stored form, whatever version of it is asked for.
        let is_row = form == Form::Table && included != Included::Object && !resource.is_custom();
        let shown = if is_row { resource.storage_version() } else { version };
        Ok(Representation {
            is_stored_form: is_row || strategy.is_stored_form(resource, version),
            prefix: if resource.is_custom() { Box::default() } else { at_rest::prefix(resource).into() },
            cells_read: (form == Form::Table).then(|| Arc::new(strategy.cells_read(shown))),
            served: served.clone(),
            encoding,
            form,
            meta_version,
            layout: answer_options.layout,
            protobuf: match encoding {
                Encoding::Protobuf => Some(Arc::new(messages(served, form, meta_version)?)),
                Encoding::Json | Encoding::Yaml => None,
            },
            included,
            now: answer_options.now,
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

    /// Sets the time for which ages are computed.
    pub(crate) fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Whether an object is sent as it is stored, so that its size makes no difference.
    pub(crate) fn is_verbatim(&self) -> bool {
        self.form == Form::Object && self.is_stored_form && self.encoder().is_identity()
    }

    fn resource(&self) -> &Resource {
        &self.served.resource
    }

    fn encoder(&self) -> &dyn Encoder {
        match &self.protobuf {
            Some(protobuf) => &**protobuf,
            None => encoder(self.encoding, self.layout),
        }
    }

    /// Converts stored objects to the requested version, if it is not the stored one.
    ///
    /// # Errors
    /// When one cannot be read or converted to the requested version.
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
    /// When it cannot be read or converted to the requested version.
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
        encoder.document(&json, &mut out).map_err(|error| Failure::internal(error.to_string()))?;
        Ok(out.into())
    }

    /// One object as a JSON document: with kind and apiVersion, or as a table with one row.
    fn whole(&self, payload: &Payload) -> Result<Bytes, Failure> {
        match (self.form, payload) {
            (Form::Object, Payload::Stored(object)) => Ok(object.json_bytes()),
            (Form::Object, Payload::Tree(tree)) => Ok(text(tree).into()),
            (Form::PartialMetadata, _) => {
                let mut out = Vec::new();
                self.write_metadata(payload, &mut out)?;
                Ok(out.into())
            }
            (Form::Table, _) => self.table_of_one(payload, Columns::Described),
        }
    }

    /// One object as an item of a list, in JSON. Items of built-in kinds have no kind and apiVersion: the list has them.
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
            (Form::PartialMetadata, _) => self.write_metadata(payload, scratch)?,
            (Form::Table, _) => self.write_row(payload, scratch)?,
        }
        Ok(scratch)
    }
}

/// The messages of a kind and its list in a form.
fn messages(served: &Served, form: Form, meta_version: MetaVersion) -> Result<Protobuf, Failure> {
    let kind = match form {
        Form::Object | Form::Table => served.kind(),
        Form::PartialMetadata => GroupVersionKind::new("meta.k8s.io", meta_version.name(), "PartialObjectMetadata"),
    };
    let list_kind = match form {
        Form::Object | Form::Table => served.resource.list_kind.to_string(),
        Form::PartialMetadata => format!("{}List", kind.kind),
    };
    // A kind that is never listed has no list; the message in its place is not used.
    let one = protobuf::Envelope::of(&kind);
    let list = protobuf::Envelope::of(&kind.group_version().kind(list_kind)).or_else(|| one.clone());
    let (Some(one), Some(list)) = (one, list) else { return Err(Failure::not_acceptable(&MEDIA_TYPES)) };
    Ok(Protobuf { one, list })
}

fn write_item(mut tree: Value, out: &mut Vec<u8>) {
    value::remove_at(&mut tree, &["kind"]);
    value::remove_at(&mut tree, &["apiVersion"]);
    write(&tree, out);
}

/// Writes a value as JSON.
fn write(value: &impl Serialize, out: &mut Vec<u8>) {
    // Trees and strings always serialise, and writes to a vector cannot fail.
    let _ = serde_json::to_writer(out, value);
}

fn text(value: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    write(value, &mut out);
    out
}

#[cfg(test)]
mod tests;
