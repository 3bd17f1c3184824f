//! Decodes the body of a write as an object of its kind.

use crate::shared::operation::Operation;
use crate::shared::request::codec::{self, Faults, Parsed};
use crate::shared::request::negotiate::MEDIA_TYPES;
use crate::shared::request::options::FieldValidation;
use crate::shared::status::Failure;
use bytes::Bytes;
use steersman_kinds::strategy::DecodeError;
use steersman_machinery::field::{self, Path};
use steersman_machinery::{Budget, GroupKind, GroupVersion, Value, value};
use steersman_schema::decode::{self as schema, Decoded};

/// The path of the recorded field owners.
const MANAGED_FIELDS: [&str; 2] = ["metadata", "managedFields"];

/// A body as it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'a> {
    /// The media type without parameters.
    pub(crate) media_type: &'a str,
    pub(crate) bytes: &'a Bytes,
}

/// Parses a body without a schema; `kind` is for the error message.
pub(crate) fn parse(operation: &Operation<'_>, body: Body<'_>, kind: &str) -> Result<Parsed, Failure> {
    let budget = &operation.budget;
    let parsed = match body.media_type {
        "application/json" => codec::decode_json(body.bytes, budget),
        "application/yaml" => codec::decode_yaml(body.bytes, budget),
        // Custom resources have no protobuf form; the options of a request and Scales have one, whatever kind they are
        // sent to.
        "application/vnd.kubernetes.protobuf"
            if !operation.resource().is_custom() || matches!(kind, "DeleteOptions" | "Scale") =>
        {
            protobuf(body.bytes, budget)
        }
        _ => return Err(Failure::unsupported_media_type(&MEDIA_TYPES)),
    };
    let unrecognized = |why: &str| {
        Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {why}"
        ))
    };
    let parsed = parsed.map_err(|error| match error {
        codec::Error::Budget(error) => Failure::of_budget(&error),
        error => unrecognized(&error.to_string()),
    })?;
    match &parsed.value {
        Value::Object(_) => Ok(parsed),
        other => Err(unrecognized(&format!("the body is of type {}, want an object", value::type_name(other)))),
    }
}

fn protobuf(body: &Bytes, budget: &Budget) -> Result<Parsed, codec::Error> {
    let decoded = steersman_kinds::protobuf::decode(body, budget);
    decoded.map(|value| Parsed { value, faults: Faults::None }).map_err(|error| match error {
        steersman_kinds::protobuf::Error::Budget(error) => codec::Error::Budget(error),
        error => codec::Error::Protobuf(error.to_string()),
    })
}

/// Decodes, checks and defaults the body of a creation or an update.
pub(crate) fn decode(operation: &mut Operation<'_>, body: Body<'_>) -> Result<Value, Failure> {
    let (mut decoded, document) = read(operation, body)?;
    match operation.options.field_validation {
        FieldValidation::Strict => {
            let faults = strict_faults(&document, &decoded);
            if !faults.is_empty() {
                let why = format!("strict decoding error: {}", faults.join(", "));
                return Err(Failure::bad_request(cannot_be_handled(operation, &why)));
            }
        }
        FieldValidation::Warn => warn(operation, &document, &decoded),
        FieldValidation::Ignore => {}
    }
    operation.strategy().default(operation.version(), &mut decoded.value, &operation.budget)?;
    Ok(decoded.value)
}

/// Reads a body as an object of its kind. JSON is read once, against the schema. If that fails it is read again without the
/// schema, since a wrong kind or apiVersion is reported before wrong fields.
fn read(operation: &Operation<'_>, body: Body<'_>) -> Result<(Decoded, Faults), Failure> {
    let is_object = body.bytes.trim_ascii_start().first() == Some(&b'{');
    if is_object && body.media_type == "application/json" {
        let json = schema::Body::Json(body.bytes);
        match operation.strategy().decode(operation.version(), json, &operation.budget) {
            Ok(mut decoded) => {
                identify(operation, &mut decoded.value)?;
                return Ok((decoded, Faults::None));
            }
            Err(DecodeError::Budget(error)) => return Err(Failure::of_budget(&error)),
            Err(DecodeError::Invalid(_) | DecodeError::Malformed(_)) => {}
        }
    }
    let mut parsed = parse(operation, body, &operation.resource().kind)?;
    identify(operation, &mut parsed.value)?;
    Ok((typed(operation, parsed.value)?, parsed.faults))
}

/// The answer to a patch whose result is no object of the kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Misfit {
    /// 400: the body of an apply is itself such an object.
    Malformed,
    /// 422: the patch is valid, its result is not.
    Unprocessable,
}

