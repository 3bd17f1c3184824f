//! Values in both forms, and the way from one to the other, for whoever opens a store or moves one.

use crate::definitions::Definitions;
use crate::{Layout, stored_kinds};
use bytes::Bytes;
use memchr::memmem;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use steersman_kinds::catalog::{Resource, Version};
use steersman_kinds::protobuf::{self, Envelope};
use steersman_kinds::runtime_config::RuntimeConfig;
use steersman_kinds::strategy::DecodeError;
use steersman_kinds::{at_rest, crd};
use steersman_machinery::budget::{Interrupt, Limits};
use steersman_machinery::value::remove_at;
use steersman_machinery::{Budget, Draft, GroupVersion, Object, Value, object};
use steersman_schema::Edition;
use steersman_schema::decode::Body;
use steersman_storage::kv::transformed::{Form, Opened, SEALED, Transformed, Transformer, Unopened};
use steersman_storage::kv::{BoxFuture, Cause, Kv};

/// The beginning of kube-apiserver's protobuf form.
const PROTOBUF: &[u8] = b"k8s\0";
/// The groups whose objects kube-apiserver stores as JSON although their kinds have a protobuf form.
const JSON_GROUPS: [&str; 2] = [crd::GROUP, "apiregistration.k8s.io"];
/// The most that the object of a value may take: the tree of any object that kube-apiserver has accepted fits.
const LIMITS: Limits = Limits { bytes_max: 128 << 20, items_max: 4_000_000, steps_max: 400_000_000 };
const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";
const INITIALIZERS: &[u8] = b"\"initializers\":{";

/// The values of a store, in one of the two layouts.
#[derive(Debug)]
pub struct Values {
    /// The built-in kinds, by `group/plural`.
    built_in: HashMap<String, BuiltIn>,
    definitions: Definitions,
    edition: Edition,
    layout: Layout,
    /// Whether values in Steersman's form are read to their ends, because another program may have damaged them.
    is_checked: bool,
    /// Whether a value has been read in another form than a write would give it.
    is_mixed: AtomicBool,
}

#[derive(Debug)]
struct BuiltIn {
    /// `None` for a kind that is stored as JSON.
    envelope: Option<Envelope>,
    resource: Arc<Resource>,
}

