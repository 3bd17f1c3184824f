//! Validates a custom resource against its schema. Reports all errors at once, each with its path and Kubernetes'
//! message.
//!
//! Texts and order of checks follow kube-openapi's schema validation as recorded from a real server. An update is
//! validated with ratcheting: errors of values that have not changed since the stored object are not reported.

use crate::model::schema::{Additional, Bounds, List, Logic, Schema, Type};
use crate::ownership::lists;
use crate::values::embedded;
use crate::values::format;
use std::collections::HashMap;
use std::fmt::Write;
use steersman_machinery::Value;
use steersman_machinery::budget::Budget;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::{Map, type_name};

/// Further errors of one object are not reported: they are for people to read.
pub const ERRORS_MAX: usize = 1000;
/// The maximum size of the errors' texts: one error may list all values of a long `enum`.
const ERROR_BYTES_MAX: usize = 1 << 20;

/// Validates a new object.
///
/// It ends early, with the errors found so far, when the budget is exceeded: then [`Budget::check`] fails.
pub fn validate(schema: &Schema, value: &Value, budget: &Budget) -> Vec<Error> {
    let mut errors = Pass::new(None, budget).run(schema, value, None);
    embedded::validate(schema, value, &mut ErrorList { errors: &mut errors, budget });
    lists::validate(schema, value, &mut ErrorList { errors: &mut errors, budget });
    errors
}

/// Validates an update: errors of unchanged parts are not reported.
///
/// Items of a list are compared with their old values only where the list is a map. Ends early like [`validate`].
pub fn validate_update(schema: &Schema, new: &Value, old: &Value, budget: &Budget) -> Vec<Error> {
    let mut errors = Pass::new(None, budget).run(schema, new, Some(old));
    embedded::validate(schema, new, &mut ErrorList { errors: &mut errors, budget });
    let mut before = Vec::new();
    lists::validate(schema, old, &mut ErrorList { errors: &mut before, budget });
    if before.is_empty() {
        lists::validate(schema, new, &mut ErrorList { errors: &mut errors, budget });
    }
    errors
}

/// Validates a default against its schema; `path` is where the default is written.
pub(crate) fn validate_default(schema: &Schema, default: &Value, path: &Path, budget: &Budget) -> Vec<Error> {
    Pass::new(Some(path), budget).run(schema, default, None)
}

/// The errors of one object, which several walks collect.
pub(crate) struct ErrorList<'f> {
    pub(crate) errors: &'f mut Vec<Error>,
    pub(crate) budget: &'f Budget,
}

impl ErrorList<'_> {
    /// Whether to stop at a path: there are enough errors, or the budget does not allow building the path.
    pub(crate) fn is_over_at(&self, path: &Path) -> bool {
        ERRORS_MAX <= self.errors.len() || self.budget.work_on_bytes(path.as_str().len()).is_err()
    }
}

/// The errors found, and the number of matches, by which the best alternative is chosen.
#[derive(Default)]
struct Outcome {
    errors: Vec<Error>,
    /// The approximate size of the errors' texts.
    n_bytes: usize,
    n_matches: usize,
}

struct Pass<'a> {
    budget: &'a Budget,
    /// The field for errors of the value itself; none: the whole object, which has no path.
    prefix: Option<&'a Path>,
    /// The current path, as messages print it.
    path: String,
    /// The number of enclosing alternatives: the best one is chosen by its matches, so nothing in them is skipped.
    n_alternatives: usize,
}

