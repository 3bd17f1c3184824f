//! The strategy of all built-in kinds: the stages of a write, with the functions in the kind's row.

use crate::builtin::kind::{Compiles, Counts, Kind, NewStatus, SPEC_AND_METADATA};
use crate::builtin::pods::disabled;
use crate::builtin::pods::pod::warnings;
use crate::builtin::rules::change::Change;
use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule;
use crate::catalog::{Handling, Resource, Version};
use crate::expressions;
use crate::projection::Projection;
use crate::strategy::{DecodeError, Endpoint, Rules, Strategy};
use crate::user::User;
use jiff::Timestamp;
use std::fmt;
use steersman_machinery::budget::{self, Budget};
use steersman_machinery::value::{at, object_at, remove_at, set_at, str_at};
use steersman_machinery::{Value, field};
use steersman_schema::decode::{self, Body, Decoded};
use steersman_schema::{Definitions, Schema};

/// The strategy of a kind of the table.
pub(super) struct BuiltIn {
    kind: &'static Kind,
}

impl BuiltIn {
    pub(super) fn new(kind: &'static Kind) -> BuiltIn {
        BuiltIn { kind }
    }

    fn internal_schema(&self) -> Option<&'static Schema> {
        Definitions::builtin().schema(self.kind.internal_definition())
    }

    /// Adds the fields that the kind always has, such as an empty `status`.
    fn complete(&self, value: &mut Value) {
        if let Some(schema) = self.internal_schema() {
            decode::normalize_stored(schema, value);
        }
    }

    /// The object in another version of the same form.
    fn renamed(&self, mut object: Value, version: &str) -> Value {
        set_at(&mut object, &["apiVersion"], Value::from(format!("{}/{version}", self.kind.group)));
        object
    }

    fn count_generation(&self, new: &mut Value, old: &Value) {
        if !self.kind.generation.is_empty() {
            count_generation(self.kind.generation, new, old);
        }
    }

    /// Whether the fields that raise the generation differ.
    fn is_changed(&self, new: &Value, old: &Value) -> bool {
        self.kind.generation.iter().any(|path| at(new, path) != at(old, path))
    }
}

impl fmt::Debug for BuiltIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BuiltIn").field(&self.kind.kind).finish()
    }
}

impl Strategy for BuiltIn {
    fn handling(&self) -> Handling {
        self.kind.handling
    }

    fn decode(&self, version: &Version, body: Body<'_>, budget: &Budget) -> Result<Decoded, DecodeError> {
        let decoded = decode::built_in(&version.schema, body, budget)?;
        match (self.kind.version(&version.name).conversion_fault)(&decoded.value) {
            None => Ok(decoded),
            Some(why) => Err(DecodeError::Malformed(why)),
        }
    }

    /// The defaults of a kind are a few small values for each object within it, so the decoded object at most doubles.
    fn default(&self, version: &Version, value: &mut Value, budget: &Budget) -> Result<(), budget::Error> {
        budget.check()?;
        (self.kind.version(&version.name).default)(value);
        Ok(())
    }

    fn is_stored_form(&self, _resource: &Resource, version: &Version) -> bool {
        self.is_internal_form(version)
    }

    fn is_internal_form(&self, version: &Version) -> bool {
        self.kind.version(&version.name).conversion.is_none() && !self.kind.is_alias(&version.name)
    }

    fn present(&self, version: &Version, internal: Value) -> Value {
        if self.kind.is_alias(&version.name) {
            return self.renamed(internal, &version.name);
        }
        let Some(conversion) = self.kind.version(&version.name).conversion else { return internal };
        let mut requested = (conversion.from_internal)(internal);
        let api_version = format!("{}/{}", self.kind.group, version.name);
        set_at(&mut requested, &["apiVersion"], Value::from(api_version));
        decode::normalize(&version.schema, &mut requested);
        requested
    }

    fn internal(&self, version: &Version, requested: Value) -> Value {
        if self.kind.is_alias(&version.name) {
            return self.renamed(requested, self.kind.versions[0].name);
        }
        let Some(conversion) = self.kind.version(&version.name).conversion else { return requested };
        let mut internal = (conversion.to_internal)(requested);
        set_at(&mut internal, &["apiVersion"], Value::from(conversion.internal_api_version));
        self.complete(&mut internal);
        internal
    }

