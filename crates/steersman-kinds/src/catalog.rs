//! The served resources: every resource of every group, in all its versions, built-in and custom alike.
//!
//! A [`Catalog`] is immutable; when a definition changes, a new one is swapped in whole, so a request uses one
//! consistent set of resources from its first byte to its last. Discovery, OpenAPI, routing and the registry all read
//! only this.
//!
//! Catalogs share the groups and group versions that did not change, so data derived from one (see `PerGroup`) stays
//! valid for as long as the pointer is the same.

mod per_group;
pub mod scale;
pub mod version_order;

pub use crate::catalog::per_group::PerGroup;

use crate::strategy::Strategy;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use steersman_machinery::{GroupKind, GroupResource, GroupVersionKind, Value};
use steersman_schema::{JsonPath, Schema};

/// All resources served at one moment.
///
/// Catalogs share the groups that they have in common: a new one costs the groups that differ and a pointer for each of
/// the others.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Sorted by name; each group serves something.
    groups: Vec<Arc<Group>>,
}

/// A group with the versions that serve something.
#[derive(Clone, Debug)]
pub struct Group {
    /// The group's name, empty for the core group.
    pub name: Box<str>,
    /// The names of its served versions, the preferred one first.
    pub versions: Vec<Box<str>>,
    /// The served versions, in the same order.
    served: Vec<Arc<GroupVersion>>,
}

/// The resources of one version of a group. Shared by catalogs that serve the same there.
#[derive(Clone, Debug)]
pub struct GroupVersion {
    /// The group's name, empty for the core group.
    pub group: Box<str>,
    /// The version's name.
    pub name: Box<str>,
    /// The resources, sorted by plural.
    pub resources: Vec<Served>,
}

/// A change of the catalog: the custom resource of this name has changed, or is no longer served.
#[derive(Clone, Debug)]
pub struct Change {
    /// Group and plural.
    pub name: GroupResource,
    /// The new resource; `None` if it is no longer served.
    pub resource: Option<Arc<Resource>>,
}

/// Identifies a resource among all that this process has served, including resources of earlier states of the same
/// definition.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ResourceId(pub u32);

/// One resource with all its versions.
#[derive(Debug)]
pub struct Resource {
    /// Unique, from [`ResourceId::next`].
    pub id: ResourceId,
    /// The group, empty for the core group.
    pub group: Box<str>,
    /// The plural name, as in paths.
    pub plural: Box<str>,
    /// The singular name, for people.
    pub singular: Box<str>,
    /// The kind of one object.
    pub kind: Box<str>,
    /// The kind of a list.
    pub list_kind: Box<str>,
    /// Other names that clients accept for the plural.
    pub short_names: Vec<Box<str>>,
    /// The categories that clients can name instead of the resource, such as `all`.
    pub categories: Vec<Box<str>>,
    /// Whether its objects live in namespaces.
    pub scope: ResourceScope,
    /// The verbs, in the order in which discovery lists them.
    pub verbs: Vec<Verb>,
    /// Every version, served or not; the preferred one first.
    pub versions: Vec<Version>,
    /// The index of the version that objects are stored in.
    pub storage_version: usize,
    /// The resource under which its objects are stored: another one where two resources show the same objects
    /// (`events.k8s.io`).
    pub storage: GroupResource,
    /// The behaviour of the kind.
    pub strategy: Arc<dyn Strategy>,
    /// Where the resource comes from.
    pub origin: Origin,
}

/// One version of a resource.
#[derive(Debug)]
pub struct Version {
    /// The name, such as `v1`.
    pub name: Box<str>,
    /// Whether clients may use it.
    pub served: bool,
    /// The warning that users of this version get.
    pub deprecation: Option<Box<str>>,
    /// The types of its fields.
    pub schema: Arc<Schema>,
    /// The name of its definition in the OpenAPI documents.
    pub definition: Box<str>,
    /// Whether `/status` exists and the main endpoint leaves the status alone.
    pub has_status: bool,
    /// The fields that `/scale` reads and writes, if it exists.
    pub scale: Option<Scale>,
    /// Subresources other than status and scale.
    pub subresources: Vec<Subresource>,
    /// The columns of its tables; the name is among them.
    pub columns: Vec<Column>,
    /// Fields that field selectors of lists and watches may name, besides name and namespace.
    pub selectable_fields: Vec<SelectableField>,
}