impl<'a> Pass<'a> {
    fn new(prefix: Option<&'a Path>, budget: &'a Budget) -> Pass<'a> {
        Pass { budget, prefix, path: String::new(), n_alternatives: 0 }
    }

    fn run(mut self, schema: &Schema, value: &Value, old: Option<&Value>) -> Vec<Error> {
        self.value(schema, value, old).errors
    }

    fn value(&mut self, schema: &Schema, value: &Value, old: Option<&Value>) -> Outcome {
        let schema = schema.target();
        let mut outcome = Outcome::default();
        if self.budget.work(1).is_err() {
            return outcome;
        }
        match self.type_fault(schema, value) {
            Some(error) => outcome.push(error),
            None => outcome.n_matches += 1,
        }
        if value.is_null() {
            self.enumeration(schema, value, &mut outcome);
            return self.ratchet(outcome, value, old);
        }
        if let Some(logic) = &schema.logic {
            self.logic(logic, value, old, &mut outcome);
        }
        match value {
            Value::String(text) => self.text(schema, text, &mut outcome),
            Value::Number(number) => self.number(schema, number, &mut outcome),
            Value::Array(items) => self.list(schema, items, old, &mut outcome),
            Value::Null | Value::Bool(_) | Value::Object(_) => {}
        }
        self.enumeration(schema, value, &mut outcome);
        if let Value::Object(fields) = value {
            self.object(schema, fields, old, &mut outcome);
        }
        outcome.n_matches += 1;
        self.ratchet(outcome, value, old)
    }

    /// Drops the errors of unchanged values.
    fn ratchet(&self, mut outcome: Outcome, value: &Value, old: Option<&Value>) -> Outcome {
        if !outcome.errors.is_empty() && old == Some(value) {
            outcome.errors.clear();
            outcome.n_bytes = 0;
        }
        outcome
    }

    /// Whether to stop. Inside alternatives all errors are found, because the number of matches decides between them.
    fn is_over(&self, outcome: &Outcome) -> bool {
        (self.n_alternatives == 0 && outcome.is_full()) || self.budget.check().is_err()
    }

    // === single checks ===

    fn type_fault(&self, schema: &Schema, value: &Value) -> Option<Error> {
        let (wanted, format) = (schema.value_type, format::checked(schema));
        let have = type_name(value);
        if value.is_null() {
            let refused = wanted != Type::Any && !schema.nullable;
            return refused.then(|| self.wrong_type(wanted.name(), have));
        }
        let is_whole =
            value.as_f64().is_some_and(|float| float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_991.0);
        let fits = match wanted {
            Type::Any => format.is_none() || value.is_string() || value.is_array(),
            Type::Integer => have == "integer" || is_whole,
            Type::IntOrString => have == "string" || have == "integer" || is_whole,
            Type::Number => value.is_number(),
            // Upstream leaves a text or a list to the format, which looks at texts only.
            Type::Array | Type::Boolean | Type::Object | Type::String => {
                have == wanted.name() || (format.is_some() && (value.is_string() || value.is_array()))
            }
        };
        if fits {
            return None;
        }
        // Where there is a format, its name is reported instead of the type's, and the format of the value, if it has
        // one.
        match format {
            Some(format) if !matches!(value, Value::String(_) | Value::Array(_)) => {
                let have = match have {
                    "integer" => "int64",
                    "number" => "float64",
                    _ => "",
                };
                Some(self.wrong_type(format, have))
            }
            _ => Some(self.wrong_type(wanted.name(), have)),
        }
    }

    fn enumeration(&self, schema: &Schema, value: &Value, outcome: &mut Outcome) {
        if schema.enumeration.is_empty() || (!value.is_null() && schema.enumeration.has(value)) {
            return;
        }
        // The error lists all values.
        if self.budget.work(schema.enumeration.len()).is_err() {
            return;
        }
        let supported: Vec<String> = schema
            .enumeration
            .iter()
            .map(|each| each.as_str().map_or_else(|| each.to_string(), ToOwned::to_owned))
            .collect();
        let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
        let shown = if value.is_null() { Value::from("null") } else { value.clone() };
        outcome.push(Error::not_supported(&self.field(), shown, &supported));
    }

    fn text(&self, schema: &Schema, text: &str, outcome: &mut Outcome) {
        // Patterns, formats and lengths read the whole string.
        if self.budget.work_on_bytes(text.len()).is_err() {
            return;
        }
        let error = schema.bounds.as_deref().and_then(|bounds| self.text_bounds(bounds, text));
        outcome.extend(error);
        outcome.n_matches += 1;
        if let Some(name) = format::checked(schema).filter(|name| !format::is_match(name, text)) {
            let detail = format!("{} must be of type {name}: {text:?}", self.said());
            outcome.push(Error::type_invalid(&self.field(), text, detail));
        }
    }

    /// The first violated bound.
    fn text_bounds(&self, bounds: &Bounds, text: &str) -> Option<Error> {
        let needs_length = bounds.length_max.is_some() || bounds.length_min.is_some();
        let length = if needs_length { text.chars().count() as u64 } else { 0 };
        if let Some(max) = bounds.length_max.filter(|max| length > *max) {
            return Some(Error::too_long(&self.field(), usize::try_from(max).unwrap_or(usize::MAX)));
        }
        if let Some(min) = bounds.length_min.filter(|min| length < *min) {
            return Some(self.invalid(text, format!("should be at least {min} chars long")));
        }
        // A step reads some bytes, and a pattern reads each of them several times.
        let pattern = bounds.pattern.as_ref().filter(|_| self.budget.work(text.len()).is_ok())?;
        let pattern = Some(pattern).filter(|pattern| !pattern.is_match(text))?;
        Some(self.invalid(text, format!("should match '{}'", pattern.as_str())))
    }

    fn number(&self, schema: &Schema, number: &serde_json::Number, outcome: &mut Outcome) {
        outcome.n_matches += 1;
        outcome.extend(self.range(schema, number, "Checked"));
        let Some(bounds) = &schema.bounds else { return };
        let value = number.as_f64().unwrap_or_default();
        let wholes = |bound: &serde_json::Number| Some((number.as_i64()?, bound.as_i64()?));
        for (bound, what) in [
            (&bounds.multiple_of, "MultipleOf"),
            (&bounds.minimum, "Minimum boundary"),
            (&bounds.maximum, "Maximum boundary"),
        ] {
            outcome.extend(bound.as_ref().and_then(|bound| self.range(schema, bound, what)));
        }
        let mut refuse = |text: &str, bound: &serde_json::Number| {
            outcome.push(self.invalid(Value::Number(number.clone()), format!("{text} {}", plain(bound))));
        };
        if let Some(factor) = &bounds.multiple_of {
            let step = factor.as_f64().unwrap_or_default();
            // Upstream cuts off the fraction of the factor for a whole number, unless the type has whole numbers only.
            let is_cut = schema.value_type != Type::Integer || step.fract() == 0.0;
            let fits = match number.as_i64() {
                Some(value) if is_cut => whole(factor).is_some_and(|step| value % step == 0),
                _ if step <= 0.0 => false,
                _ => {
                    let times = if step < 1.0 { 1.0 / step * value } else { value / step };
                    (times - times.round()).abs() < 1e-9 * times.abs().max(1.0)
                }
            };
            if !fits {
                refuse("should be a multiple of", factor);
            }
        }
        if let Some(min) = &bounds.minimum {
            let order = match wholes(min) {
                Some((value, min)) => value.cmp(&min),
                None => value.total_cmp(&min.as_f64().unwrap_or_default()),
            };
            match bounds.exclusive_minimum {
                true if order.is_le() => refuse("should be greater than", min),
                false if order.is_lt() => refuse("should be greater than or equal to", min),
                true | false => {}
            }
        }
        if let Some(max) = &bounds.maximum {
            let order = match wholes(max) {
                Some((value, max)) => value.cmp(&max),
                None => value.total_cmp(&max.as_f64().unwrap_or_default()),
            };
            match bounds.exclusive_maximum {
                true if order.is_ge() => refuse("should be less than", max),
                false if order.is_gt() => refuse("should be less than or equal to", max),
                true | false => {}
            }
        }
    }

    /// The fault of a number, or of a bound for it, outside the range of its type and format.
    fn range(&self, schema: &Schema, number: &serde_json::Number, what: &str) -> Option<Error> {
        let format = format::checked(schema);
        let whole = || match number.as_i64() {
            Some(whole) => Some(whole),
            None => {
                number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9.2e18).map(|float| float as i64)
            }
        };
        let fits = match (schema.value_type, format) {
            (Type::Integer, Some("int32")) => whole().is_some_and(|whole| i32::try_from(whole).is_ok()),
            (Type::Integer, _) => whole().is_some(),
            (Type::Number, Some("float")) => number.as_f64().is_some_and(|float| float.abs() <= f64::from(f32::MAX)),
            _ => true,
        };
        if fits {
            return None;
        }
        let name = schema.value_type.name();
        let format = format.map_or("(default format)".to_owned(), |format| format!("with format {format}"));
        Some(self.whole_fault(format!("{what} value must be of type {name} {format} in {}", self.path)))
    }

    // === items and fields ===

    fn list(&mut self, schema: &Schema, items: &[Value], old: Option<&Value>, outcome: &mut Outcome) {
        if let Some(item) = schema.item() {
            let former = former_items(schema, old);
            let length = self.path.len();
            for (index, each) in items.iter().enumerate() {
                if self.is_over(outcome) {
                    break;
                }
                let _ = write!(self.path, "[{index}]");
                let inner = self.value(item, each, former(each));
                outcome.merge(inner);
                self.path.truncate(length);
            }
        }
        outcome.n_matches += 1;
        let Some(bounds) = &schema.bounds else { return };
        let size = items.len() as u64;
        if let Some(min) = bounds.items_min.filter(|min| size < *min) {
            outcome.push(self.invalid(size, format!("should have at least {min} items")));
        }
        if let Some(max) = bounds.items_max.filter(|max| size > *max) {
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            outcome.push(Error::too_many(&self.field(), items.len(), max));
        }
    }

    fn object(&mut self, schema: &Schema, fields: &Map, old: Option<&Value>, outcome: &mut Outcome) {
        let size = fields.len() as u64;
        if let Some(bounds) = &schema.bounds {
            if let Some(min) = bounds.properties_min.filter(|min| size < *min) {
                outcome.push(self.invalid(size, format!("should have at least {min} properties")));
            }
            if let Some(max) = bounds.properties_max.filter(|max| size > *max) {
                let max = usize::try_from(max).unwrap_or(usize::MAX);
                outcome.push(Error::too_many(&self.field(), fields.len(), max));
            }
        }
        let length = self.path.len();
        let is_root = length == 0;
        for (name, field) in fields {
            if self.is_over(outcome) {
                break;
            }
            let (inner, dotted) = match (schema.property(name), &schema.additional) {
                (Some(property), _) => (property, !is_root),
                (None, Additional::Of(values)) => (&**values, true),
                (None, Additional::Never) => {
                    let detail = format!("{}.{name} in body is a forbidden property", self.path);
                    outcome.push(Error::invalid(&self.field(), name.as_str(), detail));
                    continue;
                }
                (None, Additional::Any | Additional::Unsaid) => continue,
            };
            // The version that a client writes may differ from the stored one without a change of the object.
            let is_type = is_root && matches!(name.as_str(), "apiVersion" | "kind");
            let former = old.filter(|_| !is_type).and_then(|old| old.as_object()?.get(name));
            // Errors of unchanged values would be dropped, so they need not be found.
            if self.n_alternatives == 0 && former == Some(field) {
                continue;
            }
            if dotted {
                self.path.push('.');
            }
            self.path.push_str(name);
            let inner = self.value(inner, field, former);
            outcome.merge(inner);
            self.path.truncate(length);
        }
        for name in &schema.required {
            if !fields.contains_key(name.as_ref()) {
                let _ = write!(self.path, ".{name}");
                outcome.push(Error::required(&self.field(), ""));
                self.path.truncate(length);
            }
        }
    }

    // === alternatives ===

    fn logic(&mut self, logic: &Logic, value: &Value, old: Option<&Value>, outcome: &mut Outcome) {
        outcome.n_matches += 1;
        if !logic.any_of.is_empty() {
            let (n_valid, best) = self.alternatives(&logic.any_of, value, old, true);
            if n_valid == 0 {
                let detail = format!("{:?} must validate at least one schema (anyOf)", self.path);
                outcome.push(self.whole_fault(detail));
            }
            outcome.merge(best);
        }
        if !logic.one_of.is_empty() {
            let (n_valid, best) = self.alternatives(&logic.one_of, value, old, false);
            let found = match n_valid {
                0 => "Found none valid".to_owned(),
                _ => format!("Found {n_valid} valid alternatives"),
            };
            if n_valid != 1 {
                let detail = format!("{:?} must validate one and only one schema (oneOf). {found}", self.path);
                outcome.push(self.whole_fault(detail));
            }
            outcome.merge(best);
        }
        let mut n_valid = 0;
        for schema in &logic.all_of {
            let each = self.value(schema, value, old);
            n_valid += usize::from(each.errors.is_empty());
            outcome.merge(each);
        }
        if n_valid != logic.all_of.len() {
            let none = if n_valid == 0 { ". None validated" } else { "" };
            let detail = format!("{:?} must validate all the schemas (allOf){none}", self.path);
            outcome.push(self.whole_fault(detail));
        }
        if logic.not.as_deref().is_some_and(|schema| self.value(schema, value, old).errors.is_empty()) {
            outcome.push(self.whole_fault(format!("{:?} must not validate the schema (not)", self.path)));
        }
    }

    /// The number of matching alternatives, and the first that matches, or else the one that comes nearest.
    fn alternatives(
        &mut self,
        schemas: &[Schema],
        value: &Value,
        old: Option<&Value>,
        first_is_enough: bool,
    ) -> (usize, Outcome) {
        let mut n_valid = 0;
        let mut best: Option<Outcome> = None;
        self.n_alternatives += 1;
        for schema in schemas {
            let each = self.value(schema, value, old);
            if each.errors.is_empty() {
                n_valid += 1;
                if n_valid == 1 {
                    best = Some(each);
                }
                if first_is_enough {
                    break;
                }
            } else if n_valid == 0 && best.as_ref().is_none_or(|best| each.n_matches > best.n_matches) {
                best = Some(each);
            }
        }
        self.n_alternatives -= 1;
        (n_valid, best.unwrap_or_default())
    }

    // === messages ===

    /// The current field.
    fn field(&self) -> Path {
        let name = self.path.strip_prefix('.').unwrap_or(&self.path);
        match self.prefix {
            Some(prefix) if name.is_empty() => prefix.clone(),
            Some(prefix) => prefix.child(name),
            None if name.is_empty() => self.object_field(),
            None => Path::new(name),
        }
    }

    /// The path of the whole object, which has none; upstream prints the nil pointer.
    fn object_field(&self) -> Path {
        self.prefix.cloned().unwrap_or_else(|| Path::new("<nil>"))
    }

    fn said(&self) -> String {
        format!("{} in body", self.path)
    }

    fn wrong_type(&self, wanted: &str, have: &str) -> Error {
        Error::type_invalid(&self.field(), have, format!("{} must be of type {wanted}: {have:?}", self.said()))
    }

    fn invalid(&self, value: impl Into<Value>, what: impl std::fmt::Display) -> Error {
        Error::invalid(&self.field(), value, format!("{} {what}", self.said()))
    }

    /// An error that upstream does not report for a field.
    fn whole_fault(&self, detail: String) -> Error {
        Error::invalid(&self.object_field(), "", detail)
    }
}