    fn adopt(
        &self,
        _resource: &Resource,
        version: &Version,
        body: Body<'_>,
        budget: &Budget,
    ) -> Result<Value, DecodeError> {
        let mut value = self.decode(version, body, budget)?.value;
        self.default(version, &mut value, budget)?;
        let mut internal = self.internal(version, value);
        self.complete(&mut internal);
        (self.kind.adopt)(&mut internal);
        Ok(internal)
    }

    fn completed_for_owners(&self, value: &Value) -> Option<Value> {
        let (_, name) = str_at(value, &["apiVersion"])?.rsplit_once('/')?;
        let version = self.kind.versions.iter().find(|version| version.name == name)?;
        let Some(conversion) = version.conversion else { return (self.kind.completed_for_owners)(value) };
        // Upstream compares what an object becomes on its way through the internal form.
        let mut internal = (conversion.to_internal)(value.clone());
        self.complete(&mut internal);
        let mut shown = (conversion.from_internal)(internal);
        set_at(&mut shown, &["apiVersion"], value.get("apiVersion").cloned().unwrap_or_default());
        if let Some(schema) = Definitions::builtin().schema(version.definition) {
            decode::normalize(schema, &mut shown);
        }
        Some(shown)
    }

    fn prepare_create(&self, version: &Version, value: &mut Value) {
        self.complete(value);
        if version.has_status && self.kind.new_status == NewStatus::Empty {
            set_at(value, &["status"], Value::Object(Default::default()));
        }
        // Kinds without a generation keep the client's value, as upstream.
        if !self.kind.generation.is_empty() {
            set_at(value, &["metadata", "generation"], Value::from(1));
        }
        disabled::drop(self.kind.pod_spec, value, &Value::Null);
        (self.kind.prepare_create)(value);
        self.complete(value);
    }

    fn set_creator(&self, value: &mut Value, user: &User) {
        (self.kind.set_creator)(value, user);
    }

    fn set_times(&self, new: &mut Value, old: &Value, now: &str) {
        (self.kind.set_times)(new, old, now);
    }

    fn prepare_update(&self, version: &Version, endpoint: Endpoint, new: &mut Value, old: &Value) {
        match endpoint {
            Endpoint::Main => {
                let is_body_changed = self.kind.counts == Counts::Exactly && self.is_changed(new, old);
                self.complete(new);
                let is_changed = self.kind.counts == Counts::Sent && self.is_changed(new, old);
                if version.has_status {
                    carry(new, old, &["status"]);
                }
                disabled::drop(self.kind.pod_spec, new, old);
                (self.kind.prepare_update)(new, old);
                self.complete(new);
                self.count_generation(new, old);
                if is_body_changed || is_changed {
                    raise_generation(new, old);
                }
            }
            Endpoint::Other => {
                self.complete(new);
                for path in self.kind.other_leaves {
                    carry(new, old, path);
                }
                (self.kind.prepare_other)(new, old);
                self.count_generation(new, old);
            }
            Endpoint::Resize => {
                self.complete(new);
                (self.kind.prepare_resize)(new, old);
                self.complete(new);
                self.count_generation(new, old);
            }
            Endpoint::Status => {
                self.complete(new);
                for path in self.kind.status_leaves {
                    carry(new, old, path);
                }
                if self.kind.status_leaves == SPEC_AND_METADATA {
                    // Nobody owns this part of the metadata.
                    carry(new, old, &["metadata", "deletionTimestamp"]);
                }
                (self.kind.prepare_status)(new, old);
                self.complete(new);
                carry(new, old, &["metadata", "generation"]);
            }
        }
    }

    fn prepare_delete(&self, _version: &Version, value: &mut Value, _now: &str) {
        (self.kind.prepare_delete)(value);
    }

    fn validate_create(&self, _version: &Version, value: &Value, budget: &Budget) -> Vec<field::Error> {
        let mut errors = Vec::new();
        if self.kind.compiles != Compiles::Never && budget.work(expressions::compiling_steps(value)).is_err() {
            return errors;
        }
        rule::check(self.kind.validate, &Change::creation(value), &mut errors);
        errors
    }

