//! Builds ConversionReviews and validates the answers. Pure; the texts and the order of the checks are those of
//! apiextensions' `webhook_converter.go`.

use bytes::Bytes;
use steersman_machinery::value::Map;
use steersman_machinery::value::str_at;
use steersman_machinery::{Value, name};

/// A version of ConversionReview that the server supports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    pub(super) fn of(name: &str) -> Option<ReviewVersion> {
        match name {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1Beta1),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "apiextensions.k8s.io/v1",
            ReviewVersion::V1Beta1 => "apiextensions.k8s.io/v1beta1",
        }
    }
}

/// A review of as many of the first objects as fit within the bounds, and at least one. Returns its uid, its JSON, and
/// the number of objects.
pub(super) fn request(
    objects: &[&Value],
    api_version: &str,
    review: Option<ReviewVersion>,
    objects_max: usize,
    bytes_max: usize,
) -> (String, Bytes, usize) {
    let uid = crate::shared::identity::uid::random();
    let review = review.unwrap_or(ReviewVersion::V1).api_version();
    let head = format!(
        r#"{{"kind":"ConversionReview","apiVersion":{},"request":{{"uid":{},"desiredAPIVersion":{},"objects":["#,
        Value::from(review),
        Value::from(uid.as_str()),
        Value::from(api_version)
    );
    let mut body = head.into_bytes();
    let start = body.len();
    let mut taken = 0;
    for object in objects.iter().take(objects_max) {
        let before = body.len();
        if taken > 0 {
            body.push(b',');
        }
        // Serializing a tree cannot fail, and neither can writing to a vector.
        let _ = serde_json::to_writer(&mut body, object);
        if taken > 0 && body.len() - start > bytes_max {
            body.truncate(before);
            break;
        }
        taken += 1;
    }
    body.extend_from_slice(b"]}}");
    (uid, body.into(), taken)
}

/// The converted objects of an answer, with metadata that a conversion must not change restored.
///
/// # Errors
/// Says what is wrong with the answer, as the message goes on behind the kind.
pub(crate) fn answer(
    bytes: &[u8],
    review: ReviewVersion,
    uid: &str,
    sent: &[&Value],
    api_version: &str,
) -> Result<Vec<Value>, String> {
    let failed = |why: String| format!("failed: {why}");
    let mut answer: Value =
        serde_json::from_slice(bytes).map_err(|error| failed(format!("the answer is no JSON: {error}")))?;
    let converted = response(&mut answer, review, uid).map_err(failed)?;
    if converted.len() != sent.len() {
        return Err(format!("returned {} objects, expected {}", converted.len(), sent.len()));
    }
    let pairs = converted.into_iter().zip(sent).enumerate();
    pairs.map(|(index, (converted, sent))| one(index, converted, sent, api_version)).collect()
}

/// The objects of a successful response.
fn response(answer: &mut Value, review: ReviewVersion, uid: &str) -> Result<Vec<Value>, String> {
    // As upstream, the kind and the uid are not checked in the older version.
    let is_strict = review == ReviewVersion::V1;
    let kind = |value: &Value| {
        let said = |key: &str| str_at(value, &[key]).unwrap_or_default().to_owned();
        format!("{}, Kind={}", said("apiVersion"), said("kind"))
    };
    let wanted = format!("{}, Kind=ConversionReview", review.api_version());
    let found = kind(answer);
    if is_strict && found != wanted {
        return Err(format!("expected webhook response of {wanted}, got {found}"));
    }
    let Some(response) = answer.get_mut("response").filter(|response| response.is_object()) else {
        return Err("no response provided".to_owned());
    };
    let found = str_at(response, &["uid"]).unwrap_or_default();
    if is_strict && found != uid {
        return Err(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    match str_at(response, &["result", "status"]).unwrap_or_default() {
        "Success" => {}
        status => {
            let message = str_at(response, &["result", "message"]).unwrap_or_default();
            return Err(match message {
                "" => format!("response.result.status was '{status}', not 'Success'"),
                message => message.to_owned(),
            });
        }
    }
    match response.get_mut("convertedObjects").map(Value::take) {
        Some(Value::Array(objects)) => Ok(objects),
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(_) => Err("response.convertedObjects is no list".to_owned()),
    }
}

/// One object of an answer.
fn one(index: usize, mut converted: Value, sent: &Value, api_version: &str) -> Result<Value, String> {
    let invalid = |why: String| format!("returned invalid converted object at index {index}: {why}");
    if !converted.is_object() {
        return Err(invalid("it is no object".to_owned()));
    }
    let said = |value: &Value, path: &[&str]| str_at(value, path).unwrap_or_default().to_owned();
    let (expected, received) = (api_version.to_owned(), said(&converted, &["apiVersion"]));
    if expected != received {
        return Err(invalid(format!("invalid groupVersion (expected {expected}, received {received})")));
    }
    let (expected, received) = (said(sent, &["kind"]), said(&converted, &["kind"]));
    if expected != received {
        return Err(invalid(format!("invalid kind (expected {expected}, received {received})")));
    }
    let same = [("name", "name"), ("namespace", "namespace"), ("uid", "UID")];
    for (key, word) in same {
        let (before, after) = (said(sent, &["metadata", key]), said(&converted, &["metadata", key]));
        if before != after {
            return Err(invalid(format!("must have the same {word}: {before} != {after}")));
        }
    }
    let metadata = restored(&mut converted, sent);
    let metadata = metadata.map_err(|why| format!("returned invalid metadata in object at index {index}: {why}"))?;
    converted["metadata"] = Value::Object(metadata);
    Ok(converted)
}

/// The metadata of the sent object, with the labels and annotations of the converted one.
fn restored(converted: &mut Value, sent: &Value) -> Result<Map, String> {
    let mut changed = match converted.get_mut("metadata").map(Value::take) {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(changed)) => changed,
        Some(_) => return Err("invalid metadata in converted object: it is no object".to_owned()),
    };
    let mut metadata = sent.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let before = metadata.remove(field);
        let after = match changed.remove(field) {
            None | Some(Value::Null) => continue,
            Some(Value::Object(after)) => after,
            Some(_) => return Err(format!("invalid metadata.{field} in converted object: it is no object")),
        };
        for (key, value) in &after {
            let Value::String(text) = value else {
                return Err(format!("metadata.{field}[{key}] must be a string in converted object"));
            };
            let is_unchanged = before.as_ref().and_then(|before| before.get(key)) == Some(value);
            if let Some(fault) = fault(field, key, text).filter(|_| !is_unchanged) {
                return Err(format!("metadata.{field}: Invalid value: {fault}"));
            }
        }
        metadata.insert(field.to_owned(), Value::Object(after));
    }
    Ok(metadata)
}

/// The error of a label or an annotation that a conversion has set.
fn fault(field: &str, key: &str, text: &str) -> Option<String> {
    let of_key = name::qualified(&key.to_lowercase()).into_iter().next().map(|fault| format!("{key:?}: {fault}"));
    let of_value = || match field {
        "labels" => name::label_value(text).into_iter().next().map(|fault| format!("{text:?}: {fault}")),
        _ => None,
    };
    of_key.or_else(of_value)
}

#[cfg(test)]
mod tests;