/// Whether objects live in namespaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ResourceScope {
    Cluster,
    Namespaced,
}

/// How requests on a resource or a subresource are handled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Handling {
    /// Its objects are computed when they are read: the state of a part of the control plane.
    Computed,
    /// It takes an object of another kind and acts on the object in the path, such as a Binding or an Eviction.
    Connect,
    /// Its objects are stored. A stored subresource is a part of its object.
    Stored,
    /// It connects to the process that an object represents, for example to read logs: no object is sent or answered.
    Stream,
    /// Its objects are answered and not stored, such as reviews.
    Virtual,
}

/// Where a resource comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origin {
    BuiltIn,
    /// Defined by the CustomResourceDefinition with this name and uid; while that is being deleted no object can be
    /// created.
    Custom {
        definition: Box<str>,
        is_terminating: bool,
        uid: Box<str>,
    },
}

/// The verbs of discovery and authorization.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

/// A subresource other than status and scale.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// Its name in the path, such as `finalize`.
    pub name: Box<str>,
    /// The kind of its body.
    pub kind: GroupVersionKind,
    /// The verbs that it supports.
    pub verbs: Vec<Verb>,
    /// Whether it is a part of the object or takes objects of its own kind.
    pub handling: Handling,
}

/// The fields that `/scale` reads and writes.
#[derive(Debug)]
pub struct Scale {
    /// The desired number of replicas.
    pub spec: JsonPath,
    /// The current number of replicas.
    pub status: JsonPath,
    /// The field that selects the replicas.
    pub selector: Option<ScaleSelector>,
}

/// The field that selects the replicas of a scalable object.
#[derive(Debug)]
pub enum ScaleSelector {
    /// A map of labels, printed as a selector.
    Labels(JsonPath),
    /// A `LabelSelector` object, printed in its text form.
    Object(JsonPath),
    /// A string, taken as it is.
    Text(JsonPath),
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: Box<str>,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: Box<str>,
    /// `name` for the first column; a format of OpenAPI, or empty.
    pub format: Box<str>,
    pub description: Box<str>,
    /// Columns with a priority above zero are shown in wide output only.
    pub priority: i64,
}

/// A field that a field selector may name.
#[derive(Debug)]
pub struct SelectableField {
    /// The name in selectors, such as `spec.nodeName`.
    pub name: Box<str>,
    /// The path of the value.
    pub path: JsonPath,
    /// The path of the value in an object in which the first path is absent or empty.
    pub otherwise: Option<JsonPath>,
    /// The value of an object without the field, such as `false` for `spec.unschedulable`.
    pub absent: Box<str>,
}

/// A resource in the version of a request.
#[derive(Clone, Debug)]
pub struct Served {
    pub resource: Arc<Resource>,
    index: usize,
}

// === impl Catalog ===

impl Catalog {
    /// A catalog of these resources. Where a built-in and a custom resource have the same name, the built-in one is
    /// served.
    pub fn new(resources: impl IntoIterator<Item = Arc<Resource>>) -> Catalog {
        let (custom, built_in): (Vec<_>, Vec<_>) = resources.into_iter().partition(|resource| resource.is_custom());
        let mut catalog = Catalog::default();
        for resource in built_in.into_iter().chain(custom) {
            catalog.change(&Change { name: resource.group_resource(), resource: Some(resource) });
        }
        catalog
    }

    /// The next catalog. Changes do not affect built-in resources.
    #[must_use]
    pub fn after(&self, changes: &[Change]) -> Catalog {
        let mut next = self.clone();
        changes.iter().for_each(|change| next.change(change));
        next
    }

    /// The next catalog, with these resources added, built-in ones too. A resource whose name is taken is left out.
    #[must_use]
    pub fn with(&self, resources: &[Arc<Resource>]) -> Catalog {
        let mut next = self.clone();
        for resource in resources {
            let name = resource.group_resource();
            if next.resource(&name).is_none() {
                next.set(&Change { name, resource: Some(resource.clone()) });
            }
        }
        next
    }

