//! Subresources that take an object of another kind and act on the object that they belong to: a Binding binds a pod,
//! an Eviction deletes one, a TokenRequest requests a token of an account.
//!
//! The catalog's row of such a subresource has `Handling::Connect`. To add one, write its row at its kind in `builtin/`,
//! a file here with the function that carries it out, and a row of [`CONNECTIONS`].

mod binding;
mod eviction;
mod token;

use crate::http::answer::{Answer, layout_for};
use crate::http::endpoint::context::Context;
use crate::shared::operation::{Operation, ResourceAttributes};
use crate::shared::request::negotiate::{Shape, negotiate};
use crate::shared::request::options::{FieldValidation, WriteKind};
use crate::shared::status::Failure;
use crate::write::admission;
use crate::write::registry::{self, Body};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::Method;
use serde_json::json;
use steersman_kinds::catalog::{Subresource, Verb};
use steersman_machinery::status::Status;
use steersman_machinery::value::{set_at, str_at};
use steersman_machinery::{GroupVersionKind, Value};
use steersman_schema::decode;
use steersman_schema::{Definitions, Schema};

/// Carries out the action of a body. It is decoded and admitted, and if it has a name, that is the name in the path.
type Connects = for<'a> fn(&'a mut Context<'_>, Value) -> BoxFuture<'a, Result<Reply, Failure>>;

/// The answer to the client.
enum Reply {
    /// An object with a status, usually the one that the client sent.
    Object(Value),
    /// A Status of success.
    Success,
}

/// The handling of a connect subresource.
struct Connection {
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    /// The schema crate's name of the kind in the body.
    definition: &'static str,
    /// Sets the defaults of the body before it is admitted.
    default: fn(&mut Value),
    /// Whether the body must have the name of the object in the path.
    is_named: bool,
    connects: Connects,
}

static CONNECTIONS: [Connection; 3] = [
    Connection {
        group: "",
        resource: "pods",
        subresource: "binding",
        definition: "io.k8s.api.core.v1.Binding",
        default: |_| {},
        is_named: true,
        connects: binding::bind,
    },
    Connection {
        group: "",
        resource: "pods",
        subresource: "eviction",
        definition: "io.k8s.api.policy.v1.Eviction",
        default: |_| {},
        is_named: true,
        connects: eviction::evict,
    },
    Connection {
        group: "",
        resource: "serviceaccounts",
        subresource: "token",
        definition: "io.k8s.api.authentication.v1.TokenRequest",
        default: token::default,
        is_named: false,
        connects: token::issue,
    },
];

/// Decodes the body as an object of the subresource's kind. Older versions of its group are accepted.
fn read(cx: &mut Context<'_>, bytes: &Bytes, kind: &GroupVersionKind, schema: &Schema) -> Result<Value, Failure> {
    let body = Body { media_type: cx.media_type(), bytes };
    let parsed = registry::parse(&cx.operation, body, &kind.kind)?;
    let given = |key: &str| str_at(&parsed.value, &[key]).unwrap_or_default();
    let refused = |why: &str| {
        let (name, version) = (&kind.kind, &kind.version);
        Failure::bad_request(format!("{name} in version {version:?} cannot be handled as a {name}: {why}"))
    };
    if !given("kind").is_empty() && given("kind") != kind.kind {
        return Err(refused(&format!("the body is a {}", given("kind"))));
    }
    let group = given("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    if !given("apiVersion").is_empty() && group != kind.group {
        return Err(refused(&format!("the API version in the data is {}", given("apiVersion"))));
    }
    let decoded = decode::from_value(schema, &parsed.value, &cx.operation.budget).map_err(|error| match error {
        decode::Error::Budget(error) => Failure::of_budget(&error),
        error => refused(&error.to_string()),
    })?;
    let unknown = decoded.faults.iter().map(ToString::to_string);
    let faults: Vec<String> = parsed.faults.errors().into_iter().chain(unknown).collect();
    match cx.operation.options.field_validation {
        FieldValidation::Strict if !faults.is_empty() => {
            return Err(refused(&format!("strict decoding error: {}", faults.join(", "))));
        }
        FieldValidation::Warn => faults.into_iter().for_each(|fault| cx.operation.warn(fault)),
        FieldValidation::Ignore | FieldValidation::Strict => {}
    }
    let mut object = decoded.value;
    if object.get("metadata").is_none_or(Value::is_null) {
        set_at(&mut object, &["metadata"], json!({}));
    }
    Ok(object)
}

