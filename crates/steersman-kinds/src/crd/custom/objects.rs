//! The strategy of custom resources: everything that the schemas of their definition determine.

use crate::catalog::{Resource, Version};
use crate::converter::Converter;
use crate::crd::custom::columns::Columns;
use crate::crd::custom::scale;
use crate::crd::rules::Rules;
use crate::crd::status::stored;
use crate::crd::{flag, text};
use crate::projection::Projection;
use crate::strategy::{self, DecodeError, Effort, Endpoint, Strategy};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use steersman_machinery::budget::{self, Budget};
use steersman_machinery::value::{at, set_at};
use steersman_machinery::{Value, field};
use steersman_schema::decode::{self, Body, Decoded, Unknown};
use steersman_schema::{Schema, default, prune, validate};

/// The strategy of the objects of one definition.
///
/// Their internal form is that of the version in the path, because every version has its own rules. Objects are
/// converted by renaming their `apiVersion`, or by a webhook.
#[derive(Debug)]
pub(super) struct Objects {
    group: Box<str>,
    versions: Vec<Compiled>,
    storage: usize,
    /// Whether the definition preserves unknown fields.
    preserves: bool,
    /// Whether stored objects can be sent unchanged to readers of the storage version: none was stored under an earlier
    /// schema, or all have been rewritten since.
    is_pristine: bool,
    /// The webhook that converts between the versions, if the definition has one.
    converter: Option<Arc<dyn Converter>>,
}

/// One compiled version.
#[derive(Debug)]
pub(super) struct Compiled {
    pub name: Box<str>,
    pub schema: Arc<Schema>,
    pub rules: Rules,
    pub scale: Option<scale::Paths>,
    pub columns: Columns,
}

impl Objects {
    pub(super) fn new(
        definition: &Value,
        versions: Vec<Compiled>,
        storage: usize,
        converter: Option<Arc<dyn Converter>>,
    ) -> Objects {
        Objects {
            group: text(definition, &["spec", "group"]).into(),
            versions,
            storage,
            preserves: flag(definition, &["spec", "preserveUnknownFields"]),
            is_pristine: stored::are_current(definition),
            converter,
        }
    }

    fn compiled(&self, name: &str) -> Option<&Compiled> {
        self.versions.iter().find(|version| *version.name == *name)
    }

    fn api_version(&self, version: &str) -> Value {
        json!(format!("{}/{version}", self.group))
    }

    /// Drops the fields that a version does not have from an object that the server itself has changed.
    fn prune(&self, schema: &Schema, value: &mut Value) {
        if !self.preserves {
            prune::prune(schema, value);
        }
    }

    /// The errors of the schema and of the paths of `/scale`.
    fn errors(
        &self,
        version: &Version,
        endpoint: Endpoint,
        new: &Value,
        old: Option<&Value>,
        budget: &Budget,
    ) -> Vec<field::Error> {
        let mut errors = match old {
            Some(old) => validate::validate_update(&version.schema, new, old, budget),
            None => validate::validate(&version.schema, new, budget),
        };
        if let Some(paths) = self.compiled(&version.name).and_then(|compiled| compiled.scale.as_ref()) {
            if endpoint != Endpoint::Status {
                errors.extend(paths.spec_errors(new));
            }
            errors.extend(paths.status_errors(new));
        }
        errors
    }
}

impl Strategy for Objects {
    fn decode(&self, version: &Version, body: Body<'_>, budget: &Budget) -> Result<Decoded, DecodeError> {
        let unknown = if self.preserves { Unknown::Keep } else { Unknown::Prune };
        Ok(decode::custom_resource(&version.schema, unknown, body, budget)?)
    }

    fn default(&self, version: &Version, value: &mut Value, budget: &Budget) -> Result<(), budget::Error> {
        default::apply(&version.schema, value, budget)
    }

    fn default_applied(&self, version: &Version, value: &mut Value, budget: &Budget) -> Result<(), budget::Error> {
        default::fill(&version.schema, value, budget)
    }

    fn is_stored_form(&self, resource: &Resource, version: &Version) -> bool {
        self.is_pristine && resource.storage_version().name == version.name
    }

    fn is_internal_form(&self, _version: &Version) -> bool {
        true
    }

    fn converter(&self) -> Option<&dyn Converter> {
        self.converter.as_deref()
    }

    fn decode_converted(&self, version: &Version, mut converted: Value) -> Result<Value, budget::Error> {
        self.prune(&version.schema, &mut converted);
        complete(&version.schema, &mut converted)?;
        repair_generation(&mut converted);
        Ok(converted)
    }

