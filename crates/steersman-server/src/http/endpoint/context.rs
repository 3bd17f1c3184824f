//! A request on a resource: its operation, and the parts of the HTTP request that endpoints read.

use crate::http::answer::layout_for;
use crate::http::representation::{AnswerOptions, Representation};
use crate::shared::compute::AnswerCompute;
use crate::shared::operation::{Given, Operation, Options};
use crate::shared::request::negotiate::{Negotiated, Shape, negotiate_for};
use crate::shared::request::options::{Write, WriteKind};
use crate::shared::request::query::Query;
use crate::shared::request::request_info::Target;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry;
use crate::write::registry::Body;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use std::sync::Arc;
use steersman_kinds::protobuf;
use steersman_kinds::user::User;
use steersman_machinery::{Object, Value};
use tokio_util::sync::CancellationToken;

/// A request on a resource.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) state: &'a Arc<State>,
    pub(crate) operation: Operation<'a>,
    /// The user to whom memory and computation are charged.
    pub(crate) payer: &'a Arc<User>,
    pub(crate) target: &'a Target,
    pub(crate) query: &'a Query,
    /// The path with escapes resolved.
    pub(crate) path: &'a str,
    /// The method, URI, headers and connection of the request.
    pub(crate) parts: &'a Parts,
    /// For a request that can end early: cancelled when its client has disconnected.
    pub(crate) abandoned: Option<&'a CancellationToken>,
}

impl<'a> Context<'a> {
    /// The object of the path.
    pub(crate) async fn current(&self) -> Result<Arc<Object>, Failure> {
        let (operation, name) = (&self.operation, self.operation.name());
        let found = self.state.get_since(operation.arrived, operation.storage(), &operation.key(name)).await?;
        found.ok_or_else(|| Failure::not_found(&operation.group_resource(), name))
    }

    /// The object of the path in the cache, for a client that accepts an older state.
    pub(crate) fn cached(&self) -> Result<Arc<Object>, Failure> {
        let (operation, name) = (&self.operation, self.operation.name());
        let found = self.state.store.get_readable(operation.storage(), &operation.key(name));
        let found = found.map_err(|error| Failure::of_read(&error))?;
        found.ok_or_else(|| Failure::not_found(&operation.group_resource(), name))
    }

    /// Carries out what is left of an answer when its first bytes are sent.
    pub(crate) fn rest(&self) -> AnswerCompute {
        AnswerCompute::new(&self.state.compute, self.payer)
    }

    /// Negotiates the form of an answer with objects of the request's kind.
    ///
    /// # Errors
    /// 406 if the client accepts no available form.
    pub(crate) fn negotiate(&self, shape: Shape) -> Result<Negotiated, Failure> {
        let served = self.operation.served;
        negotiate_for(&self.parts.headers, shape, || !served.resource.is_custom() && protobuf::has_form(&served.kind()))
    }

    /// The representation of the answer's objects.
    ///
    /// # Errors
    /// 400 for an unknown value of `includeObject`.
    pub(crate) fn representation(&self, negotiated: Negotiated) -> Result<Representation, Failure> {
        let answer_options = AnswerOptions {
            negotiated,
            layout: layout_for(self.query, &self.parts.headers),
            include_object: self.query.non_empty("includeObject"),
            now: self.operation.now,
        };
        Representation::new(self.operation.served, answer_options)
    }

    /// The media type of the body, without parameters; JSON if the request has none.
    pub(crate) fn media_type(&self) -> &'a str {
        let header = self.parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        match header.split(';').next().map_or("", str::trim) {
            "" => "application/json",
            media_type => media_type,
        }
    }

    /// Reads the options of a patch, which may be an apply, into the operation.
    ///
    /// # Errors
    /// 422 with all validation errors.
    pub(crate) fn read_patch_options(&mut self) -> Result<(), Failure> {
        let is_apply = registry::Patch::is_apply(self.media_type());
        self.read_options(if is_apply { WriteKind::Apply } else { WriteKind::Patch })
    }

    /// Reads the options of a write into the operation.
    ///
    /// # Errors
    /// 422 with all validation errors.
    pub(crate) fn read_options(&mut self, kind: WriteKind) -> Result<(), Failure> {
        let options = Write::parse(self.query, kind)?;
        self.operation.given =
            Given { field_validation: options.is_field_validation_given, manager: options.field_manager.is_some() };
        self.operation.manager = self.manager(options.field_manager).into();
        self.operation.options = Options {
            is_dry_run: options.is_dry_run,
            field_validation: options.field_validation,
            is_forced: options.is_forced == Some(true),
        };
        Ok(())
    }

    /// Reads the options and the object of a creation or an update.
    ///
    /// # Errors
    /// When either cannot be read, or the object does not match the path.
    pub(crate) async fn read_object(&mut self, kind: WriteKind, bytes: &Bytes) -> Result<Value, Failure> {
        self.read_options(kind)?;
        let body = Body { media_type: self.media_type(), bytes };
        let mut object = self.operation.computed(|operation| registry::decode(operation, body)).await?;
        registry::set_namespace(&self.operation, &mut object)?;
        Ok(object)
    }

    /// The field manager: the parameter `fieldManager`, else the part of the `User-Agent` before the slash.
    fn manager(&self, field_manager: Option<String>) -> String {
        const BYTES_MAX: usize = 128;
        if let Some(manager) = field_manager {
            return manager;
        }
        let agent = self.parts.headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("");
        let name = agent.split('/').next().unwrap_or("");
        let name: String = name.chars().filter(|char| !char.is_control()).take(BYTES_MAX).collect();
        if name.is_empty() { "unknown".to_owned() } else { name }
    }
}
