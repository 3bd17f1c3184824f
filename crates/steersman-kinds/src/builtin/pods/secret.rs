//! Secret: bytes by key, with types that require certain keys. `stringData` is write-only and becomes `data`.

use crate::builtin::kind::{Column, Kind, Request, SelectableField, Version};
use crate::builtin::pods::config_map::{BYTES_MAX, decoded_len, frozen, key_errors};
use crate::builtin::rules;
use crate::builtin::rules::cells;
use crate::builtin::rules::field::Field;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::object_at;

const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

pub const KIND: Kind = Kind {
    kind: "Secret",
    plural: "secrets",
    singular: "secret",
    versions: &[Version {
        definition: "io.k8s.api.core.v1.Secret",
        columns: &[
            Column::NAME,
            Column::text("Type", "What the keys are for."),
            Column::text("Data", "How many keys there are."),
            Column::AGE,
        ],
        cells,
        cells_read: &["data[]", "type", "metadata.name", "metadata.creationTimestamp"],
        fields: &[SelectableField::new("type", ".type")],
        default,
        ..Version::V1
    }],
    validate_create: |request, errors| validate(&Field::root(request.new), errors),
    validate_update,
    ..Kind::NAMESPACED
};

fn default(object: &mut Value) {
    if let Some(Value::Object(texts)) = object.as_object_mut().and_then(|fields| fields.remove("stringData"))
        && let Some(data) = object_at(object, &["data"])
    {
        for (key, text) in texts {
            data.insert(key, Value::from(STANDARD.encode(text.as_str().unwrap_or_default())));
        }
        if data.is_empty() {
            object.as_object_mut().map(|fields| fields.remove("data"));
        }
    }
    if let Some(fields) = object.as_object_mut() {
        let kind = fields.entry("type").or_insert(Value::Null);
        if kind.as_str().unwrap_or_default().is_empty() {
            *kind = Value::from("Opaque");
        }
    }
}

fn validate(object: &Field<'_>, errors: &mut Vec<Error>) {
    let data = object.field("data");
    let mut bytes = 0;
    for (key, value) in data.entries() {
        errors.extend(key_errors(key).into_iter().map(|detail| Error::invalid(&value.path, key, detail)));
        bytes += decoded_len(value.text());
    }
    if bytes > BYTES_MAX {
        errors.push(Error::too_long(&data.path, BYTES_MAX));
    }
    validate_type(object, &data, errors);
}

/// Validates the keys that a type requires.
fn validate_type(object: &Field<'_>, data: &Field<'_>, errors: &mut Vec<Error>) {
    let mut required = |keys: &[&str]| {
        errors.extend(keys.iter().map(|key| data.key(key)).filter(Field::is_absent).map(|field| field.required("")));
    };
    match object.field("type").text() {
        "kubernetes.io/service-account-token" => {
            let account = object.at(&["metadata", "annotations"]).key(SERVICE_ACCOUNT_NAME);
            rules::required(&account, errors);
        }
        "kubernetes.io/dockercfg" => json_at(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => json_at(data, ".dockerconfigjson", errors),
        // One of the two is enough: a token may replace a user name, and a user may need no password.
        "kubernetes.io/basic-auth" if data.key("username").is_absent() && data.key("password").is_absent() => {
            required(&["username", "password"]);
        }
        "kubernetes.io/ssh-auth" => {
            let key = data.key("ssh-privatekey");
            rules::required(&key, errors);
        }
        "kubernetes.io/tls" => required(&["tls.crt", "tls.key"]),
        _ => {}
    }
}

fn json_at(data: &Field<'_>, key: &str, errors: &mut Vec<Error>) {
    let field = data.key(key);
    if field.is_absent() {
        errors.push(field.required(""));
        return;
    }
    let bytes = STANDARD.decode(field.text()).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes) {
        errors.push(Error::invalid(&field.path, "<secret contents redacted>", error.to_string()));
    }
}

fn validate_update(request: &Request<'_>, errors: &mut Vec<Error>) {
    let (object, old) = (Field::root(request.new), Field::root(request.old));
    rules::immutable(&object.field("type"), &old.field("type"), errors);
    frozen(&object, request.old, &["data"], errors);
    validate(&object, errors);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cells::name(object),
        cells::text(object, &["type"]),
        cells::count(object, &[&["data"]]),
        cells::age(object, now),
    ]
}
