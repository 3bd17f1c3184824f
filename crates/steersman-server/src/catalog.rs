//! What is served: every resource of every group, in all its versions, built-in and custom alike.
//!
//! A [`Catalog`] is immutable; when a definition changes, a new one is swapped in whole, so a request sees one consistent
//! set of resources from its first byte to its last. Discovery, OpenAPI, routing and the registry all read this and nothing else.

use crate::strategy::Strategy;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use steersman_machinery::{GroupKind, GroupResource, GroupVersionKind};
use steersman_schema::{JsonPath, Schema};

/// All resources served at one moment.
#[derive(Debug, Default)]
pub struct Catalog {
    groups: Vec<Group>,
    /// By group, then version.
    routes: HashMap<Box<str>, HashMap<Box<str>, Routes>>,
}

/// The resources of one version of a group, by plural.
type Routes = HashMap<Box<str>, Served>;

/// A group in discovery's order, with the versions that serve something, the preferred one first.
#[derive(Clone, Debug)]
pub struct Group {
    /// The group's name, empty for the core group.
    pub name: Box<str>,
    /// Its served versions.
    pub versions: Vec<Box<str>>,
}

/// Tells a resource from every other that was ever served by this process, its earlier forms among them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ResourceId(pub(crate) u32);

/// One resource with all its versions.
#[derive(Debug)]
pub struct Resource {
    /// Its own, from [`ResourceId::next`].
    pub id: ResourceId,
    /// The group, empty for the core group.
    pub group: Box<str>,
    /// As it stands in the path.
    pub plural: Box<str>,
    /// For people.
    pub singular: Box<str>,
    /// The kind of one object.
    pub kind: Box<str>,
    /// The kind of a list.
    pub list_kind: Box<str>,
    /// Other names that clients accept for the plural.
    pub short_names: Vec<Box<str>>,
    /// The groups of resources it belongs to for clients, such as `all`.
    pub categories: Vec<Box<str>>,
    /// Whether its objects live in namespaces.
    pub scope: Scope,
    /// The verbs, in the order in which discovery lists them.
    pub verbs: Vec<Verb>,
    /// Every version, served or not; the preferred one first.
    pub versions: Vec<Version>,
    /// The index of the version that objects are stored in.
    pub storage_version: usize,
    /// Where its objects are stored: another resource's place for two views of one thing (`events.k8s.io`).
    pub storage: GroupResource,
    /// What is particular about the kind.
    pub strategy: Arc<dyn Strategy>,
    /// Where the resource comes from.
    pub origin: Origin,
}

/// One version of a resource.
#[derive(Debug)]
pub struct Version {
    /// Such as `v1`.
    pub name: Box<str>,
    /// Whether clients may use it.
    pub served: bool,
    /// The text of the warning that users of this version get.
    pub deprecation: Option<Box<str>>,
    /// The types of its fields.
    pub schema: Arc<Schema>,
    /// The name of its definition in the OpenAPI documents.
    pub definition: Box<str>,
    /// Whether `/status` exists and the main endpoint leaves the status alone.
    pub has_status: bool,
    /// Where `/scale` reads and writes, if it exists.
    pub scale: Option<Scale>,
    /// Further subresources.
    pub subresources: Vec<Subresource>,
    /// The columns of its tables; the name is among them.
    pub columns: Vec<Column>,
    /// Fields by which lists and watches can be narrowed, beside name and namespace.
    pub selectable_fields: Vec<SelectableField>,
}

/// Whether objects live in namespaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// How requests on a resource or a subresource are handled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Handling {
    /// It takes objects of another kind and does with the object it belongs to what they say: a Binding, an Eviction.
    Connect,
    /// Its objects are kept; a subresource is a part of one.
    Stored,
    /// Its objects are answered and not kept: a review.
    Virtual,
}

/// Where a resource comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origin {
    BuiltIn,
    /// Of the definition with this name and uid; while that is being deleted nothing new can be created.
    Custom {
        definition: Box<str>,
        is_terminating: bool,
        uid: Box<str>,
    },
}

/// What can be done with a resource, in the words of discovery and authorization.
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
    /// The verbs it has.
    pub verbs: Vec<Verb>,
    /// Whether it is a part of the object, or takes objects of its own kind.
    pub handling: Handling,
}