    fn load(&self, resource: &Resource, version: &Version, mut stored: Value) -> Result<Value, budget::Error> {
        // An object is stored in the version that was the storage version when it was last written. If that version is
        // no longer defined, it has no schema, and the requested version's is used.
        let written = text(&stored, &["apiVersion"]).rsplit('/').next().unwrap_or_default();
        let is_requested = *written == *version.name;
        // An object written under the current schema is already pruned and defaulted.
        let is_current = self.is_pristine && *written == *resource.storage_version().name;
        if let Some(compiled) = self.compiled(written).filter(|_| !is_current) {
            self.prune(&compiled.schema, &mut stored);
            complete(&compiled.schema, &mut stored)?;
        }
        if !is_requested {
            set_at(&mut stored, &["apiVersion"], self.api_version(&version.name));
            self.prune(&version.schema, &mut stored);
        }
        repair_generation(&mut stored);
        Ok(stored)
    }

    fn store(&self, resource: &Resource, version: &Version, mut internal: Value) -> Result<Value, budget::Error> {
        let storage = resource.storage_version();
        if storage.name != version.name
            && let Some(compiled) = self.versions.get(self.storage)
        {
            set_at(&mut internal, &["apiVersion"], self.api_version(&compiled.name));
            self.prune(&compiled.schema, &mut internal);
            complete(&compiled.schema, &mut internal)?;
        }
        Ok(internal)
    }

    fn prepare_create(&self, version: &Version, value: &mut Value) {
        if version.has_status && value.as_object_mut().is_some_and(|fields| fields.remove("status").is_some()) {
            // The schema may have a default for the whole status. Decoding has added it within the request's budget, so
            // adding it again is not refused.
            let _ = default::apply(&version.schema, value, &Budget::default());
        }
        set_at(value, &["metadata", "generation"], json!(1));
    }

    fn prepare_update(&self, version: &Version, endpoint: Endpoint, new: &mut Value, old: &Value) {
        if endpoint == Endpoint::Status {
            take_status_alone(new, old);
            return;
        }
        if version.has_status {
            copy(new, old, "status");
        }
        let before = at(old, &["metadata", "generation"]).and_then(Value::as_i64).unwrap_or_default();
        let is_changed = contents(new).ne(contents(old));
        set_at(new, &["metadata", "generation"], json!(before + i64::from(is_changed)));
    }

    fn validate_create(&self, version: &Version, value: &Value, budget: &Budget) -> Vec<field::Error> {
        self.errors(version, Endpoint::Main, value, None, budget)
    }

    fn validate_update(
        &self,
        version: &Version,
        endpoint: Endpoint,
        new: &Value,
        old: &Value,
        budget: &Budget,
    ) -> Vec<field::Error> {
        self.errors(version, endpoint, new, Some(old), budget)
    }

    fn judge(
        &self,
        version: &Version,
        new: &Value,
        old: Option<&Value>,
        errors: &mut Vec<field::Error>,
        effort: Effort,
    ) -> Option<Vec<String>> {
        match self.compiled(&version.name) {
            Some(compiled) => compiled.rules.judge(new, old, errors, effort),
            None => Some(Vec::new()),
        }
    }

    fn is_ready_to_judge(&self, version: &Version) -> bool {
        self.compiled(&version.name).is_none_or(|compiled| compiled.rules.are_ready())
    }

    fn rules(&self) -> strategy::Rules {
        strategy::Rules { updates_unconditionally: false, ..strategy::Rules::default() }
    }

    fn cells_read(&self, version: &Version) -> Projection {
        self.compiled(&version.name).map_or(Projection::All, |compiled| compiled.columns.read())
    }

    fn cells(&self, version: &Version, value: &Value, now: Timestamp) -> Vec<Value> {
        self.compiled(&version.name).map(|compiled| compiled.columns.cells(value, now)).unwrap_or_default()
    }
}

/// Sets the defaults of a version in an object that was written under an earlier schema or in another version. The
/// added defaults have their own budget, since they may multiply the object; the stored object itself is always
/// accepted, however large it is.
fn complete(schema: &Schema, object: &mut Value) -> Result<(), budget::Error> {
    default::apply(schema, object, &Budget::default())
}

/// A write through `/status` changes only the status and `managedFields`.
fn take_status_alone(new: &mut Value, old: &Value) {
    let status = new.as_object_mut().and_then(|fields| fields.remove("status"));
    let managers = new["metadata"].get("managedFields").cloned();
    let mut object = old.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        fields.extend(status.map(|status| ("status".to_owned(), status)));
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        metadata.extend(managers.map(|managers| ("managedFields".to_owned(), managers)));
    }
    *new = object;
}

/// Sets a field to its value in the old object, or removes it.
fn copy(new: &mut Value, old: &Value, key: &str) {
    let Some(fields) = new.as_object_mut() else { return };
    match old.get(key) {
        Some(value) => fields.insert(key.to_owned(), value.clone()),
        None => fields.remove(key),
    };
}

/// All fields except the metadata.
fn contents(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flatten().filter(|(key, _)| *key != "metadata")
}

/// Adds a generation to objects that an earlier release stored without one.
fn repair_generation(object: &mut Value) {
    if at(object, &["metadata", "generation"]).and_then(Value::as_i64).unwrap_or_default() == 0 {
        set_at(object, &["metadata", "generation"], json!(1));
    }
}
