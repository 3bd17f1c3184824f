//! The resources that objects may be of: the built-in ones, and those that definitions in the dump define.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use steersman_kinds::builtin;
use steersman_kinds::catalog::{Handling, Resource};
use steersman_kinds::crd;
use steersman_kinds::runtime_config::RuntimeConfig;
use steersman_machinery::Value;
use steersman_machinery::value::{at, str_at};
use steersman_schema::Edition;

/// The resources of a dump.
#[derive(Debug)]
pub(super) struct Kinds {
    by_kind: HashMap<(String, String), Target>,
    built_in: Vec<Arc<Resource>>,
    /// The names of the definitions in the dump.
    definitions: HashSet<String>,
}

/// The resource of an object.
#[derive(Clone, Debug)]
pub(super) enum Target {
    BuiltIn(Arc<Resource>),
    Defined(Arc<Defined>),
}

/// A resource with a definition, which is in the dump or made up.
#[derive(Debug)]
pub(super) struct Defined {
    pub(super) group: String,
    pub(super) plural: String,
    pub(super) is_namespaced: bool,
    /// The `apiVersion` in which objects are stored, if nobody has to be asked for the conversion to it.
    pub(super) stored_as: Option<String>,
    /// `None` if its definition cannot be used; then the objects have no fields to be selected by.
    pub(super) resource: Option<Arc<Resource>>,
}

impl Kinds {
    /// The built-in kinds.
    pub(super) fn new(config: &RuntimeConfig) -> Kinds {
        let built_in: Vec<_> = builtin::resources(config).into_iter().chain([crd::resource()]).collect();
        let by_kind = built_in.iter().map(|resource| {
            ((resource.group.to_string(), resource.kind.to_string()), Target::BuiltIn(resource.clone()))
        });
        // A virtual kind and a stored one may have one name: the stored one counts.
        let mut all: Vec<_> = by_kind.collect();
        all.sort_by_key(
            |(_, target)| matches!(target, Target::BuiltIn(resource) if resource.handling() == Handling::Stored),
        );
        Kinds { by_kind: all.into_iter().collect(), built_in, definitions: HashSet::new() }
    }

    /// The resource of a kind.
    pub(super) fn of(&self, group: &str, kind: &str) -> Option<&Target> {
        self.by_kind.get(&(group.to_owned(), kind.to_owned()))
    }

    /// The built-in resource that has this name, or one like it. Without a group, the core group comes first.
    pub(super) fn named(&self, name: &str, group: Option<&str>) -> Option<&Arc<Resource>> {
        let mut found = self.built_in.iter().filter(|resource| {
            let is_named = *resource.plural == *name || *resource.singular == *name;
            is_named && resource.handling() == Handling::Stored && group.is_none_or(|group| *resource.group == *group)
        });
        found.next()
    }

    /// Whether a resource has a definition in the dump, or is built in.
    pub(super) fn has(&self, group: &str, plural: &str) -> bool {
        self.definitions.contains(&format!("{plural}.{group}")) || self.named(plural, Some(group)).is_some()
    }

    /// Takes note of a definition, in either of its versions.
    pub(super) fn learn(&mut self, definition: &Value) {
        let text = |path: &[&str]| str_at(definition, path).unwrap_or_default().to_owned();
        let (group, plural, kind) =
            (text(&["spec", "group"]), text(&["spec", "names", "plural"]), text(&["spec", "names", "kind"]));
        self.definitions.insert(format!("{plural}.{group}"));
        let schema = &|_: &str| Some(Arc::default());
        let resource = crd::custom_resources_with(definition, Edition::Kubernetes, schema, None).ok();
        let converts = matches!(&*text(&["spec", "conversion", "strategy"]), "" | "None");
        let storage = resource.as_ref().filter(|_| converts).map(|resource| resource.storage_version().name.clone());
        let stored_as = storage.map(|version| format!("{group}/{version}"));
        let is_namespaced = text(&["spec", "scope"]) != "Cluster";
        let defined = Defined { group: group.clone(), plural, is_namespaced, stored_as, resource };
        self.by_kind.entry((group, kind)).or_insert(Target::Defined(Arc::new(defined)));
    }
}

/// The group and the version of an `apiVersion`.
pub(super) fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Whether an object is a definition.
pub(super) fn is_definition(api_version: &str, kind: &str) -> bool {
    split(api_version).0 == crd::GROUP && kind == "CustomResourceDefinition"
}

/// Whether a definition names its versions as `v1` does.
pub(super) fn has_versions(definition: &Value) -> bool {
    at(definition, &["spec", "versions"]).is_some_and(Value::is_array)
}
