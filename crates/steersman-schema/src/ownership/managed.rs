//! `managedFields`: the record of the fields that each manager owns, and server-side apply, which merges by that
//! record.
//!
//! The server calls [`on_update`] for creates, updates and all patches but apply, and [`on_apply`] for apply; both
//! before mutating admission, so that fields set by admission have no owner. [`keep_times`] comes last, before storing:
//! a write that only changed times is not stored. The semantics, including the texts of conflicts, are
//! kube-apiserver's.
//!
//! Times are passed in as text. Nothing here stores, and no write fails because of its record: [`on_update`] then keeps
//! the old one.

mod apply;
mod conflict;
mod engine;
mod last_applied;
mod record;
mod renewal;
pub mod scale;
mod update;

use crate::model::schema::Schema;
use crate::ownership::fields::FieldSet;
use crate::ownership::managed::record::Record;
use crate::values::decode;
use steersman_machinery::budget::{Budget, cost};
use steersman_machinery::value;
use steersman_machinery::{GroupVersionKind, Value};

pub use crate::ownership::managed::apply::{ApplyError, OnConflict, on_apply};
pub use crate::ownership::managed::record::RecordError;
pub use crate::ownership::managed::update::on_update;

/// The work of converting a value, per item: it is copied, pruned and defaulted.
const CONVERSION_STEPS: usize = 4;

/// The kind of an object, in the version of the request.
#[derive(Clone, Copy)]
pub struct Kind<'a> {
    /// Group, version and kind of the request.
    pub gvk: &'a GroupVersionKind,
    /// The schema of this version; `Schema::default()` for a custom resource without one.
    pub schema: &'a Schema,
    /// Whether the kind is built in.
    pub origin: Origin,
    /// The reset fields of this endpoint, such as `status` on the main one. Its writers never own them.
    pub reset: &'a FieldSet,
    /// The kind in its other versions.
    pub versions: &'a dyn Versions,
    /// The budget of the request.
    pub budget: &'a Budget,
}

/// The origin of a kind, which decides what an object contains before it is created.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// Go's empty struct: `spec` and `status` exist already, so creating an object does not give them an owner.
    BuiltIn,
    /// An empty object.
    Custom,
}

/// A kind in other versions than the request's. Records are kept in the version in which they were written.
pub trait Versions {
    /// The schema of a version, such as `apps/v1`. None: it is no longer served, and records in it are dropped.
    fn schema(&self, api_version: &str) -> Option<&Schema>;

    /// Converts an object, which names its own version, to another version.
    ///
    /// # Errors
    /// When it cannot be converted, with one sentence for the client.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String>;
}

/// A kind that has only one version.
#[derive(Clone, Copy, Debug)]
pub struct OneVersion;

/// The writer: manager, subresource and time.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The field manager; empty becomes `unknown`.
    pub manager: &'a str,
    /// The subresource of the write; empty for the object itself.
    pub subresource: &'a str,
    /// Now: RFC 3339, UTC, whole seconds.
    pub time: &'a str,
}

// === impl OneVersion ===

impl Versions for OneVersion {
    fn schema(&self, _api_version: &str) -> Option<&Schema> {
        None
    }

    fn convert(&self, _object: &Value, api_version: &str) -> Result<Value, String> {
        Err(format!("no conversion to {api_version}: the kind has one version"))
    }
}

// === impl Kind ===

impl Kind<'_> {
    /// `v1`, `apps/v1`.
    fn api_version(&self) -> String {
        if self.gvk.group.is_empty() {
            return self.gvk.version.clone();
        }
        format!("{}/{}", self.gvk.group, self.gvk.version)
    }

    /// Whether a version is the one of the request.
    fn is_own(&self, api_version: &str) -> bool {
        let version = match self.gvk.group.as_str() {
            "" => Some(api_version),
            group => api_version.strip_prefix(group).and_then(|rest| rest.strip_prefix('/')),
        };
        version == Some(&*self.gvk.version)
    }

    /// The schema of a version, if it is served.
    fn schema_at(&self, api_version: &str) -> Option<&Schema> {
        if self.is_own(api_version) {
            return Some(self.schema);
        }
        self.versions.schema(api_version)
    }

    /// Converts an object to another version.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        // A record may name every served version, and the object is converted to each.
        let charged = self.budget.work(CONVERSION_STEPS.saturating_mul(cost::of(object).0));
        charged.map_err(|error| error.to_string())?;
        if value::str_at(object, &["apiVersion"]) == Some(api_version) {
            return Ok(object.clone());
        }
        self.versions.convert(object, api_version)
    }

    /// The object before it is created.
    fn nothing(&self) -> Value {
        let mut nothing = serde_json::json!({"apiVersion": self.api_version(), "kind": self.gvk.kind});
        if self.origin == Origin::BuiltIn {
            decode::normalize(self.schema, &mut nothing);
        }
        nothing
    }
}

/// Checks that the record of an object can be parsed.
///
/// # Errors
/// With the first invalid entry.
pub fn check(object: &Value) -> Result<(), RecordError> {
    Record::of(object).map(|_| ())
}

/// Keeps the times of the stored object's record, if the new object differs from it only in those times.
///
/// A repeated apply would otherwise change the object each time. `resourceVersion` is not compared.
pub fn keep_times(live: &Value, new: &mut Value) {
    const PATH: [&str; 2] = ["metadata", "managedFields"];
    let (Some(old_entries), Some(new_entries)) =
        (value::at(live, &PATH).and_then(Value::as_array), value::at(new, &PATH).and_then(Value::as_array))
    else {
        return;
    };
    // First the fields that differ in nearly every write that changes anything.
    let is_rest_equal = are_equal_but_for(live, new, &["metadata"])
        && are_equal_but_for(&live["metadata"], &new["metadata"], &["managedFields", "resourceVersion"]);
    let is_repeated = is_rest_equal
        && old_entries != new_entries
        && old_entries.len() == new_entries.len()
        && old_entries.iter().zip(new_entries).all(|(old, new)| are_equal_but_for(old, new, &["time"]));
    if is_repeated {
        let old_entries = old_entries.clone();
        value::set_at(new, &PATH, Value::Array(old_entries));
    }
}

/// Whether two values are equal, apart from some fields.
fn are_equal_but_for(a: &Value, b: &Value, aside: &[&str]) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    let counts = |(name, _): &(&String, &Value)| !aside.contains(&name.as_str());
    a.iter().filter(counts).eq(b.iter().filter(counts))
}

#[cfg(test)]
mod tests;
