//! `/scale`: the desired and the current number of replicas of an object, as an `autoscaling/v1 Scale`.

use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::shared::compute::text_bytes;
use crate::shared::conversion;
use crate::shared::operation::Operation;
use crate::shared::request::negotiate::{Form, Layout, Negotiated, Shape};
use crate::shared::request::options::{FieldValidation, WriteKind};
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use crate::write::registry::{self, Body, Change, Current, Format, Outcome, Patch};
use bytes::Bytes;
use http::Method;
use serde_json::json;
use steersman_kinds::catalog::Scale;
use steersman_kinds::catalog::scale::{self, read};
use steersman_machinery::field::{Error, Path};
use steersman_machinery::{GroupKind, Object, Value, value};
use steersman_schema::{Definitions, Schema, decode};

/// The body of a write of a Scale.
enum Sent {
    Patch(Patch),
    Scale(Value),
}

pub(crate) async fn handle(cx: &mut Context<'_>, method: &Method, bytes: Bytes) -> Result<Answer, Failure> {
    let negotiated = cx.negotiate(Shape::One)?;
    let Some(scale) = &cx.operation.version().scale else { return Err(Failure::unknown_resource()) };
    match *method {
        Method::GET => {
            let object = cx.current().await?;
            let read = read(scale, &requested(cx, &object).await?);
            Ok(Answer::value(200, &shown(cx, &read, negotiated), negotiated.encoding, Layout::Compact))
        }
        Method::PUT | Method::PATCH => {
            let written = write(cx, scale, method, &bytes).await?;
            Ok(Answer::value(200, &shown(cx, &written, negotiated), negotiated.encoding, Layout::Compact))
        }
        _ => Err(Failure::method_not_allowed()),
    }
}

/// A stored object in the version of the request.
async fn requested(cx: &Context<'_>, object: &Object) -> Result<Value, Failure> {
    cx.operation.load.expect(text_bytes(object.json())).await;
    let objects = vec![conversion::parse(object)?];
    let mut converted = conversion::to_requested(cx.operation.served, objects).await?;
    converted.pop().ok_or_else(|| Failure::internal("a conversion gave no object"))
}

/// The answer for a Scale, in the form that was negotiated.
fn shown(cx: &Context<'_>, scale: &Value, negotiated: Negotiated) -> Value {
    let meta_version = negotiated.meta_version.api_version();
    match negotiated.form {
        Form::PartialMetadata => json!({
            "kind": "PartialObjectMetadata", "apiVersion": meta_version, "metadata": scale["metadata"],
        }),
        Form::Object => scale.clone(),
        Form::Table => scale::table(cx.operation.resource(), scale, meta_version, cx.operation.now),
    }
}

async fn write(cx: &mut Context<'_>, scale: &Scale, method: &Method, bytes: &Bytes) -> Result<Value, Failure> {
    let is_patch = *method == Method::PATCH;
    if is_patch {
        Patch::check_type(&cx.operation, cx.media_type())?;
    }
    match is_patch {
        true => cx.read_patch_options()?,
        false => cx.read_options(WriteKind::Update)?,
    }
    let body = Body { media_type: cx.media_type(), bytes };
    let sent = match is_patch {
        true => Sent::Patch(Patch::parse(body, &cx.operation.budget)?),
        false => Sent::Scale(typed(cx, body)?),
    };
    let set = |operation: &mut Operation<'_>, current: &Current| {
        let mut object = current.requested().clone();
        let live = read(scale, &object);
        let wanted = match &sent {
            // A strategic patch follows the schema of the Scale, not that of its object.
            Sent::Patch(patch) => patch.apply_to(scale_schema()?, live, &operation.budget)?,
            Sent::Scale(sent) if registry::text(sent, "name").is_empty() => {
                return Err(Failure::bad_request("metadata.name of the Scale must be the name of the object"));
            }
            Sent::Scale(sent) => sent.clone(),
        };
        let replicas = check(operation, &wanted)?;
        for key in ["resourceVersion", "uid"] {
            let given = registry::text(&wanted, key);
            if !given.is_empty() {
                value::set_at(&mut object, &["metadata", key], given.into());
            }
        }
        if !scale.spec.set(&mut object, replicas.into()) {
            let path = scale.spec.as_str();
            return Err(Failure::unprocessable(format!("the path {path} of the object cannot hold a number")));
        }
        Ok(object)
    };
    let apply = |operation: &mut Operation<'_>, current: &Current| {
        let Sent::Patch(Patch { format: Format::Apply(applied), .. }) = &sent else { return set(operation, current) };
        registry::check_given_name(operation, applied)?;
        let object = registry::apply_scale(operation, current.requested(), applied)?;
        check_replicas(operation, &read(scale, &object), validate_metadata(operation, applied))?;
        Ok(object)
    };
    let change = match &sent {
        Sent::Patch(Patch { format: Format::Apply(_), .. }) => Change::EditRecorded(&apply),
        Sent::Patch(_) | Sent::Scale(_) => Change::Edit(&set),
    };
    match registry::write(cx.state, &mut cx.operation, &change).await? {
        Outcome::Deleted(stored)
        | Outcome::Updated(Payload::Stored(stored))
        | Outcome::Created(Payload::Stored(stored)) => Ok(read(scale, &requested(cx, &stored).await?)),
        Outcome::Updated(Payload::Tree(tree)) | Outcome::Created(Payload::Tree(tree)) => Ok(read(scale, &tree)),
    }
}

