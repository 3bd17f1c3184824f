//! Objects as they are stored, by kube-apiserver or by Steersman: read as a server reads them.

use crate::error::OpenError;
use crate::objects::kinds::{Kinds, is_definition, split};
use crate::objects::made_up::{MadeUp, Unknown};
use crate::objects::redacted::redact;
use crate::objects::{LeftOut, Objects, parallel};
use crate::options::Options;
use crate::options::Redaction;
use crate::source::Stored;
use bytes::Bytes;
use prost::Message as _;
use serde::Deserialize;
use std::borrow::Cow;
use std::path::Path;
use steersman_kinds::at_rest;
use steersman_kinds::catalog::Resource;
use steersman_kinds::protobuf;
use steersman_machinery::budget::{Interrupt, Limits as BudgetLimits};
use steersman_machinery::value::remove_at;
use steersman_machinery::{Budget, Draft, GroupVersionKind, Object, Value};
use steersman_storage::kv::Entry;
use steersman_storage::kv::transformed::SEALED;
use steersman_storage_kubernetes::{Layout, ValueError, Values};

/// The keys of what is no object of the API: what servers keep for themselves, their addresses, and the bitmaps of node ports and addresses.
const NO_OBJECTS: [&[u8]; 3] = [b"/masterleases/", b"/ranges/", b"steersman/"];
const SECRETS: &[u8] = b"/secrets/";
/// The most that the metadata of one object may take.
const LIMITS: BudgetLimits = BudgetLimits { bytes_max: 16 << 20, items_max: 200_000, steps_max: 50_000_000 };
/// The longest beginning of an encrypted value that is shown.
const PREFIX_BYTES_MAX: usize = 60;

/// The message that kube-apiserver puts around that of an object.
#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(message, optional, tag = "1")]
    of: Option<TypeMeta>,
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

/// The kind of an object in JSON.
#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow, default, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
}

pub(super) fn entries(found: Stored, path: &Path, options: &Options) -> Result<Objects, OpenError> {
    let Stored { mut entries, foreign, revision } = found;
    entries.retain(|entry| !NO_OBJECTS.iter().any(|start| entry.key.starts_with(start)));
    let sealed = entries.iter().find(|entry| entry.value.starts_with(SEALED)).map(|entry| entry.value.clone());
    let mut left_out = LeftOut::default();
    let n_entries = entries.len();
    entries.retain(|entry| {
        let is_sealed = entry.value.starts_with(SEALED);
        if is_sealed {
            left_out.count(format!(
                "of {}, because they are encrypted at rest ({})",
                resource(&entry.key),
                prefix(&entry.value)
            ));
        }
        !is_sealed
    });
    if let Some(sealed) = sealed.filter(|_| entries.is_empty() && 0 < n_entries) {
        return Err(OpenError::Encrypted { path: path.to_owned(), prefix: prefix(&sealed) });
    }
    let values = Values::new(Layout::Steersman, &options.runtime_config);
    for entry in &entries {
        values.note(&entry.key, &entry.value);
    }
    let mut kinds = Kinds::new(&options.runtime_config);
    let secrets = kinds.named("secrets", Some("")).filter(|_| options.redaction == Redaction::Redact).cloned();
    let converted = parallel::map(entries, |entry| converted(&values, entry, secrets.as_deref()));
    let mut objects = Vec::with_capacity(converted.len());
    for converted in converted {
        match converted {
            Ok(entry) => objects.push(entry),
            Err(why) => left_out.count(why),
        }
    }
    for definition in objects.iter().filter_map(definition) {
        kinds.learn(&definition);
    }
    let mut made_up = MadeUp::new(&options.limits);
    objects.retain(|entry| match undefined(&kinds, &mut made_up, entry) {
        Ok(()) => true,
        Err(why) => {
            left_out.count(why);
            false
        }
    });
    for entry in &foreign {
        match metadata_of(&mut made_up, entry) {
            Ok(Some(entry)) => objects.push(entry),
            Ok(None) => {}
            Err(why) => left_out.count(why),
        }
    }
    Ok(Objects::new(objects, revision, made_up, left_out))
}

/// An entry in its stored form. With the kind of Secrets, their values are replaced.
fn converted(values: &Values, entry: Entry, secrets: Option<&Resource>) -> Result<Entry, String> {
    let of = resource(&entry.key);
    let value = values.convert(&entry.key, &entry.value).map_err(|error| match error {
        ValueError::Version { api_version, .. } => {
            format!("of {of} in {api_version}, a version that this release does not know")
        }
        // Its bytes stay out of the sentence: there may be thousands of them.
        _ => format!("of {of} that are damaged, or no objects"),
    })?;
    let value = match secrets.filter(|_| entry.key.starts_with(SECRETS)) {
        Some(secrets) => redacted(secrets, &value).ok_or_else(|| format!("of {of} that are damaged, or no objects"))?,
        None => value,
    };
    Ok(Entry { value, ..entry })
}