    /// The next catalog, without exactly these resources, built-in ones too.
    #[must_use]
    pub fn without(&self, resources: &[Arc<Resource>]) -> Catalog {
        let mut next = self.clone();
        for resource in resources {
            let name = resource.group_resource();
            if next.resource(&name).is_some_and(|served| Arc::ptr_eq(served, resource)) {
                next.set(&Change { name, resource: None });
            }
        }
        next
    }

    fn change(&mut self, change: &Change) {
        if self.resource(&change.name).is_none_or(|resource| resource.is_custom()) {
            self.set(change);
        }
    }

    fn set(&mut self, change: &Change) {
        let at = self.groups.binary_search_by(|group| (*group.name).cmp(&change.name.group));
        let at = match (at, &change.resource) {
            (Ok(at), _) => at,
            (Err(_), None) => return,
            (Err(at), Some(_)) => {
                self.groups.insert(at, Arc::new(Group::new(&change.name.group)));
                at
            }
        };
        // Copies the group unless an earlier change of the same batch has copied it.
        Arc::make_mut(&mut self.groups[at]).set(&change.name.resource, change.resource.as_ref());
        if self.groups[at].versions.is_empty() {
            self.groups.remove(at);
        }
    }

    /// The groups that serve something, sorted by name.
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// The group of this name, if it serves something.
    pub fn group(&self, name: &str) -> Option<&Arc<Group>> {
        let at = self.groups.binary_search_by(|group| (*group.name).cmp(name)).ok()?;
        Some(&self.groups[at])
    }

    /// The resource of this name, in any version in which it is served.
    pub fn resource(&self, name: &GroupResource) -> Option<&Arc<Resource>> {
        let mut versions = self.group(&name.group)?.served().iter();
        versions.find_map(|version| version.find(&name.resource)).map(|served| &served.resource)
    }

    /// The resource at a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Served> {
        self.group(group)?.version(version)?.find(plural)
    }

    /// The served resources of a group; a resource that several versions serve is returned several times.
    pub fn resources_of(&self, group: &str) -> impl Iterator<Item = &Resource> {
        let versions = self.group(group).into_iter().flat_map(|group| group.served());
        versions.flat_map(|version| &version.resources).map(|served| &*served.resource)
    }

    /// The resources of one version of a group, sorted by name.
    pub fn resources(&self, group: &str, version: &str) -> &[Served] {
        self.group(group).and_then(|group| group.version(version)).map_or(&[], |version| &version.resources)
    }
}

// === impl Group, GroupVersion ===

impl Group {
    fn new(name: &str) -> Group {
        Group { name: name.into(), versions: Vec::new(), served: Vec::new() }
    }

    /// The served versions, the preferred one first.
    pub fn served(&self) -> &[Arc<GroupVersion>] {
        &self.served
    }

    /// The version of this name, if it serves something.
    pub fn version(&self, name: &str) -> Option<&Arc<GroupVersion>> {
        self.served.iter().find(|version| *version.name == *name)
    }

    /// Whether some of its resources are built in.
    pub fn has_built_in(&self) -> bool {
        self.served.iter().any(|version| version.has_built_in())
    }

    fn set(&mut self, plural: &str, resource: Option<&Arc<Resource>>) {
        for version in &mut self.served {
            if let Ok(at) = version.position(plural) {
                Arc::make_mut(version).resources.remove(at);
            }
        }
        let versions = resource
            .into_iter()
            .flat_map(|resource| resource.versions.iter().enumerate().zip(std::iter::repeat(resource)));
        for ((index, version), resource) in versions.filter(|((_, version), _)| version.served) {
            let served = Served { resource: resource.clone(), index };
            let group_version = match self.served.iter_mut().find(|group_version| group_version.name == version.name) {
                Some(group_version) => group_version,
                None => {
                    let (group, name) = (self.name.clone(), version.name.clone());
                    self.served.push(Arc::new(GroupVersion { group, name, resources: Vec::new() }));
                    self.served.last_mut().expect("invariant: it was pushed above")
                }
            };
            if let Err(at) = group_version.position(plural) {
                Arc::make_mut(group_version).resources.insert(at, served);
            }
        }
        self.served.retain(|version| !version.resources.is_empty());
        self.served.sort_by(|a, b| version_order::compare(&a.name, &b.name));
        self.versions = self.served.iter().map(|version| version.name.clone()).collect();
    }
}

