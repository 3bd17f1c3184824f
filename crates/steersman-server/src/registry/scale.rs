//! `/scale`: the wanted and the present number of replicas of an object, as an `autoscaling/v1 Scale`.

use crate::answer::{Answer, Payload};
use crate::catalog::{Scale, ScaleSelector};
use crate::negotiate::{Shape, negotiate};
use crate::options::Write;
use crate::registry::context::Context;
use crate::registry::create::Recorded;
use crate::registry::current::Current;
use crate::registry::{body, metadata, patch, update};
use crate::status::Failure;
use bytes::Bytes;
use http::Method;
use serde_json::json;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::{GroupKind, Value, value};

const ATTEMPTS_MAX: usize = 100;

pub(crate) async fn handle(cx: &mut Context<'_>, method: &Method, bytes: Bytes) -> Result<Answer, Failure> {
    let negotiated = negotiate(cx.headers, Shape::One)?;
    let Some(scale) = &cx.version().scale else { return Err(Failure::unknown_resource()) };
    match *method {
        Method::GET => {
            let object = cx.current().await?;
            let read = read(scale, &cx.requested(&object)?);
            Ok(Answer::value(200, &shown(cx, &read, negotiated.form), negotiated.encoding, false))
        }
        Method::PUT | Method::PATCH => {
            let written = write(cx, scale, method, &bytes).await?;
            Ok(Answer::value(200, &shown(cx, &written, negotiated.form), negotiated.encoding, false))
        }
        _ => Err(Failure::method_not_allowed()),
    }
}

/// A Scale has no table of its own; who asks for one gets the object.
fn shown(_: &Context<'_>, scale: &Value, form: crate::negotiate::Form) -> Value {
    match form {
        crate::negotiate::Form::PartialMetadata => crate::render::partial_metadata(scale),
        crate::negotiate::Form::Object | crate::negotiate::Form::Table => scale.clone(),
    }
}

async fn write(cx: &mut Context<'_>, scale: &Scale, method: &Method, bytes: &Bytes) -> Result<Value, Failure> {
    let is_patch = *method == Method::PATCH;
    let options = Write::parse(cx.query, if is_patch { "PatchOptions" } else { "UpdateOptions" }, false)?;
    let patch = if is_patch {
        patch::check_type(cx)?;
        Some(patch::parse(cx, bytes)?)
    } else {
        None
    };
    if matches!(patch, Some(patch::Patch::Apply(_) | patch::Patch::Strategic(_))) {
        return Err(Failure::unsupported_media_type(&["application/json-patch+json", "application/merge-patch+json"]));
    }
    let sent = if is_patch { None } else { Some(body::parse(cx, bytes, "Scale")?.value) };
    for _ in 0..ATTEMPTS_MAX {
        let current = Current::new(cx, cx.current().await?)?;
        let mut object = current.requested.clone();
        let live = read(scale, &object);
        let wanted = match (&patch, &sent) {
            (Some(patch), _) => patch::patch_tree(cx, patch, live)?,
            (None, Some(sent)) => sent.clone(),
            (None, None) => live,
        };
        let replicas = check(cx, &wanted)?;
        for key in ["resourceVersion", "uid"] {
            let given = metadata::text(&wanted, key);
            if !given.is_empty() {
                value::set_at(&mut object, &["metadata", key], given.into());
            }
        }
        if !scale.spec.set(&mut object, replicas.into()) {
            return Err(Failure::internal(format!(
                "the path {} of the object cannot hold a number",
                scale.spec.as_str()
            )));
        }
        if let Some(payload) = update::replace(cx, &options, &current, object, Recorded::No).await? {
            let tree = match payload {
                Payload::Stored(stored) => cx.requested(&stored)?,
                Payload::Tree(tree) => tree,
            };
            return Ok(read(scale, &tree));
        }
    }
    Err(Failure::modified(&cx.group_resource(), cx.name()))
}

/// The wanted number of a Scale.
fn check(cx: &Context<'_>, scale: &Value) -> Result<i64, Failure> {
    let given = metadata::text(scale, "name");
    if !given.is_empty() && given != cx.name() {
        let message = format!("the name of the object ({given}) does not match the name on the URL ({})", cx.name());
        return Err(Failure::bad_request(message));
    }
    let replicas = match value::at(scale, &["spec", "replicas"]) {
        None | Some(Value::Null) => 0,
        Some(number) => number.as_i64().filter(|number| i32::try_from(*number).is_ok()).ok_or_else(|| {
            Failure::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: spec.replicas: {number} is no 32-bit whole number"))
        })?,
    };
    if replicas < 0 {
        let error = Error::invalid(&Path::new("spec.replicas"), replicas, "must be greater than or equal to 0");
        return Err(Failure::invalid(&GroupKind::new("autoscaling", "Scale"), cx.name(), &[error]));
    }
    Ok(replicas)
}

/// The Scale of an object.
fn read(scale: &Scale, object: &Value) -> Value {
    let number = |path: &steersman_schema::JsonPath| path.get(object).and_then(Value::as_i64).unwrap_or(0);
    let mut made = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {},
        "spec": {"replicas": number(&scale.spec)},
        "status": {"replicas": number(&scale.status)},
    });
    for key in ["creationTimestamp", "name", "namespace", "resourceVersion", "uid"] {
        if let Some(kept) = value::at(object, &["metadata", key]) {
            made["metadata"][key] = kept.clone();
        }
    }
    let selector = match &scale.selector {
        None => None,
        Some(ScaleSelector::Text(path)) => path.get(object).and_then(Value::as_str).map(str::to_owned),
        Some(ScaleSelector::Object(path)) => path.get(object).map(selector_text),
    };
    if let Some(selector) = selector.filter(|text| !text.is_empty()) {
        made["status"]["selector"] = selector.into();
    }
    if made["spec"]["replicas"] == json!(0) {
        made["spec"] = json!({});
    }
    made
}

/// A `LabelSelector` in its text form.
fn selector_text(selector: &Value) -> String {
    let mut terms = Vec::new();
    for (key, label) in value::at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten() {
        terms.push(format!("{key}={}", label.as_str().unwrap_or("")));
    }
    for expression in value::at(selector, &["matchExpressions"]).and_then(Value::as_array).into_iter().flatten() {
        let key = value::str_at(expression, &["key"]).unwrap_or("");
        let values: Vec<&str> = value::at(expression, &["values"])
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let values = values.join(",");
        terms.push(match value::str_at(expression, &["operator"]) {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("Exists") => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    terms.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use steersman_schema::JsonPath;

    #[test]
    fn a_scale_says_what_the_paths_say() {
        let scale = Scale {
            spec: JsonPath::parse(".spec.count").unwrap(),
            status: JsonPath::parse(".status.count").unwrap(),
            selector: Some(ScaleSelector::Object(JsonPath::parse(".spec.selector").unwrap())),
        };
        let object = json!({
            "metadata": {"name": "a", "uid": "u", "labels": {"x": "y"}},
            "spec": {"count": 3, "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}]}},
            "status": {"count": 2}
        });
        assert_eq!(
            read(&scale, &object),
            json!({
                "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "a", "uid": "u"},
                "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b,c in (d)"}
            })
        );
    }
}
