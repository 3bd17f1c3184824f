//! The names that definitions claim in their groups, and an index of their owners.

use crate::catalog::Catalog;
use crate::crd::{text, texts};
use serde_json::{Map, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use steersman_machinery::Value;

/// The names of a definition: those in its spec, or the accepted ones in its status.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Names {
    /// The group in which they are unique.
    pub group: String,
    /// The plural name, as in paths.
    pub plural: String,
    /// The singular name, for people.
    pub singular: String,
    /// Other names for the plural.
    pub short_names: Vec<String>,
    /// The kind of one object.
    pub kind: String,
    /// The kind of a list.
    pub list_kind: String,
    /// The categories that clients can name instead of the resource.
    pub categories: Vec<String>,
}

impl Names {
    /// The names that a definition (in the internal form) asks for.
    pub fn requested(definition: &Value) -> Names {
        Names::at(definition, &["spec", "names"])
    }

    /// The accepted names of a definition, which no other can have.
    pub fn accepted(definition: &Value) -> Names {
        Names::at(definition, &["status", "acceptedNames"])
    }

    fn at(definition: &Value, path: &[&str]) -> Names {
        let names = steersman_machinery::value::at(definition, path).unwrap_or(&Value::Null);
        let one = |key: &str| text(names, &[key]).to_owned();
        let many = |key: &str| texts(names, &[key]).into_iter().map(str::to_owned).collect();
        Names {
            group: text(definition, &["spec", "group"]).to_owned(),
            plural: one("plural"),
            singular: one("singular"),
            short_names: many("shortNames"),
            kind: one("kind"),
            list_kind: one("listKind"),
            categories: many("categories"),
        }
    }

    pub fn to_value(&self) -> Value {
        let mut names = Map::new();
        names.insert("plural".to_owned(), json!(self.plural));
        names.insert("kind".to_owned(), json!(self.kind));
        for (key, name) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !name.is_empty() {
                names.insert(key.to_owned(), json!(name));
            }
        }
        for (key, more) in [("shortNames", &self.short_names), ("categories", &self.categories)] {
            if !more.is_empty() {
                names.insert(key.to_owned(), json!(more));
            }
        }
        Value::Object(names)
    }

    /// The resource names: each is unique among the resources of the group.
    fn of_resource(&self) -> impl Iterator<Item = &str> {
        [&self.plural, &self.singular].into_iter().chain(&self.short_names).map(String::as_str)
    }

    /// The kinds: each is unique among the resources of the group.
    fn of_kind(&self) -> impl Iterator<Item = &str> {
        [&self.kind, &self.list_kind].into_iter().map(String::as_str)
    }
}

/// The names in use in each group: those of built-in kinds, and the accepted names of every definition.
///
/// The cost of a lookup does not depend on the number of definitions.
#[derive(Clone, Debug, Default)]
pub struct NameIndex {
    groups: HashMap<String, GroupNames>,
}

/// The names in one group. Normally a name has one owner, but after a change of the built-in kinds, or in a store
/// written under other rules, it may have several.
#[derive(Clone, Debug, Default)]
struct GroupNames {
    built_in_plurals: BTreeSet<String>,
    resources: BTreeMap<String, Vec<Owner>>,
    kinds: BTreeMap<String, Vec<Owner>>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Owner {
    BuiltIn,
    /// The definition of this name.
    Definition(Box<str>),
}

/// The names of all other definitions in the group of one.
#[derive(Clone, Copy, Debug)]
pub struct NameChecker<'a> {
    group: Option<&'a GroupNames>,
    definition: &'a str,
}

impl NameIndex {
    /// The names of the built-in kinds of a catalog.
    pub fn of_built_in(catalog: &Catalog) -> NameIndex {
        let mut index = NameIndex::default();
        let all = catalog.groups().iter().flat_map(|group| catalog.resources_of(&group.name));
        for resource in all.filter(|resource| !resource.is_custom()) {
            let names = Names {
                group: resource.group.to_string(),
                plural: resource.plural.to_string(),
                singular: resource.singular.to_string(),
                short_names: resource.short_names.iter().map(ToString::to_string).collect(),
                kind: resource.kind.to_string(),
                list_kind: resource.list_kind.to_string(),
                categories: Vec::new(),
            };
            index.groups.entry(names.group.clone()).or_default().built_in_plurals.insert(names.plural.clone());
            index.add(&Owner::BuiltIn, &names);
        }
        index
    }

    /// Adds the names of a definition.
    pub fn insert(&mut self, definition: &str, names: &Names) {
        self.add(&Owner::Definition(definition.into()), names);
    }

    /// Removes the names of a definition.
    pub fn remove(&mut self, definition: &str, names: &Names) {
        let owner = Owner::Definition(definition.into());
        let Some(group) = self.groups.get_mut(&names.group) else { return };
        names.of_resource().for_each(|name| GroupNames::remove(&mut group.resources, name, &owner));
        names.of_kind().for_each(|name| GroupNames::remove(&mut group.kinds, name, &owner));
        if group.resources.is_empty() && group.kinds.is_empty() {
            self.groups.remove(&names.group);
        }
    }

    pub fn checker<'a>(&'a self, group: &str, definition: &'a str) -> NameChecker<'a> {
        NameChecker { group: self.groups.get(group), definition }
    }

    fn add(&mut self, owner: &Owner, names: &Names) {
        let group = self.groups.entry(names.group.clone()).or_default();
        names.of_resource().for_each(|name| GroupNames::add(&mut group.resources, name, owner));
        names.of_kind().for_each(|name| GroupNames::add(&mut group.kinds, name, owner));
    }
}

impl GroupNames {
    fn add(names: &mut BTreeMap<String, Vec<Owner>>, name: &str, owner: &Owner) {
        if name.is_empty() {
            return;
        }
        let owners = names.entry(name.to_owned()).or_default();
        if !owners.contains(owner) {
            owners.push(owner.clone());
        }
    }

    fn remove(names: &mut BTreeMap<String, Vec<Owner>>, name: &str, owner: &Owner) {
        if let Some(owners) = names.get_mut(name) {
            owners.retain(|one| one != owner);
            if owners.is_empty() {
                names.remove(name);
            }
        }
    }
}

impl NameChecker<'_> {
    /// Whether a built-in resource has this plural: then no definition of it is ever accepted.
    pub fn is_built_in(&self, plural: &str) -> bool {
        self.group.is_some_and(|group| group.built_in_plurals.contains(plural))
    }

    /// Whether a definition can get this name of a resource; it keeps names in `given`, which it has already.
    pub fn is_resource_free(&self, name: &str, given: &[&str]) -> bool {
        self.is_free(self.group.and_then(|group| group.resources.get(name)), given.contains(&name))
    }

    /// Like [`NameChecker::is_resource_free`], for a kind.
    pub fn is_kind_free(&self, name: &str, given: &[&str]) -> bool {
        self.is_free(self.group.and_then(|group| group.kinds.get(name)), given.contains(&name))
    }

    /// A definition keeps its accepted names, except against a built-in kind.
    fn is_free(&self, owners: Option<&Vec<Owner>>, is_given: bool) -> bool {
        owners.into_iter().flatten().all(|owner| match owner {
            Owner::BuiltIn => false,
            Owner::Definition(name) => is_given || **name == *self.definition,
        })
    }
}