impl GroupVersion {
    /// The resource of this plural.
    pub fn find(&self, plural: &str) -> Option<&Served> {
        self.position(plural).ok().map(|at| &self.resources[at])
    }

    /// Whether some of its resources are built in.
    pub fn has_built_in(&self) -> bool {
        self.resources.iter().any(|served| !served.resource.is_custom())
    }

    fn position(&self, plural: &str) -> Result<usize, usize> {
        self.resources.binary_search_by(|served| (*served.resource.plural).cmp(plural))
    }
}

// === impl ResourceId ===

impl ResourceId {
    /// A new, unique id.
    pub fn next() -> ResourceId {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        ResourceId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

// === impl Resource ===

impl Resource {
    /// Group and plural, as errors name it.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&*self.group, &*self.plural)
    }

    /// Group and kind, as validation errors name it.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind::new(&*self.group, &*self.kind)
    }

    /// The version that objects are stored in.
    pub fn storage_version(&self) -> &Version {
        &self.versions[self.storage_version]
    }

    /// How requests on the resource are handled.
    pub fn handling(&self) -> Handling {
        self.strategy.handling()
    }

    /// Whether the resource is defined by a CustomResourceDefinition.
    pub fn is_custom(&self) -> bool {
        matches!(self.origin, Origin::Custom { .. })
    }

    /// Whether its definition is being deleted, so that no object can be created.
    pub fn is_terminating(&self) -> bool {
        matches!(self.origin, Origin::Custom { is_terminating: true, .. })
    }
}

// === impl SelectableField ===

impl SelectableField {
    /// The paths from which the text of the field is computed.
    pub fn paths(&self) -> impl Iterator<Item = &JsonPath> {
        std::iter::once(&self.path).chain(&self.otherwise)
    }

    /// The text that selectors compare: the text of the field in an object of its version.
    pub fn text<'a>(&'a self, object: &'a Value) -> Cow<'a, str> {
        let is_something = |found: &&Value| !found.is_null() && found.as_str() != Some("");
        let otherwise = || self.otherwise.as_ref()?.get(object);
        match self.path.get(object).filter(is_something).or_else(otherwise) {
            None | Some(Value::Null) => Cow::Borrowed(&self.absent),
            Some(Value::String(text)) => Cow::Borrowed(text),
            Some(other) => Cow::Owned(other.to_string()),
        }
    }
}

// === impl Served ===

impl Served {
    /// A resource in the version that its objects are stored in, served or not.
    pub fn in_storage(resource: Arc<Resource>) -> Served {
        Served { index: resource.storage_version, resource }
    }

    /// The version of the request.
    pub fn version(&self) -> &Version {
        &self.resource.versions[self.index]
    }

    /// The index of the version among those of the resource.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Group, version and kind of one object.
    pub fn kind(&self) -> GroupVersionKind {
        GroupVersionKind::new(&*self.resource.group, &*self.version().name, &*self.resource.kind)
    }

    /// The `apiVersion` of one object.
    pub fn api_version(&self) -> String {
        self.kind().api_version()
    }
}

// === impl Verb ===

impl Version {
    /// Whether its tables have the columns of kinds without any of their own: the name and the time of the creation.
    pub fn has_plain_columns(&self) -> bool {
        matches!(&*self.columns, [_, created] if &*created.name == "Created At")
    }
}

impl Verb {
    /// All verbs of an ordinary resource, in the order of discovery for built-in kinds.
    pub const ALL: [Verb; 8] = [
        Verb::Create,
        Verb::Delete,
        Verb::DeleteCollection,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Update,
        Verb::Watch,
    ];

    /// The name in discovery and authorization.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Patch => "patch",
            Verb::Update => "update",
            Verb::Watch => "watch",
        }
    }
}

#[cfg(test)]
mod tests;