/// Decodes, checks and defaults a patched object. Strict validation has messages of its own for patches; `document` are
/// the faults of the patch as a document. `is_own_record` says whether managed fields are unchanged since the server
/// wrote them.
pub(crate) fn decode_patched(
    operation: &mut Operation<'_>,
    mut patched: Value,
    patch: &[u8],
    document: &Faults,
    misfit: Misfit,
    is_own_record: impl FnOnce(&Value) -> bool,
) -> Result<Value, Failure> {
    identify(operation, &mut patched)?;
    // The server's own record need not be read again, and it may be half of the object.
    let is_own_record = value::at(&patched, &MANAGED_FIELDS).is_some_and(is_own_record);
    // Decoding drops empty lists, but an empty record means that all field owners are removed.
    let is_emptied = value::at(&patched, &MANAGED_FIELDS).and_then(Value::as_array).is_some_and(Vec::is_empty);
    let record = if is_own_record || is_emptied { value::remove_at(&mut patched, &MANAGED_FIELDS) } else { None };
    let mut decoded = decode_tree(operation, patched).map_err(|error| match error {
        DecodeError::Malformed(why) if misfit == Misfit::Unprocessable => unprocessable(patch, why),
        error => refused(operation, operation.name(), error),
    })?;
    if let Some(record) = record {
        value::set_at(&mut decoded.value, &MANAGED_FIELDS, record);
    }
    match operation.options.field_validation {
        FieldValidation::Strict => {
            let faults = strict_faults(document, &decoded);
            if !faults.is_empty() {
                return Err(unprocessable(patch, format!("strict decoding error: {}", faults.join(", "))));
            }
        }
        FieldValidation::Warn => warn(operation, document, &decoded),
        FieldValidation::Ignore => {}
    }
    let (version, value, budget) = (operation.version(), &mut decoded.value, &operation.budget);
    match misfit {
        Misfit::Malformed => operation.strategy().default_applied(version, value, budget)?,
        Misfit::Unprocessable => operation.strategy().default(version, value, budget)?,
    }
    Ok(decoded.value)
}

fn strict_faults(document: &Faults, decoded: &Decoded) -> Vec<String> {
    document.errors().into_iter().chain(decoded.faults.iter().map(ToString::to_string)).collect()
}

fn warn(operation: &mut Operation<'_>, document: &Faults, decoded: &Decoded) {
    document.warnings().iter().for_each(|warning| operation.warn(warning.clone()));
    decoded.faults.iter().for_each(|fault| operation.warn(fault.to_string()));
}

/// Checks `kind` and `apiVersion` against the path, and fills them in from the path if they are missing.
fn identify(operation: &Operation<'_>, value: &mut Value) -> Result<(), Failure> {
    if is_identified(operation, value) {
        return Ok(());
    }
    let wanted = operation.served.kind();
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
            operation.resource().plural
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

/// Whether kind and apiVersion of the body match the path, as they nearly always do.
fn is_identified(operation: &Operation<'_>, value: &Value) -> bool {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (resource, api_version) = (operation.resource(), text("apiVersion"));
    let version = match &*resource.group {
        "" => Some(api_version),
        group => api_version.strip_prefix(group).and_then(|rest| rest.strip_prefix('/')),
    };
    let is_version = version == Some(&*operation.version().name);
    is_version && text("kind") == &*resource.kind && value.get("metadata").is_some_and(|metadata| !metadata.is_null())
}

fn typed(operation: &Operation<'_>, value: Value) -> Result<Decoded, Failure> {
    let name = value::str_at(&value, &["metadata", "name"]).unwrap_or("").to_owned();
    decode_tree(operation, value).map_err(|error| refused(operation, &name, error))
}

fn decode_tree(operation: &Operation<'_>, value: Value) -> Result<Decoded, DecodeError> {
    operation.strategy().decode(operation.version(), schema::Body::Tree(value), &operation.budget)
}

fn refused(operation: &Operation<'_>, name: &str, error: DecodeError) -> Failure {
    match error {
        DecodeError::Budget(error) => Failure::of_budget(&error),
        DecodeError::Malformed(why) => Failure::bad_request(cannot_be_handled(operation, &why)),
        DecodeError::Invalid(errors) => Failure::invalid(&operation.resource().group_kind(), name, &errors),
    }
}

/// 422 at `patch`: upstream reports the whole patch as the cause of a result that is no object of the kind.
fn unprocessable(patch: &[u8], why: String) -> Failure {
    let patch = String::from_utf8_lossy(patch).into_owned();
    Failure::invalid(&GroupKind::default(), "", &[field::Error::invalid(&Path::new("patch"), patch, why)])
}

fn cannot_be_handled(operation: &Operation<'_>, why: &str) -> String {
    let kind = &operation.resource().kind;
    format!("{kind} in version {:?} cannot be handled as a {kind}: {why}", &*operation.version().name)
}