/// Why a stored value is no object of its kind.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    /// It begins like nothing that is known.
    #[error("it is neither JSON nor protobuf of Kubernetes")]
    Foreign,
    /// It has fields of another type than its kind.
    #[error("it is no {kind}")]
    Decode {
        /// The kind.
        kind: String,
        /// The fault.
        source: DecodeError,
    },
    /// Its JSON cannot be read.
    #[error("its JSON cannot be read")]
    Json(#[from] serde_json::Error),
    /// It cannot be written as protobuf.
    #[error("it has no protobuf form")]
    NoProtobuf(#[from] protobuf::NotJson),
    /// It is not an object.
    #[error("it is no object")]
    Object(#[from] object::DecodeError),
    /// Its protobuf cannot be read.
    #[error("its protobuf cannot be read")]
    Protobuf(#[from] protobuf::Error),
    /// It has no stored form.
    #[error("it has no stored form")]
    Stored(#[from] at_rest::Error),
    /// It is of a version that is not known.
    #[error("it is a {kind} of {api_version}, and {plural} have no such version here")]
    Version {
        /// The `apiVersion`.
        api_version: String,
        /// The kind.
        kind: String,
        /// The resource of the key.
        plural: String,
    },
}

#[derive(Deserialize)]
struct TypeMeta<'a> {
    #[serde(borrow, default, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
}

/// A JSON of which a tree could be made, without the tree.
struct Readable;

impl<'de> Deserialize<'de> for Readable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Readable, D::Error> {
        deserializer.deserialize_any(Readable)
    }
}

impl<'de> Visitor<'de> for Readable {
    type Value = Readable;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Readable, A::Error> {
        while map.next_entry::<Readable, Readable>()?.is_some() {}
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Readable, A::Error> {
        while list.next_element::<Readable>()?.is_some() {}
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Readable, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Readable, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Readable, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Readable, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Readable, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Readable, E> {
        Ok(self)
    }
}

/// The form of a value that was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Written {
    Json,
    Header,
    Protobuf,
}

impl Values {
    /// The values of a layout. With initializers in the configuration their field is kept, which no protobuf form has.
    pub fn new(layout: Layout, config: &RuntimeConfig) -> Values {
        let edition = config.edition();
        let built_in = stored_kinds(config).map(|resource| {
            let name = format!("{}/{}", resource.group, resource.plural);
            (name, BuiltIn { envelope: envelope(&resource), resource })
        });
        Values {
            built_in: built_in.collect(),
            definitions: Definitions::default(),
            edition,
            layout,
            is_checked: true,
            is_mixed: AtomicBool::new(false),
        }
    }

    /// An engine whose values have the form of Steersman over one that stores this form. One that no other program writes has checksums of
    /// its own.
    pub fn over(self, kv: Arc<dyn Kv>) -> Arc<dyn Kv> {
        let is_checked = kv.is_shared();
        Arc::new(Transformed::new(kv, Arc::new(Values { is_checked, ..self })))
    }

    /// Takes note of a value that tells how others are read, which is that of a definition. Those of a store that is converted must be known
    /// first.
    pub fn note(&self, key: &[u8], value: &Bytes) {
        if resource(key) == DEFINITIONS {
            // One that cannot be read is named when it is converted.
            let opened = self.opened(key, value).ok();
            let json = opened.as_ref().and_then(|opened| Object::json_of(&opened.value).ok());
            if let Some(definition) = json.and_then(|json| serde_json::from_slice(json).ok()) {
                self.definitions.learn(&definition);
            }
        }
    }

    /// A value of either form in the form of this layout. An encrypted value stays as it is.
    ///
    /// # Errors
    /// When it is no object of its kind.
    pub fn convert(&self, key: &[u8], value: &Bytes) -> Result<Bytes, ValueError> {
        if value.starts_with(SEALED) { Ok(value.clone()) } else { self.sealed(key, &self.opened(key, value)?.value) }
    }

    fn sealed(&self, key: &[u8], value: &Bytes) -> Result<Bytes, ValueError> {
        if self.layout == Layout::Steersman || value.starts_with(SEALED) || value.starts_with(PROTOBUF) {
            return Ok(value.clone());
        }
        let json = Object::json_of(value)?;
        let has_initializers = || memmem::find(json, INITIALIZERS).is_some();
        let is_json = self.edition == Edition::WithInitializers && has_initializers();
        let protobuf = match self.built_in.get(resource(key)) {
            _ if is_json => None,
            Some(BuiltIn { envelope: Some(envelope), .. }) => {
                let mut out = Vec::with_capacity(json.len());
                envelope.document(json, &mut out)?;
                Some(out)
            }
            Some(BuiltIn { envelope: None, .. }) => None,
            // The bitmap of node ports has a message, although it is of no kind of the API.
            None if key.starts_with(b"/") => protobuf::document(json),
            None => None,
        };
        Ok(protobuf.unwrap_or_else(|| [json, b"\n"].concat()).into())
    }

    fn opened(&self, key: &[u8], stored: &Bytes) -> Result<Opened, ValueError> {
        let (written, draft) = if stored.starts_with(PROTOBUF) {
            (Written::Protobuf, self.of_protobuf(key, stored)?)
        } else {
            match stored.first() {
                Some(b'{') => (Written::Json, self.of_json(key, stored)?),
                Some(_) if Object::json_of(stored).is_ok() => {
                    // Nothing behind this looks at it again before clients do.
                    if self.is_checked {
                        Object::check(stored)?;
                    }
                    // In the layout of Steersman custom resources have a header too.
                    if self.layout == Layout::Kubernetes && resource(key) == DEFINITIONS {
                        self.definitions.learn(&serde_json::from_slice(Object::json_of(stored)?)?);
                    }
                    return Ok(Opened { value: stored.clone(), form: self.form(key, Written::Header) });
                }
                _ => return Err(ValueError::Foreign),
            }
        };
        Ok(Opened { value: draft.encode(), form: self.form(key, written) })
    }

    fn of_protobuf(&self, key: &[u8], stored: &[u8]) -> Result<Draft, ValueError> {
        let value = protobuf::decode(stored, &budget())?;
        match self.built_in.get(resource(key)) {
            Some(built_in) => {
                let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                let (api_version, kind) = (text("apiVersion"), text("kind"));
                adopted(&built_in.resource, &api_version, &kind, Body::Tree(value))
            }
            None => draft(value),
        }
    }

    fn of_json(&self, key: &[u8], stored: &Bytes) -> Result<Draft, ValueError> {
        let name = resource(key);
        if let Some(built_in) = self.built_in.get(name) {
            let TypeMeta { api_version, kind } = serde_json::from_slice(stored)?;
            let value = adopt(&built_in.resource, &api_version, &kind, Body::Json(stored))?;
            if name == DEFINITIONS {
                self.definitions.learn(&value);
            }
            return Ok(at_rest::draft(&built_in.resource, value)?);
        }
        let selectable = self.definitions.find(name);
        if selectable.is_none()
            && let Some(draft) = unchanged(stored)
        {
            return Ok(draft);
        }
        let mut value: Value = serde_json::from_slice(stored)?;
        remove_at(&mut value, &["metadata", "resourceVersion"]);
        match selectable {
            Some(resource) => Ok(at_rest::draft(&resource, value)?),
            None => draft(value),
        }
    }

    /// Whether a write would give a value the form that it has.
    fn form(&self, key: &[u8], written: Written) -> Form {
        let is_current = match self.layout {
            Layout::Steersman => written == Written::Header,
            Layout::Kubernetes => match self.built_in.get(resource(key)) {
                Some(BuiltIn { envelope: Some(_), .. }) => {
                    written == Written::Protobuf || self.edition == Edition::WithInitializers
                }
                Some(_) => written == Written::Json,
                None => written != Written::Header,
            },
        };
        if is_current {
            return Form::Current;
        }
        self.is_mixed.store(true, Ordering::Release);
        Form::Stale
    }
}

/// `group/plural` of a key; empty if it has none.
fn resource(key: &[u8]) -> &str {
    let text = std::str::from_utf8(key).unwrap_or_default();
    text.match_indices('/').nth(1).map_or("", |(at, _)| &text[..at])
}

fn envelope(resource: &Resource) -> Option<Envelope> {
    if JSON_GROUPS.contains(&&*resource.group) {
        return None;
    }
    let version = GroupVersion::new(&*resource.group, &*resource.storage_version().name);
    Envelope::of(&version.kind(&*resource.kind))
}

fn adopted(resource: &Resource, api_version: &str, kind: &str, body: Body<'_>) -> Result<Draft, ValueError> {
    Ok(at_rest::draft(resource, adopt(resource, api_version, kind, body)?)?)
}

/// A budget for one value, since a few bytes of protobuf can stand for a large object, and all readers of the store wait for it.
fn budget() -> Budget {
    Budget::new(LIMITS, Interrupt::default())
}

/// An object of another API server in its stored form here.
fn adopt(resource: &Resource, api_version: &str, kind: &str, body: Body<'_>) -> Result<Value, ValueError> {
    let is_this = |version: &&Version| {
        let name = api_version.rsplit('/').next().unwrap_or_default();
        *version.name == *name && *kind == *resource.kind
    };
    let Some(version) = resource.versions.iter().find(is_this) else {
        let (api_version, kind, plural) = (api_version.to_owned(), kind.to_owned(), resource.plural.to_string());
        return Err(ValueError::Version { api_version, kind, plural });
    };
    let adopted = resource.strategy.adopt(resource, version, body, &budget());
    let mut value = adopted.map_err(|source| ValueError::Decode { kind: kind.to_owned(), source })?;
    remove_at(&mut value, &["metadata", "resourceVersion"]);
    Ok(value)
}

/// A draft of a JSON that is stored here as it is there, without a tree: most custom resources, of which there may be hundreds of thousands.
fn unchanged(stored: &Bytes) -> Option<Draft> {
    // A name may be spelled with escapes.
    if memmem::find(stored, b"\"resourceVersion\"").is_some() || memmem::find(stored, b"\\u").is_some() {
        return None;
    }
    // The way through a tree refuses all others: a parser that passes over values looks neither into texts nor at depth and numbers.
    serde_json::from_slice::<Readable>(stored).ok()?;
    Draft::read(stored.slice(..stored.trim_ascii_end().len())).ok()
}

/// A draft of an object whose kind is not known.
fn draft(mut value: Value) -> Result<Draft, ValueError> {
    if let Value::Object(fields) = &mut value {
        fields.entry("metadata").or_insert_with(|| Value::Object(Default::default()));
    }
    Ok(Draft::read(serde_json::to_vec(&value)?.into())?)
}

impl Transformer for Values {
    fn seal(&self, key: &[u8], value: &Bytes) -> Result<Bytes, Cause> {
        self.sealed(key, value).map_err(|fault| Arc::new(fault) as Cause)
    }

    fn open(&self, key: &[u8], stored: &Bytes) -> Result<Opened, Unopened> {
        // A value that could not be decrypted stays as it is.
        if stored.starts_with(SEALED) {
            return Ok(Opened { value: stored.clone(), form: Form::Current });
        }
        self.opened(key, stored).map_err(|fault| match fault {
            // A later release reads it.
            fault @ ValueError::Version { .. } => Unopened::Sealed(Arc::new(fault)),
            fault => Unopened::Unreadable(Arc::new(fault)),
        })
    }

    /// Only a store that another program has written too has other forms.
    fn may_be_stale(&self, _key: &[u8]) -> bool {
        self.is_mixed.load(Ordering::Acquire)
    }

    fn opened_first(&self) -> Option<Bytes> {
        (self.layout == Layout::Kubernetes).then(|| format!("{DEFINITIONS}/").into())
    }

    fn fetch(&self, _lacking: Vec<(Bytes, Bytes)>) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
