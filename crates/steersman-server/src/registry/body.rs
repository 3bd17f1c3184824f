//! The body of a write as an object of its kind.

use crate::codec::{self, Parsed};
use crate::negotiate::MEDIA_TYPES;
use crate::options::FieldValidation;
use crate::registry::context::Context;
use crate::status::Failure;
use crate::strategy::DecodeError;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use steersman_machinery::field::{self, Path};
use steersman_machinery::{GroupKind, GroupVersion, Value, value};

/// A body in the form of the requested version, with what was dropped from it.
#[derive(Debug)]
pub(crate) struct Requested {
    pub(crate) value: Value,
    /// What strict validation has against it, in the words for the client: unknown and repeated fields.
    pub(crate) faults: Vec<String>,
}

/// The media type of a request's body, without parameters; JSON if the request does not say.
pub(crate) fn media_type<'a>(cx: &'a Context<'_>) -> &'a str {
    let header = cx.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    match header.split(';').next().map_or("", str::trim) {
        "" => "application/json",
        media_type => media_type,
    }
}

/// The body as a tree, whatever it is an object of; `kind` is for the message.
pub(crate) fn parse(cx: &Context<'_>, body: &Bytes, kind: &str) -> Result<Parsed, Failure> {
    let parsed = match media_type(cx) {
        "application/json" => codec::decode_json(body),
        "application/yaml" => codec::decode_yaml(body).map(|value| Parsed { value, duplicates: Vec::new() }),
        // Custom resources have no protobuf form; options of a request have one whatever they are sent to.
        "application/vnd.kubernetes.protobuf" if !cx.resource().is_custom() || kind == "DeleteOptions" => {
            protobuf(body)
        }
        _ => return Err(Failure::unsupported_media_type(&MEDIA_TYPES)),
    };
    let unrecognized = |why: &str| {
        Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {why}"
        ))
    };
    let parsed = parsed.map_err(|error| unrecognized(&error.to_string()))?;
    match &parsed.value {
        Value::Object(_) => Ok(parsed),
        other => Err(unrecognized(&format!("the body is of type {}, want an object", value::type_name(other)))),
    }
}

fn protobuf(body: &Bytes) -> Result<Parsed, codec::Error> {
    let decoded = crate::builtin::protobuf::decode(body);
    decoded
        .map(|value| Parsed { value, duplicates: Vec::new() })
        .map_err(|error| codec::Error::Protobuf(error.to_string()))
}

/// The body of a creation or an update: read, checked against the kind, filled in.
pub(crate) fn decode(cx: &mut Context<'_>, body: &Bytes, validation: FieldValidation) -> Result<Value, Failure> {
    let mut parsed = parse(cx, body, &cx.resource().kind)?;
    identify(cx, &mut parsed.value)?;
    let mut requested = typed(cx, parsed.value)?;
    if requested.faults.len() > 1 {
        codec::order_by_position(body, &mut requested.faults);
    }
    let faults: Vec<String> = requested
        .faults
        .iter()
        .map(|path| format!("unknown field {path:?}"))
        .chain(parsed.duplicates.iter().map(|path| format!("duplicate field {path:?}")))
        .collect();
    match validation {
        FieldValidation::Strict if !faults.is_empty() => {
            return Err(Failure::bad_request(cannot_be_handled(
                cx,
                &format!("strict decoding error: {}", faults.join(", ")),
            )));
        }
        FieldValidation::Warn => faults.into_iter().for_each(|fault| cx.warn(fault)),
        FieldValidation::Ignore | FieldValidation::Strict => {}
    }
    cx.strategy().default(cx.version(), &mut requested.value);
    Ok(requested.value)
}

/// What a patch has made of an object: checked against the kind, filled in. Strict validation has its own words here.
pub(crate) fn decode_patched(
    cx: &mut Context<'_>,
    patched: Value,
    patch: &[u8],
    validation: FieldValidation,
) -> Result<Value, Failure> {
    let mut patched = patched;
    identify(cx, &mut patched)?;
    let mut requested = typed(cx, patched)?;
    let faults: Vec<String> = requested.faults.iter().map(|path| format!("unknown field {path:?}")).collect();
    match validation {
        FieldValidation::Strict if !faults.is_empty() => {
            let detail = format!("strict decoding error: {}", faults.join(", "));
            let patch = String::from_utf8_lossy(patch).into_owned();
            let error = field::Error::invalid(&Path::new("patch"), patch, detail);
            return Err(Failure::invalid(&GroupKind::default(), "", &[error]));
        }
        FieldValidation::Warn => faults.into_iter().for_each(|fault| cx.warn(fault)),
        FieldValidation::Ignore | FieldValidation::Strict => {}
    }
    cx.strategy().default(cx.version(), &mut requested.value);
    Ok(requested.value)
}

/// Checks `kind` and `apiVersion` against the path; where they are left out the path says them.
fn identify(cx: &Context<'_>, value: &mut Value) -> Result<(), Failure> {
    let wanted = cx.served.kind();
    let text = |key: &str| match value.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => {
            Err(Failure::bad_request(format!("{key} is of type {}, want a string", value::type_name(other))))
        }
    };
    let (kind, api_version) = (text("kind")?, text("apiVersion")?);
    let given = if api_version.is_empty() {
        wanted.group_version()
    } else {
        let fail =
            || Failure::bad_request(format!("apiVersion {api_version:?} has more than one slash: want GROUP/VERSION"));
        GroupVersion::parse(&api_version).ok_or_else(fail)?
    };
    if !kind.is_empty() && kind != wanted.kind {
        let version = if api_version.is_empty() { wanted.api_version() } else { given.to_string() };
        return Err(Failure::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {}: the path is that of {}",
            wanted.kind,
            cx.resource().plural
        )));
    }
    if given != wanted.group_version() {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({given}) does not match the expected API version ({})",
            wanted.group_version()
        )));
    }
    let identity = [("apiVersion", wanted.api_version()), ("kind", wanted.kind)];
    for (key, text) in identity {
        value::set_at(value, &[key], text.into());
    }
    if value.get("metadata").is_none_or(Value::is_null) {
        value::set_at(value, &["metadata"], Value::Object(value::Map::new()));
    }
    Ok(())
}

fn typed(cx: &Context<'_>, value: Value) -> Result<Requested, Failure> {
    let name = value::str_at(&value, &["metadata", "name"]).unwrap_or("").to_owned();
    match cx.strategy().decode(cx.version(), value) {
        Ok(decoded) => Ok(Requested { value: decoded.value, faults: decoded.unknown }),
        Err(DecodeError::Malformed(why)) => Err(Failure::bad_request(cannot_be_handled(cx, &why))),
        Err(DecodeError::Invalid(errors)) => Err(Failure::invalid(&cx.resource().group_kind(), &name, &errors)),
    }
}

fn cannot_be_handled(cx: &Context<'_>, why: &str) -> String {
    let kind = &cx.resource().kind;
    format!("{kind} in version {:?} cannot be handled as a {kind}: {why}", &*cx.version().name)
}
