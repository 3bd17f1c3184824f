//! The fields by which custom resources are selected: the header of an object has them in Steersman's form, and its definition names them.
//! `values` takes note of each definition that it reads.

use parking_lot::RwLock;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use steersman_kinds::catalog::Resource;
use steersman_kinds::crd;
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};
use steersman_schema::Edition;

/// The kinds of the definitions that have been read, as far as they have fields to select by.
#[derive(Debug, Default)]
pub(crate) struct Definitions(RwLock<HashMap<String, Known>>);

#[derive(Debug)]
struct Known {
    state: State,
    /// `None` if the kind has no such fields.
    resource: Option<Arc<Resource>>,
}

/// A state of a definition.
#[derive(Debug, Eq, PartialEq)]
struct State {
    created: String,
    generation: i64,
    uid: String,
}

impl State {
    /// Whether it is later than another one, in whatever order they are read: old states are read too, for lists at an old revision.
    fn is_after(&self, other: &State) -> bool {
        if self.uid == other.uid { other.generation < self.generation } else { other.created <= self.created }
    }
}

/// The parts of a definition by which its objects are selected. Kinds are kept here for ever, since nothing says that a definition was
/// deleted, so the rest, above all the schemas, is left out.
fn of_selection(definition: &Value) -> Value {
    let without = |object: Option<&Value>, left_out: &[&str]| {
        let fields = object.and_then(Value::as_object).into_iter().flatten();
        let kept = fields.filter(|(name, _)| !left_out.contains(&name.as_str()));
        Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    let mut spec = without(definition.get("spec"), &["versions"]);
    let versions = at(definition, &["spec", "versions"]).and_then(Value::as_array).into_iter().flatten();
    spec["versions"] =
        versions.map(|version| without(Some(version), &["schema", "additionalPrinterColumns"])).collect();
    let name = at(definition, &["metadata", "name"]);
    json!({"metadata": {"name": name}, "spec": spec, "status": without(definition.get("status"), &["conditions"])})
}

impl Definitions {
    /// Takes note of a definition in its stored form.
    pub(crate) fn learn(&self, definition: &Value) {
        let text = |path: &[&str]| str_at(definition, path).unwrap_or_default();
        let kind = format!("{}/{}", text(&["spec", "group"]), text(&["spec", "names", "plural"]));
        let generation = at(definition, &["metadata", "generation"]).and_then(Value::as_i64);
        let state = State {
            created: text(&["metadata", "creationTimestamp"]).to_owned(),
            generation: generation.unwrap_or_default(),
            uid: text(&["metadata", "uid"]).to_owned(),
        };
        if self.0.read().get(&kind).is_some_and(|known| !state.is_after(&known.state)) {
            return;
        }
        let versions = at(definition, &["spec", "versions"]).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let has_fields = |version: &Value| at(version, &["selectableFields"]).and_then(Value::as_array).is_some();
        let resource = || {
            let schema = &|_: &str| Some(Arc::default());
            crd::custom_resources_with(&of_selection(definition), Edition::Kubernetes, schema, None).ok()
        };
        let resource = if versions.iter().any(has_fields) { resource() } else { None };
        self.0.write().insert(kind, Known { state, resource });
    }

    /// The kind of a resource, given as `group/plural`, if it has fields to select by.
    pub(crate) fn find(&self, resource: &str) -> Option<Arc<Resource>> {
        self.0.read().get(resource)?.resource.clone()
    }
}
