//! Validates defaults against their own schema.

use crate::model::schema::Schema;
use crate::model::structural::{DefaultOf, JudgeDefault};
use crate::values::embedded;
use crate::values::prune;
use crate::values::validate;
use crate::values::validate::ErrorList;
use steersman_machinery::Value;
use steersman_machinery::budget::{Budget, cost};
use steersman_machinery::field::{self, Error, Path};
use steersman_machinery::value::Map;

/// The steps that copying a value of a default and walking through it take, beside validation.
const LOOKS: usize = 20;

/// Judges every default of a definition.
pub(crate) fn check(schema: &Schema, path: &Path, judging: Judging<'_, '_>, errors: &mut Vec<Error>) {
    let mut around = Surroundings { resource_root: true, way: Vec::new(), meta: false };
    Defaults { judging, errors }.of(schema, path, &mut around);
}

/// How defaults are judged beyond their schemas, and within what.
pub(crate) struct Judging<'d, 'j> {
    pub(crate) budget: &'d Budget,
    pub(crate) judge: &'d mut JudgeDefault<'j>,
}

/// The walk through a definition.
struct Defaults<'d, 'j> {
    judging: Judging<'d, 'j>,
    errors: &'d mut Vec<Error>,
}

/// The resource around a default, which must be valid once the default is set.
struct Surroundings {
    /// Whether no embedded resource has been entered.
    resource_root: bool,
    way: Vec<Option<String>>,
    meta: bool,
}

impl Surroundings {
    /// A resource that contains only this default.
    fn around(&self, default: &Value) -> Value {
        let wrapped = self.way.iter().rev().fold(default.clone(), |inner, step| match step {
            Some(name) => Value::Object(Map::from_iter([(name.clone(), inner)])),
            None => Value::Array(vec![inner]),
        });
        let mut resource = wrapped;
        if let Some(fields) = resource.as_object_mut() {
            fields.entry("kind").or_insert_with(|| Value::from("Validation"));
            fields.entry("apiVersion").or_insert_with(|| Value::from("validation/v1"));
        }
        resource
    }
}

impl Defaults<'_, '_> {
    fn of(&mut self, schema: &Schema, path: &Path, around: &mut Surroundings) {
        let is_resource = schema.embedded_resource || (around.resource_root && around.way.is_empty());
        let budget = self.judging.budget;
        // A default is copied and walked through for itself, and again as a part of each default around it.
        let is_affordable = |default: &Value| budget.work(cost::of(default).0 * LOOKS + around.way.len()).is_ok();
        if let Some(default) = schema.default.as_ref().filter(|default| is_affordable(default)) {
            let path = path.child("default");
            let mut faults = Vec::new();
            if around.meta {
                let resource = around.around(default);
                if let Some(fields) = resource.as_object() {
                    embedded::resource(fields, &Path::root(), &mut faults);
                }
                if !faults.is_empty() {
                    let detail = format!("must result in valid metadata: {}", field::join(&faults));
                    faults = vec![Error::invalid(&path, default.clone(), detail)];
                }
            } else {
                let mut pruned = default.clone();
                prune::prune_value(schema, &mut pruned);
                if pruned != *default {
                    self.errors.push(Error::invalid(&path, default.clone(), "must not have unknown fields"));
                }
                embedded::look(schema, default, &path, &mut ErrorList { errors: &mut faults, budget });
            }
            if faults.is_empty() {
                faults = validate::validate_default(schema, default, &path, budget);
            }
            if faults.is_empty() {
                let default_of = if is_resource { DefaultOf::Resource } else { DefaultOf::Field };
                faults = (self.judging.judge)(schema, default, &path, default_of);
            }
            self.errors.extend(faults);
        }
        if schema.embedded_resource {
            let mut inner = Surroundings { resource_root: false, way: Vec::new(), meta: false };
            return self.inside(schema, path, &mut inner, true);
        }
        self.inside(schema, path, around, is_resource);
    }

    /// Descends into the schema, but not into `additionalProperties`, where upstream does not check defaults either.
    fn inside(&mut self, schema: &Schema, path: &Path, around: &mut Surroundings, is_resource: bool) {
        if let Some(item) = schema.items.as_deref() {
            around.way.push(None);
            self.of(item, &path.child("items"), around);
            around.way.pop();
        }
        let was_meta = around.meta;
        for (name, property) in schema.properties.iter() {
            around.meta = was_meta || (is_resource && matches!(name, "apiVersion" | "kind" | "metadata"));
            around.way.push(Some(name.to_owned()));
            self.of(property, &path.child("properties").key(name), around);
            around.way.pop();
        }
        around.meta = was_meta;
    }
}