/// Carries out a request on a resource whose objects name the object that they act on: `bindings`, the old path of
/// `pods/binding`.
///
/// # Errors
/// With the answer for the client.
pub(super) async fn by_name(cx: &mut Context<'_>, method: &Method, body: Bytes) -> Result<Answer, Failure> {
    if cx.operation.attributes.subresource.is_some() {
        return Err(Failure::unknown_resource());
    }
    if *method != Method::POST || cx.target.has_name_in_path {
        return Err(Failure::method_not_allowed());
    }
    let catalog = cx.state.catalog();
    let pods = catalog.find("", "v1", "pods").ok_or_else(Failure::unknown_resource)?;
    let bindings = pods.version().subresources.iter().find(|one| &*one.name == "binding");
    let bindings = bindings.ok_or_else(Failure::unknown_resource)?;
    let sent = registry::parse(&cx.operation, Body { media_type: cx.media_type(), bytes: &body }, "Binding")?.value;
    let name = registry::text(&sent, "name");
    if name.is_empty() {
        return Err(Failure::bad_request("name is required"));
    }
    let attributes = ResourceAttributes {
        resource: "pods",
        subresource: Some("binding"),
        name: Some(name),
        ..cx.operation.attributes
    };
    let operation = Operation::new(pods, attributes, cx.operation.user, cx.operation.now);
    let Operation { deadline, load, budget, .. } = &cx.operation;
    let operation = Operation { deadline: *deadline, load: load.clone(), budget: budget.renewed(), ..operation };
    let mut pod = Context { operation, ..*cx };
    let answer = handle(&mut pod, bindings, method, body).await;
    let warnings = std::mem::take(&mut pod.operation.warnings);
    warnings.into_iter().for_each(|warning| cx.operation.warn(warning));
    answer
}

/// Carries out a request on a connect subresource.
///
/// # Errors
/// With the answer for the client.
pub(super) async fn handle(
    cx: &mut Context<'_>,
    subresource: &Subresource,
    method: &Method,
    body: Bytes,
) -> Result<Answer, Failure> {
    let attributes = cx.operation.attributes;
    let connection = CONNECTIONS
        .iter()
        .find(|row| attributes.is_about(row.group, row.resource) && *row.subresource == *subresource.name)
        .ok_or_else(Failure::unknown_resource)?;
    if *method != Method::POST || !subresource.verbs.contains(&Verb::Create) {
        return Err(Failure::method_not_allowed());
    }
    let negotiated = negotiate(&cx.parts.headers, Shape::Review)?;
    cx.read_options(WriteKind::Create)?;
    let schema = Definitions::builtin().schema(connection.definition).ok_or_else(Failure::unknown_resource)?;
    let mut object = read(cx, &body, &subresource.kind, schema)?;
    registry::set_namespace(&cx.operation, &mut object)?;
    if connection.is_named && registry::text(&object, "name") != cx.operation.name() {
        let kind = &subresource.kind.kind;
        return Err(Failure::bad_request(format!("name in URL does not match name in {kind} object")));
    }
    (connection.default)(&mut object);
    admission::admit(cx.state, &mut cx.operation, &mut object).await?;
    match (connection.connects)(cx, object).await? {
        Reply::Object(object) => {
            let layout = layout_for(cx.query, &cx.parts.headers);
            Ok(Answer::value(201, &object, negotiated.encoding, layout))
        }
        Reply::Success => {
            let mut status = Status::success();
            status.code = Some(201);
            Ok(Answer::status(201, &status, negotiated.encoding))
        }
    }
}