fn redacted(secrets: &Resource, value: &Bytes) -> Option<Bytes> {
    let mut secret: Value = serde_json::from_slice(Object::json_of(value).ok()?).ok()?;
    redact(&mut secret);
    Some(at_rest::draft(secrets, secret).ok()?.encode())
}

fn definition(entry: &Entry) -> Option<Value> {
    let is_one = entry.key.starts_with(b"apiextensions.k8s.io/customresourcedefinitions/");
    is_one.then(|| serde_json::from_slice(Object::json_of(&entry.value).ok()?).ok())?
}

/// Takes note of the kind of an object, if it has no definition.
fn undefined(kinds: &Kinds, made_up: &mut MadeUp, entry: &Entry) -> Result<(), String> {
    let text = std::str::from_utf8(&entry.key).map_err(|_| "with names that cannot be".to_owned())?;
    let mut parts = text.split('/');
    let (group, plural) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if kinds.has(group, plural) {
        return Ok(());
    }
    let json = Object::json_of(&entry.value).map_err(|_| format!("of {plural}.{group} that are damaged"))?;
    let named: Named<'_> = serde_json::from_slice(json).map_err(|_| format!("of {plural}.{group} that are damaged"))?;
    let version = split(&named.api_version).1;
    let is_namespaced = parts.count() == 2;
    if is_definition(&named.api_version, &named.kind) || split(&named.api_version).0 != group {
        return Err(format!("of {plural}.{group}, which are of another group"));
    }
    made_up.add(Unknown { group, version, kind: &named.kind, plural: Some(plural), is_namespaced })
}

/// The metadata of an object in protobuf whose message is not known; `None` if it is no object of the API.
///
/// All messages of objects begin with their metadata.
fn metadata_of(made_up: &mut MadeUp, entry: &Entry) -> Result<Option<Entry>, String> {
    let Some(envelope) = entry.value.strip_prefix(b"k8s\0") else { return Ok(None) };
    let Ok(Envelope { of: Some(TypeMeta { api_version, kind }), raw }) = Envelope::decode(envelope) else {
        return Ok(None);
    };
    let (group, version) = split(&api_version);
    // Known kinds have keys of their own: under another key is what a server keeps for itself.
    if protobuf::has_form(&GroupVersionKind::new(group, version, &*kind)) {
        return Ok(None);
    }
    let text = std::str::from_utf8(&entry.key).map_err(|_| "with names that cannot be".to_owned())?;
    let parts: Vec<&str> = text.split('/').collect();
    let (plural, rest) = parts.split_first().unwrap_or((&"", &[]));
    let is_namespaced = rest.len() == 2;
    let unreadable = || format!("of the kind {kind} in {api_version}, whose stored form is not known");
    let mut metadata = partial(raw).ok_or_else(unreadable)?;
    made_up.add(Unknown { group, version, kind: &kind, plural: Some(plural), is_namespaced })?;
    metadata["kind"] = kind.as_str().into();
    metadata["apiVersion"] = api_version.as_str().into();
    remove_at(&mut metadata, &["metadata", "resourceVersion"]);
    let json = serde_json::to_vec(&metadata).map_err(|_| unreadable())?;
    let value = Draft::read(json.into()).map_err(|_| unreadable())?.encode();
    let key = [group, plural].into_iter().chain(rest.iter().copied()).collect::<Vec<_>>().join("/");
    Ok(Some(Entry { key: key.into(), value, revision: entry.revision }))
}

/// A message read as one that has nothing but metadata.
fn partial(raw: Bytes) -> Option<Value> {
    let of = TypeMeta { api_version: "meta.k8s.io/v1".to_owned(), kind: "PartialObjectMetadata".to_owned() };
    let document = [b"k8s\0", Envelope { of: Some(of), raw }.encode_to_vec().as_slice()].concat();
    let read = protobuf::decode(&document, &Budget::new(LIMITS, Interrupt::default())).ok()?;
    read.get("metadata").is_some_and(Value::is_object).then_some(read)
}

/// `PLURAL.GROUP` of a key.
fn resource(key: &[u8]) -> String {
    let text = String::from_utf8_lossy(key);
    let mut parts = text.split('/');
    match (parts.next().unwrap_or_default(), parts.next().unwrap_or_default()) {
        ("", plural) => plural.to_owned(),
        (group, plural) => format!("{plural}.{group}"),
    }
}

/// The beginning of an encrypted value, which names the cipher and the key: `k8s:enc:aescbc:v1:key1:`.
fn prefix(value: &[u8]) -> String {
    let ends = value.iter().take(PREFIX_BYTES_MAX).enumerate().filter(|(_, byte)| **byte == b':');
    let end = ends.map(|(at, _)| at).nth(4).unwrap_or(SEALED.len());
    value[..end.min(value.len())].iter().map(|byte| char::from(*byte)).filter(char::is_ascii_graphic).collect()
}

#[cfg(test)]
mod tests;