/// Where `/scale` finds its numbers.
#[derive(Debug)]
pub struct Scale {
    /// The wanted number.
    pub spec: JsonPath,
    /// The present number.
    pub status: JsonPath,
    /// What selects the replicas.
    pub selector: Option<ScaleSelector>,
}

/// What selects the replicas of a scalable object.
#[derive(Debug)]
pub enum ScaleSelector {
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
    /// Above zero only in wide output.
    pub priority: i64,
}

/// A field that a field selector may name.
#[derive(Debug)]
pub struct SelectableField {
    /// As clients write it, such as `spec.nodeName`.
    pub name: Box<str>,
    /// Where it is.
    pub path: JsonPath,
    /// The value of an object without the field, such as `false` for `spec.unschedulable`.
    pub absent: Box<str>,
}

/// A resource in the version that a request named.
#[derive(Clone, Debug)]
pub struct Served {
    /// The resource.
    pub resource: Arc<Resource>,
    index: usize,
}

// === impl Catalog ===

impl Catalog {
    /// A catalog of resources, whose groups are listed in the order in which they first occur.
    pub fn new(resources: impl IntoIterator<Item = Arc<Resource>>) -> Catalog {
        let mut catalog = Catalog::default();
        for resource in resources {
            let at = catalog.groups.iter().position(|group| group.name == resource.group).unwrap_or_else(|| {
                catalog.groups.push(Group { name: resource.group.clone(), versions: Vec::new() });
                catalog.groups.len() - 1
            });
            for (index, version) in resource.versions.iter().enumerate().filter(|(_, version)| version.served) {
                let group = &mut catalog.groups[at];
                if !group.versions.contains(&version.name) {
                    group.versions.push(version.name.clone());
                    group.versions.sort_by(|a, b| crate::version_order::compare(a, b));
                }
                let routes = catalog.routes.entry(resource.group.clone()).or_default();
                let routes = routes.entry(version.name.clone()).or_default();
                routes.insert(resource.plural.clone(), Served { resource: resource.clone(), index });
            }
        }
        catalog.groups.retain(|group| !group.versions.is_empty());
        catalog
    }

    /// The groups that serve something, in discovery's order.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The group of a name, if it serves something.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| &*group.name == name)
    }

    /// What a path names.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Served> {
        self.routes.get(group)?.get(version)?.get(plural)
    }

    /// The resources of a group that some version serves; one that several serve comes several times.
    pub fn resources_of(&self, group: &str) -> impl Iterator<Item = &Resource> {
        let versions = self.routes.get(group).into_iter().flat_map(HashMap::values);
        versions.flat_map(HashMap::values).map(|served| &*served.resource)
    }

    /// The resources of one version of a group, by name.
    pub fn resources(&self, group: &str, version: &str) -> Vec<&Served> {
        let routes = self.routes.get(group).and_then(|versions| versions.get(version));
        let mut served: Vec<&Served> = routes.into_iter().flat_map(HashMap::values).collect();
        served.sort_by(|a, b| a.resource.plural.cmp(&b.resource.plural));
        served
    }
}

// === impl ResourceId ===

impl ResourceId {
    /// One that nothing has yet.
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

    /// How requests on it are handled.
    pub fn handling(&self) -> Handling {
        self.strategy.handling()
    }

    /// Whether it is defined by a CustomResourceDefinition.
    pub fn is_custom(&self) -> bool {
        matches!(self.origin, Origin::Custom { .. })
    }

    /// Whether its definition is being deleted, so that nothing new can be created.
    pub fn is_terminating(&self) -> bool {
        matches!(self.origin, Origin::Custom { is_terminating: true, .. })
    }
}

// === impl Served ===

impl Served {
    /// A resource in the version that its objects are stored in, served or not.
    pub fn in_storage(resource: Arc<Resource>) -> Served {
        Served { index: resource.storage_version, resource }
    }

    /// The version that was named.
    pub fn version(&self) -> &Version {
        &self.resource.versions[self.index]
    }

    /// Which of the resource's versions that is.
    pub(crate) fn index(&self) -> usize {
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

impl Verb {
    /// All that an ordinary resource can do, in the order of discovery for built-in kinds.
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

    /// The word of discovery and authorization.
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