/// Decodes a Scale, in the namespace of the path.
fn typed(cx: &mut Context<'_>, body: Body<'_>) -> Result<Value, Failure> {
    let parsed = registry::parse(&cx.operation, body, "Scale")?;
    let refused =
        |why: &str| Failure::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {why}"));
    let decoded = decode::built_in(scale_schema()?, decode::Body::Tree(parsed.value), &cx.operation.budget);
    let mut decoded = decoded.map_err(|error| match error {
        decode::Error::Budget(error) => Failure::of_budget(&error),
        error => refused(&error.to_string()),
    })?;
    let faults = parsed.faults.errors().into_iter().chain(decoded.faults.iter().map(ToString::to_string));
    match cx.operation.options.field_validation {
        FieldValidation::Strict => {
            let faults: Vec<String> = faults.collect();
            if !faults.is_empty() {
                return Err(refused(&format!("strict decoding error: {}", faults.join(", "))));
            }
        }
        FieldValidation::Warn => faults.collect::<Vec<_>>().into_iter().for_each(|fault| cx.operation.warn(fault)),
        FieldValidation::Ignore => {}
    }
    registry::set_namespace(&cx.operation, &mut decoded.value)?;
    Ok(decoded.value)
}

fn scale_schema() -> Result<&'static Schema, Failure> {
    let schema = Definitions::builtin().schema("io.k8s.api.autoscaling.v1.Scale");
    schema.ok_or_else(|| Failure::internal("there is no schema of a Scale"))
}

/// The desired number of replicas of a valid Scale.
fn check(operation: &Operation<'_>, scale: &Value) -> Result<i64, Failure> {
    registry::check_given_name(operation, scale)?;
    check_replicas(operation, scale, validate_metadata(operation, scale))
}

/// The errors of the metadata that was sent, although none of it is kept. Upstream does not look at that of a custom resource. An applied
/// configuration may have none, and its name is that of the path.
fn validate_metadata(operation: &Operation<'_>, scale: &Value) -> Vec<Error> {
    match operation.resource().is_custom() || scale.get("metadata").is_none_or(Value::is_null) {
        true => Vec::new(),
        false => registry::validate_scale_metadata(scale, operation.strategy()),
    }
}

/// The desired number of replicas of a Scale, whose other errors are known.
fn check_replicas(operation: &Operation<'_>, scale: &Value, mut errors: Vec<Error>) -> Result<i64, Failure> {
    if let Some(spec) = scale.get("spec").filter(|spec| !spec.is_object() && !spec.is_null()) {
        let found = value::type_name(spec);
        let why = format!("Scale in version \"v1\" cannot be handled as a Scale: spec must be an object, not {found}");
        return Err(Failure::bad_request(why));
    }
    let replicas = match value::at(scale, &["spec", "replicas"]) {
        None | Some(Value::Null) => 0,
        Some(number) => number.as_i64().filter(|number| i32::try_from(*number).is_ok()).ok_or_else(|| {
            Failure::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: spec.replicas: {number} is no 32-bit whole number"))
        })?,
    };
    if replicas < 0 {
        errors.push(Error::invalid(&Path::new("spec.replicas"), replicas, "must be greater than or equal to 0"));
    }
    if !errors.is_empty() {
        return Err(Failure::invalid(&GroupKind::new("autoscaling", "Scale"), operation.name(), &errors));
    }
    Ok(replicas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Server};
    use http::Request;
    use http_body_util::Full;
    use std::sync::Arc;
    use steersman_kinds::user::User;
    use steersman_storage::{Memory, Store};
    use tower::ServiceExt as _;

    async fn code(server: &Server, method: Method, path: &str, body: &Value) -> u16 {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(Full::<Bytes>::new(body.to_string().into())).unwrap();
        server.service_as(User::master("admin")).oneshot(request).await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn a_scale_is_decoded_as_a_scale_of_its_namespace() {
        let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await.unwrap();
        let server = Server::start(Options::new(store)).await.unwrap();
        let controllers = "/api/v1/namespaces/default/replicationcontrollers";
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": spec});
        let controller = json!({"metadata": {"name": "r"}, "spec": {"template": template}});
        assert_eq!(code(&server, Method::POST, controllers, &controller).await, 201);
        let scale = |metadata: Value, spec: Value| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": spec});
        let path = format!("{controllers}/r/scale");
        let strict = format!("{path}?fieldValidation=Strict");
        let put = async |path: &str, scale: Value| code(&server, Method::PUT, path, &scale).await;
        let replicas = json!({"replicas": 2});
        assert_eq!(put(&strict, scale(json!({"name": "r"}), replicas.clone())).await, 200);
        assert_eq!(put(&path, scale(json!({"name": "r", "namespace": "other"}), replicas.clone())).await, 400);
        assert_eq!(put(&path, scale(json!({"name": "r", "selfLink": []}), replicas.clone())).await, 400);
        assert_eq!(put(&path, scale(json!({"name": "r", "labels": {"a": "b c"}}), replicas.clone())).await, 422);
        assert_eq!(put(&path, scale(json!({"name": "r", "finalizers": ["hold"]}), replicas.clone())).await, 422);
        assert_eq!(put(&path, scale(json!({"name": "r", "generation": -1}), replicas.clone())).await, 422);
        assert_eq!(put(&path, scale(json!({"name": "r", "generateName": "a/b"}), replicas.clone())).await, 422);
        assert_eq!(put(&path, scale(json!({"name": "r", "generateName": "a-"}), replicas)).await, 200);
        let unknown = scale(json!({"name": "r"}), json!({"replicas": 2, "selector": "a"}));
        assert_eq!(put(&strict, unknown.clone()).await, 400);
        assert_eq!(put(&path, unknown).await, 200);
        server.stop().await;
    }
}
