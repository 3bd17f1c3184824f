//! The strategy of the kind `CustomResourceDefinition`.

use crate::catalog::{Resource, Version};
use crate::crd::{begin_deletion, flag, formats, text, texts, v1beta1, validate, versions};
use crate::projection::Projection;
use crate::strategy::{DecodeError, Endpoint, Grace, Rules, Strategy};
use serde_json::json;
use steersman_machinery::budget::{self, Budget};
use steersman_machinery::value::{at, object_at, set_at};
use steersman_machinery::{Value, field};
use steersman_schema::decode::{self, Body, Decoded};

/// The strategy of definitions. The internal form is `v1`.
#[derive(Debug)]
pub(super) struct Definition;

impl Strategy for Definition {
    fn decode(&self, version: &Version, body: Body<'_>, budget: &Budget) -> Result<Decoded, DecodeError> {
        let decoded = decode::built_in(&version.schema, body, budget)?;
        if is_v1beta1(version) {
            let errors = v1beta1::errors(&decoded.value);
            if !errors.is_empty() {
                return Err(DecodeError::Invalid(errors));
            }
        }
        Ok(decoded)
    }

    fn default(&self, version: &Version, value: &mut Value, budget: &Budget) -> Result<(), budget::Error> {
        budget.check()?;
        if is_v1beta1(version) {
            v1beta1::default(value);
        }
        let Some(spec) = object_at(value, &["spec"]) else { return Ok(()) };
        if !spec.get("conversion").is_some_and(Value::is_object) {
            spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
        }
        default_service_port(&mut spec["conversion"]);
        let kind = text(value, &["spec", "names", "kind"]).to_owned();
        let Some(names) = object_at(value, &["spec", "names"]) else { return Ok(()) };
        let mut fill = |key: &str, name: String| {
            let is_given = names.get(key).and_then(Value::as_str).is_some_and(|name| !name.is_empty());
            if !is_given && !kind.is_empty() {
                names.insert(key.to_owned(), json!(name));
            }
        };
        fill("singular", kind.to_lowercase());
        fill("listKind", format!("{kind}List"));
        Ok(())
    }

    fn is_internal_form(&self, version: &Version) -> bool {
        !is_v1beta1(version)
    }

    fn present(&self, version: &Version, internal: Value) -> Value {
        if is_v1beta1(version) { v1beta1::from_internal(internal) } else { internal }
    }

    fn internal(&self, version: &Version, mut requested: Value) -> Value {
        decode::normalize(&version.schema, &mut requested);
        if is_v1beta1(version) { v1beta1::to_internal(requested) } else { requested }
    }

    fn adopt(
        &self,
        resource: &Resource,
        version: &Version,
        body: Body<'_>,
        budget: &Budget,
    ) -> Result<Value, DecodeError> {
        let mut value = self.decode(version, body, budget)?.value;
        self.default(version, &mut value, budget)?;
        let internal = self.internal(version, value);
        if !is_v1beta1(version) {
            return Ok(internal);
        }
        // Decoding adds the fields that v1 always has, and a conversion from v1beta1 does not.
        let stored = resource.storage_version();
        let mut value = self.decode(stored, Body::Tree(internal), budget)?.value;
        self.default(stored, &mut value, budget)?;
        Ok(value)
    }

    fn prepare_create(&self, _version: &Version, value: &mut Value) {
        set_at(value, &["metadata", "generation"], json!(1));
        let status = json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": []});
        set_at(value, &["status"], status);
        note_storage_version(value);
    }

    fn prepare_update(&self, _version: &Version, endpoint: Endpoint, new: &mut Value, old: &Value) {
        if endpoint == Endpoint::Status {
            set_at(new, &["spec"], old.get("spec").cloned().unwrap_or_default());
        } else {
            set_at(new, &["status"], old.get("status").cloned().unwrap_or_else(|| json!({})));
            note_storage_version(new);
        }
        let before = old["metadata"].get("generation").and_then(Value::as_i64).unwrap_or_default();
        let is_changed = new.get("spec") != old.get("spec");
        set_at(new, &["metadata", "generation"], json!(before + i64::from(is_changed)));
    }

    fn prepare_delete(&self, _version: &Version, value: &mut Value, now: &str) {
        if let Ok(now) = now.parse() {
            begin_deletion(value, now);
        }
    }

    fn validate_create(&self, version: &Version, value: &Value, budget: &Budget) -> Vec<field::Error> {
        validate::create(value, &version.name, budget)
    }

    fn validate_update(
        &self,
        version: &Version,
        endpoint: Endpoint,
        new: &Value,
        old: &Value,
        budget: &Budget,
    ) -> Vec<field::Error> {
        match endpoint {
            Endpoint::Status => validate::status(new),
            Endpoint::Main | Endpoint::Other | Endpoint::Resize => validate::update(new, old, &version.name, budget),
        }
    }

    fn warnings(&self, _version: &Version, value: &Value, _old: &Value) -> Vec<String> {
        let schemas = versions(value).iter().filter_map(|version| at(version, &["schema", "openAPIV3Schema"]));
        formats::unknown(schemas).into_iter().map(|format| format!("unrecognized format {format:?}")).collect()
    }

    fn reset_fields(&self, _version: &Version, endpoint: Endpoint) -> &'static [&'static [&'static str]] {
        match endpoint {
            Endpoint::Main => &[&["status"]],
            Endpoint::Status => &[&["metadata"], &["spec"]],
            Endpoint::Other | Endpoint::Resize => &[],
        }
    }

    fn rules(&self) -> Rules {
        Rules { updates_unconditionally: false, grace: Grace::Instances, ..Rules::default() }
    }

    fn cells_read(&self, _version: &Version) -> Projection {
        Projection::of(&["metadata.name", "metadata.creationTimestamp"])
    }

    fn cells(&self, _version: &Version, value: &Value, _now: jiff::Timestamp) -> Vec<Value> {
        let metadata = |key: &str| value["metadata"].get(key).cloned().unwrap_or_default();
        vec![metadata("name"), metadata("creationTimestamp")]
    }
}

fn is_v1beta1(version: &Version) -> bool {
    &*version.name == v1beta1::NAME
}

/// Adds the storage version to `storedVersions`. A version is removed from there only when no object is stored in it
/// any more.
fn note_storage_version(definition: &mut Value) {
    let Some(storage) = versions(definition).iter().find(|version| flag(version, &["storage"])) else { return };
    let name = text(storage, &["name"]).to_owned();
    let mut stored: Vec<String> =
        texts(definition, &["status", "storedVersions"]).into_iter().map(str::to_owned).collect();
    if !stored.contains(&name) {
        stored.push(name);
        set_at(definition, &["status", "storedVersions"], json!(stored));
    }
}

fn default_service_port(conversion: &mut Value) {
    for path in [&["webhook", "clientConfig", "service"][..], &["webhookClientConfig", "service"]] {
        let service = path.iter().try_fold(&mut *conversion, |value, key| value.as_object_mut()?.get_mut(*key));
        if let Some(service) = service.and_then(Value::as_object_mut) {
            service.entry("port").or_insert_with(|| json!(443));
        }
    }
}