    fn validate_update(
        &self,
        _version: &Version,
        endpoint: Endpoint,
        new: &Value,
        old: &Value,
        budget: &Budget,
    ) -> Vec<field::Error> {
        let mut errors = Vec::new();
        let compiles = self.kind.compiles == Compiles::Always && endpoint == Endpoint::Main;
        if compiles && budget.work(expressions::compiling_steps(new)).is_err() {
            return errors;
        }
        let rules = match endpoint {
            Endpoint::Main => self.kind.validate,
            Endpoint::Other => self.kind.validate_other.unwrap_or(self.kind.validate),
            Endpoint::Resize => self.kind.validate_resize,
            Endpoint::Status => self.kind.validate_status,
        };
        rule::check(rules, &Change::update(new, old), &mut errors);
        errors
    }

    fn warnings(&self, _version: &Version, value: &Value, old: &Value) -> Vec<String> {
        let mut warnings = (self.kind.warnings)(value, old);
        // Upstream warns about a template only if it has changed.
        let is_changed = old.is_null() || generation(value) != generation(old);
        if let [template @ .., "spec"] = self.kind.pod_spec
            && !template.is_empty()
            && is_changed
        {
            warnings.extend(warnings::of_template(&Field::root(value).at(template)));
        }
        warnings
    }

    fn name_faults(&self, name: &str) -> Vec<String> {
        (self.kind.name_faults)(name)
    }

    fn reset_fields(&self, version: &Version, endpoint: Endpoint) -> &'static [&'static [&'static str]] {
        match endpoint {
            Endpoint::Main if !self.kind.main_leaves.is_empty() => self.kind.main_leaves,
            Endpoint::Main if version.has_status => &[&["status"]],
            Endpoint::Status => self.kind.status_leaves,
            Endpoint::Other => self.kind.other_leaves,
            Endpoint::Main | Endpoint::Resize => &[],
        }
    }

    fn annotations_of_version(&self, version: &Version) -> &'static [&'static str] {
        self.kind.version(&version.name).annotations
    }

    fn rules(&self) -> Rules {
        self.kind.rules
    }

    fn rows_ordered_by(&self) -> Option<&'static [&'static str]> {
        Some(self.kind.rows_ordered_by).filter(|path| !path.is_empty())
    }

    fn cells_read(&self, version: &Version) -> Projection {
        match self.kind.version(&version.name).cells_read {
            [] => Projection::without_managers(),
            paths => Projection::of(paths),
        }
    }

    fn row_conditions(&self, version: &Version, value: &Value) -> Vec<Value> {
        (self.kind.version(&version.name).row_conditions)(value)
    }

    fn cells(&self, version: &Version, value: &Value, now: Timestamp) -> Vec<Value> {
        (self.kind.version(&version.name).cells)(value, now)
    }
}

const GENERATION: &[&str] = &["metadata", "generation"];

/// Counts a change of the fields at these paths.
pub(super) fn count_generation(paths: &[&[&str]], new: &mut Value, old: &Value) {
    if paths.iter().any(|path| at(new, path) != at(old, path)) {
        raise_generation(new, old);
    } else {
        set_at(new, GENERATION, Value::from(generation(old)));
    }
}

fn raise_generation(new: &mut Value, old: &Value) {
    set_at(new, GENERATION, Value::from(generation(old) + 1));
}

fn generation(object: &Value) -> i64 {
    at(object, GENERATION).and_then(Value::as_i64).unwrap_or(0)
}

/// Removes a field that the old object does not have.
pub(super) fn remove_unless_kept(new: &mut Value, old: &Value, path: &[&str]) {
    if at(old, path).is_none() {
        remove_at(new, path);
    }
}

/// Restores the old value at a path.
pub(super) fn carry(new: &mut Value, old: &Value, path: &[&str]) {
    match at(old, path) {
        Some(before) => {
            set_at(new, path, before.clone());
        }
        None => {
            remove_at(new, path);
        }
    }
    // A parent that only contained the removed value is removed too, as if it had not been written.
    if let [parent @ .., _] = path
        && !parent.is_empty()
        && at(new, parent).is_some()
        && at(old, parent).is_none()
        && object_at(new, parent).is_some_and(|object| object.is_empty())
    {
        remove_at(new, parent);
    }
}