impl Outcome {
    fn merge(&mut self, inner: Outcome) {
        self.extend(inner.errors);
        self.n_matches += inner.n_matches;
    }

    fn extend(&mut self, errors: impl IntoIterator<Item = Error>) {
        errors.into_iter().for_each(|error| self.push(error));
    }

    /// Adds an error, if there is room; there always is for the first.
    fn push(&mut self, error: Error) {
        if self.is_full() {
            return;
        }
        let value = error.value.as_ref().and_then(Value::as_str).map_or(0, str::len);
        self.n_bytes += error.field.len() + error.detail.len() + value;
        self.errors.push(error);
    }

    fn is_full(&self) -> bool {
        ERRORS_MAX <= self.errors.len() || ERROR_BYTES_MAX <= self.n_bytes
    }
}

/// A bound as Go prints it: whole numbers without a decimal point.
fn plain(bound: &serde_json::Number) -> String {
    match bound.as_f64() {
        Some(float) if bound.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => format!("{float:.0}"),
        _ => bound.to_string(),
    }
}

/// The old values of a list's items, by their keys, if the list is a map; items of other lists have none.
fn former_items<'v>(schema: &Schema, old: Option<&'v Value>) -> impl Fn(&Value) -> Option<&'v Value> {
    let keys = match (schema.list(), old) {
        (List::Map(keys), Some(_)) => keys.clone(),
        (List::Atomic | List::Map(_) | List::Set, _) => Box::default(),
    };
    let key_of = move |item: &Value| {
        let values = keys.iter().map(|key| item.get(key.as_ref()).map_or_else(String::new, Value::to_string));
        (!keys.is_empty()).then(|| values.collect::<Vec<String>>())
    };
    let former = old.and_then(Value::as_array).into_iter().flatten();
    let former: HashMap<Vec<String>, &Value> = former.filter_map(|item| Some((key_of(item)?, item))).collect();
    move |item| former.get(&key_of(item)?).copied()
}

/// Sorts the errors, for callers that print them.
pub fn sort(errors: &mut [Error]) {
    errors.sort_by_cached_key(Error::to_string);
}

/// The factor of a multiple without its fraction, if it is positive.
fn whole(factor: &serde_json::Number) -> Option<i64> {
    let cut = factor.as_i64().or_else(|| Some(factor.as_f64()? as i64))?;
    Some(cut).filter(|cut| 0 < *cut)
}
