//! A change of one place of an object.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

use crate::requests::generate;
use crate::requests::schema::Schema;

/// A field of an object or an item of a list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    Field(String),
    Item(usize),
}

/// The steps from the root to a place.
pub(crate) type Path = Vec<Step>;

#[derive(Clone, Debug)]
pub(crate) struct Mutation {
    pub(crate) path: Path,
    pub(crate) change: Change,
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Remove,
    Set(Value),
    /// Puts the item there a second time, behind itself.
    Repeat,
    /// Puts a value in front of the item there.
    Insert(Value),
}

/// A place of an object, with the schema of what is or may be there.
struct Site<'a> {
    path: Path,
    schema: Option<Schema<'a>>,
    is_there: bool,
}

// === impl Mutation ===

impl Mutation {
    /// A change somewhere in `object`.
    pub(crate) fn draw(rng: &mut StdRng, object: &Value, schema: Schema<'_>) -> Option<Mutation> {
        let mut sites = Vec::new();
        collect(object, Some(schema), &mut Vec::new(), &mut sites);
        let is_there = rng.random_bool(0.55);
        let mut of_choice: Vec<&Site<'_>> = sites.iter().filter(|site| site.is_there == is_there).collect();
        // The metadata has many fields, the same for every kind.
        if rng.random_bool(0.8) {
            of_choice.retain(|site| site.path.first() != Some(&Step::Field("metadata".to_owned())));
        }
        let site = of_choice.choose(rng)?;
        let Some(schema) = site.schema else { return Some(site.with(Change::Set(generate::wrong(rng)))) };
        let name = site.path.iter().rev().find_map(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            Step::Item(_) => None,
        });
        let name = name.unwrap_or_default();
        let is_item = matches!(site.path.last(), Some(Step::Item(_)));
        let change = match rng.random_range(0..100) {
            _ if !site.is_there && rng.random_bool(0.05) => Change::Set(generate::wrong(rng)),
            _ if !site.is_there => Change::Set(generate::value(rng, schema, name, 0)),
            0..25 => Change::Remove,
            25..40 if is_item => Change::Repeat,
            40..55 if is_item => Change::Insert(generate::value(rng, schema, name, 0)),
            55..62 => Change::Set(generate::wrong(rng)),
            62..66 => Change::Set(emptied(object, &site.path)),
            _ => Change::Set(generate::value(rng, schema, name, 0)),
        };
        Some(site.with(change))
    }

    /// Changes `object`, unless the place is gone.
    pub(crate) fn apply(&self, object: &mut Value) {
        let Some((last, way)) = self.path.split_last() else { return };
        let Some(parent) = at_mut(object, way) else { return };
        match (last, parent) {
            (Step::Field(name), Value::Object(fields)) => match &self.change {
                Change::Remove => {
                    fields.remove(name);
                }
                Change::Set(value) | Change::Insert(value) => {
                    fields.insert(name.clone(), value.clone());
                }
                Change::Repeat => {}
            },
            (Step::Item(index), Value::Array(items)) if *index < items.len() => match &self.change {
                Change::Remove => {
                    items.remove(*index);
                }
                Change::Set(value) => items[*index] = value.clone(),
                Change::Insert(value) => items.insert(*index, value.clone()),
                Change::Repeat => items.insert(*index, items[*index].clone()),
            },
            _ => {}
        }
    }
}

impl Site<'_> {
    fn with(&self, change: Change) -> Mutation {
        Mutation { path: self.path.clone(), change }
    }
}

/// The places of a value, those below it included.
fn collect<'a>(value: &Value, schema: Option<Schema<'a>>, path: &mut Path, sites: &mut Vec<Site<'a>>) {
    if !path.is_empty() {
        sites.push(Site { path: path.clone(), schema, is_there: true });
    }
    let mut absent = |name: &str, schema: Option<Schema<'a>>, path: &Path| {
        let path = [path.as_slice(), &[Step::Field(name.to_owned())]].concat();
        sites.push(Site { path, schema, is_there: false });
    };
    match value {
        Value::Object(fields) => {
            if let Some(schema) = schema {
                for (name, property) in schema.properties().filter(|(name, _)| !fields.contains_key(*name)) {
                    absent(name, Some(property), path);
                }
                if schema.node.get("additionalProperties").is_some() {
                    for key in ["a", "example.com/b", "cpu", "-", "A b"] {
                        absent(key, schema.field(key), path);
                    }
                } else if path.len() < 4 {
                    absent("unknownField", None, path);
                }
            }
            for (name, value) in fields {
                if path.is_empty() && (name == "apiVersion" || name == "kind") {
                    continue;
                }
                path.push(Step::Field(name.clone()));
                collect(value, schema.and_then(|schema| schema.field(name)), path, sites);
                path.pop();
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(Step::Item(index));
                collect(item, schema.and_then(Schema::items), path, sites);
                path.pop();
            }
        }
        _ => {}
    }
}

/// An empty value of the type that is at `path`.
fn emptied(object: &Value, path: &[Step]) -> Value {
    match at(object, path) {
        Some(Value::Array(_)) => json!([]),
        Some(Value::Object(_)) => json!({}),
        Some(Value::String(_)) => json!(""),
        Some(Value::Number(_)) => json!(0),
        _ => Value::Null,
    }
}

pub(crate) fn at<'a>(object: &'a Value, path: &[Step]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, step| match step {
        Step::Field(name) => value.get(name),
        Step::Item(index) => value.get(*index),
    })
}

fn at_mut<'a>(object: &'a mut Value, path: &[Step]) -> Option<&'a mut Value> {
    path.iter().try_fold(object, |value, step| match step {
        Step::Field(name) => value.get_mut(name),
        Step::Item(index) => value.get_mut(*index),
    })
}

/// A path as field paths are written; items are `[]` whatever their number.
pub(crate) fn display(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Field(name) if text.is_empty() => text.push_str(name),
            Step::Field(name) => text.extend([".", name]),
            Step::Item(_) => text.push_str("[]"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutation_changes_its_place_alone() {
        let object = json!({"spec": {"items": [1, 2], "a": "x"}});
        let path = |last: Step| vec![Step::Field("spec".to_owned()), Step::Field("items".to_owned()), last];
        let changed = |path: Path, change: Change| {
            let mut object = object.clone();
            Mutation { path, change }.apply(&mut object);
            object
        };
        assert_eq!(changed(path(Step::Item(0)), Change::Remove), json!({"spec": {"items": [2], "a": "x"}}));
        assert_eq!(changed(path(Step::Item(1)), Change::Repeat), json!({"spec": {"items": [1, 2, 2], "a": "x"}}));
        assert_eq!(
            changed(path(Step::Item(1)), Change::Insert(json!(7))),
            json!({"spec": {"items": [1, 7, 2], "a": "x"}})
        );
        assert_eq!(changed(path(Step::Item(9)), Change::Remove), object);
        assert_eq!(display(&path(Step::Item(1))), "spec.items[]");
    }
}
