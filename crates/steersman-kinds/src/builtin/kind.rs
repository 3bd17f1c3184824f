//! A built-in kind as a row of data: its names, its versions, and the functions that only this kind needs.
//!
//! Rows are constants that start from [`Kind::NAMESPACED`] or [`Kind::CLUSTER`] and [`Version::V1`] and say only what
//! differs.

use crate::builtin::built_in::BuiltIn;
use crate::builtin::rules::rule::Rule;
use crate::catalog::{self, Handling, Origin, Resource, ResourceId, ResourceScope, Verb};
use crate::runtime_config::{RuntimeConfig, VersionedResource};
use crate::strategy::{Grace, Propagation, Rules};
use crate::user::User;
use jiff::Timestamp;
use std::sync::Arc;
use steersman_machinery::{GroupResource, GroupVersionKind, Value, name};
use steersman_schema::json_path::JsonPath;
use steersman_schema::{Edition, Schema};

/// The reset fields of `/status` of the kinds whose metadata such a write leaves alone too (upstream's `ResetObjectMetaForStatus`).
pub(super) const SPEC_AND_METADATA: &[&[&str]] = &[
    &["spec"],
    &["metadata", "annotations"],
    &["metadata", "finalizers"],
    &["metadata", "labels"],
    &["metadata", "ownerReferences"],
];

/// The rules of most kinds.
pub(super) const RULES: Rules = Rules {
    creates_on_update: false,
    updates_unconditionally: true,
    propagation: Propagation::Background,
    grace: Grace::None,
    returns_deleted: false,
    warns_on_update: true,
    warns_of_orphans: false,
    requires_qualified_finalizers: true,
    validates_generate_name: true,
    validates_generate_name_on_update: true,
};

/// One built-in kind of one group.
pub struct Kind {
    pub group: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub scope: ResourceScope,
    pub verbs: &'static [Verb],
    /// Whether its objects are stored, or only answered.
    pub handling: Handling,
    /// The versions, the preferred one first.
    pub versions: &'static [Version],
    /// Versions of the same form as the first one, which are served where `--runtime-config` asks for them.
    pub aliases: &'static [Alias],
    /// The definition of the internal form, in which objects are stored and passed to the functions below; empty: the
    /// definition of the first version.
    pub internal: &'static str,
    /// The group in which its objects are stored, where that is another group (`events.k8s.io`).
    pub stored_in_group: Option<&'static str>,
    /// The fields whose changes raise the generation; empty: the kind has no generation.
    pub generation: &'static [&'static [&'static str]],
    /// The state of an update whose changes of these fields raise the generation.
    pub counts: Counts,
    /// The reset fields of the main endpoint; empty: the status, where there is one.
    pub main_leaves: &'static [&'static [&'static str]],
    /// The reset fields of `/status`, which such a write does not change either.
    pub status_leaves: &'static [&'static [&'static str]],
    /// The reset fields of another stored subresource, which such a write does not change either.
    pub other_leaves: &'static [&'static [&'static str]],
    /// Whether a client may give the status of a new object.
    pub new_status: NewStatus,
    pub rules: Rules,
    pub name_faults: fn(&str) -> Vec<String>,
    /// The path of a pod's spec; empty: the kind has none.
    pub pod_spec: &'static [&'static str],
    /// The object with further fields that its writer owns besides those that were sent; `None` if there are none.
    pub completed_for_owners: fn(&Value) -> Option<Value>,
    /// Gives an object that a kube-apiserver has stored the fields that it shows when it reads one, besides the defaults.
    pub adopt: fn(&mut Value),
    /// Sets the status of a new object, which is empty before, and other fields that only the server may set.
    pub prepare_create: fn(&mut Value),
    /// Copies from the old object the fields that an update of the main endpoint must not change. The status is already
    /// copied.
    pub prepare_update: fn(&mut Value, &Value),
    /// Copies from the old object the fields that an update of `/status` must not change, besides `status_leaves`.
    pub prepare_status: fn(&mut Value, &Value),
    /// Copies from the old object the fields that an update through another subresource must not change, besides
    /// `other_leaves`.
    pub prepare_other: fn(&mut Value, &Value),
    /// Records in a new object the user who creates it.
    pub set_creator: fn(&mut Value, &User),
    /// Sets the times that the client left out; the old object is null for a new one.
    pub set_times: fn(&mut Value, &Value, &str),
    /// Copies from the old object the fields that an update through `/resize` must not change.
    pub prepare_resize: fn(&mut Value, &Value),
    /// Changes an object whose deletion is requested, beyond its metadata.
    pub prepare_delete: fn(&mut Value),
    /// The writes through the main endpoint that compile the expressions in CEL of an object, for which the budget is charged.
    pub compiles: Compiles,
    /// The number by which the rows of its tables are sorted, and then by name; empty: by name alone.
    pub rows_ordered_by: &'static [&'static str],
    /// The rules of new objects and of updates through the main endpoint, in the order of upstream's errors.
    pub validate: &'static [Rule],
    /// The rules of updates through `/status`.
    pub validate_status: &'static [Rule],
    /// The rules of updates through `/resize`.
    pub validate_resize: &'static [Rule],
    /// The rules of updates through another stored subresource; `None`: those of the main endpoint.
    pub validate_other: Option<&'static [Rule]>,
    /// The warnings for the writer of a valid object, besides those about its template of a pod; the old object is null for a new one.
    pub warnings: fn(&Value, &Value) -> Vec<String>,
}

/// The writes that compile the expressions of an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Compiles {
    /// All of them.
    Always,
    /// The creation: its expressions do not change later.
    Created,
    /// The kind has no expressions.
    Never,
}

/// The state of an update that is compared with the old object to count its generation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counts {
    /// The body as it was sent: an empty list differs from an absent one.
    Exactly,
    /// The decoded body with the fields that are dropped before it is stored.
    Sent,
    /// The object that is stored.
    Stored,
}

/// Whether a client may give the status of a new object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NewStatus {
    /// It is empty: a status sent by the client is dropped.
    Empty,
    /// The client gives it.
    Given,
}

/// One version of a kind.
pub struct Version {
    pub name: &'static str,
    /// The schema crate's name of the definition.
    pub definition: &'static str,
    pub has_status: bool,
    /// The warning that every request gets; empty: none.
    pub deprecation: &'static str,
    pub scale: Option<&'static Scale>,
    pub subresources: &'static [Subresource],
    pub columns: &'static [Column],
    pub cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// The conditions of an object's row in a table, such as that a pod has ended.
    pub row_conditions: fn(&Value) -> Vec<Value>,
    /// The paths from which the cells are computed, as [`Projection::of`](crate::projection::Projection::of) reads
    /// them; empty: the whole object.
    pub cells_read: &'static [&'static str],
    pub fields: &'static [SelectableField],
    /// The annotations that stand for fields of the internal form.
    pub annotations: &'static [&'static str],
    /// The reason why a decoded object cannot be converted to the internal form; `None` if it can.
    pub conversion_fault: fn(&Value) -> Option<String>,
    /// Sets the defaults of fields that the client left out.
    pub default: fn(&mut Value),
    /// The conversion to and from the internal form, where the version has another form.
    pub conversion: Option<&'static Conversion>,
}

/// A version of a kind that differs from the first one only in its name.
pub struct Alias {
    pub name: &'static str,
    /// The schema crate's name of the definition.
    pub definition: &'static str,
    /// The warning that every request gets; empty: none.
    pub deprecation: &'static str,
}

/// How objects are converted between a version and the internal form.
pub struct Conversion {
    pub to_internal: fn(Value) -> Value,
    pub from_internal: fn(Value) -> Value,
    /// The `apiVersion` of the internal form.
    pub internal_api_version: &'static str,
}

/// A subresource other than status and scale.
pub struct Subresource {
    pub name: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub verbs: &'static [Verb],
    pub handling: Handling,
}

/// The simple JSON paths of the fields that `/scale` reads and writes.
pub struct Scale {
    pub spec: &'static str,
    pub status: &'static str,
    pub selector: ScaleSelector,
}

/// The field that selects the replicas.
pub enum ScaleSelector {
    /// A map of labels.
    Labels(&'static str),
    /// A `LabelSelector`.
    Object(&'static str),
}

/// A column of a table.
pub struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    description: &'static str,
    priority: i64,
}

/// A field that a field selector may name.
pub struct SelectableField {
    name: &'static str,
    path: &'static str,
    otherwise: Option<&'static str>,
    absent: &'static str,
}

// === impl Kind ===

impl Kind {
    /// The defaults of a namespaced kind.
    pub const NAMESPACED: Kind = Kind {
        group: "",
        kind: "",
        plural: "",
        singular: "",
        short_names: &[],
        categories: &[],
        scope: ResourceScope::Namespaced,
        verbs: &Verb::ALL,
        handling: Handling::Stored,
        versions: &[],
        aliases: &[],
        internal: "",
        stored_in_group: None,
        generation: &[],
        counts: Counts::Stored,
        main_leaves: &[],
        status_leaves: &[&["spec"]],
        other_leaves: &[],
        new_status: NewStatus::Empty,
        compiles: Compiles::Never,
        rules: RULES,
        name_faults: name::dns1123_subdomain,
        pod_spec: &[],
        completed_for_owners: |_| None,
        adopt: |_| {},
        prepare_create: |_| {},
        prepare_update: |_, _| {},
        prepare_status: |_, _| {},
        prepare_other: |_, _| {},
        set_creator: |_, _| {},
        set_times: |_, _, _| {},
        prepare_resize: |_, _| {},
        prepare_delete: |_| {},
        rows_ordered_by: &[],
        validate: &[],
        validate_status: &[],
        validate_resize: &[],
        validate_other: None,
        warnings: |_, _| Vec::new(),
    };
    /// The defaults of a cluster-scoped kind.
    pub const CLUSTER: Kind = Kind { scope: ResourceScope::Cluster, ..Kind::NAMESPACED };

    /// The kind as a resource of a catalog.
    pub fn resource(&'static self, config: &RuntimeConfig) -> Resource {
        let mut versions: Vec<catalog::Version> =
            self.versions.iter().map(|version| version.to_catalog(config.edition())).collect();
        versions.extend(self.aliases.iter().map(|alias| {
            let deprecation = alias.deprecation;
            self.versions[0].named(config.edition(), alias.name, alias.definition, deprecation)
        }));
        for version in &mut versions {
            let subject = VersionedResource { group: self.group, version: &version.name, resource: self.plural };
            version.served = config.serves(subject);
        }
        Resource {
            id: ResourceId::next(),
            group: self.group.into(),
            plural: self.plural.into(),
            singular: self.singular.into(),
            kind: self.kind.into(),
            list_kind: format!("{}List", self.kind).into(),
            short_names: self.short_names.iter().map(|name| (*name).into()).collect(),
            categories: self.categories.iter().map(|name| (*name).into()).collect(),
            scope: self.scope,
            verbs: self.verbs.to_vec(),
            versions,
            storage_version: 0,
            storage: GroupResource::new(self.stored_in_group.unwrap_or(self.group), self.plural),
            strategy: Arc::new(BuiltIn::new(self)),
            origin: Origin::BuiltIn,
        }
    }

    /// The versions of the kind, served or not.
    pub fn versioned_resources(&'static self) -> impl Iterator<Item = VersionedResource<'static>> {
        let names = self.versions.iter().map(|version| version.name).chain(self.aliases.iter().map(|alias| alias.name));
        names.map(|version| VersionedResource { group: self.group, version, resource: self.plural })
    }

    /// Whether a version differs from the first one only in its name.
    pub fn is_alias(&self, version: &str) -> bool {
        self.aliases.iter().any(|alias| alias.name == version)
    }

    /// The row of a version; for an alias, the row of the first version.
    pub fn version(&self, name: &str) -> &Version {
        self.versions.iter().find(|version| version.name == name).unwrap_or(&self.versions[0])
    }

    /// The name of the definition of the internal form.
    pub fn internal_definition(&self) -> &'static str {
        if self.internal.is_empty() { self.versions[0].definition } else { self.internal }
    }
}

// === impl Version ===

impl Version {
    /// The defaults of a version.
    pub const V1: Version = Version {
        name: "v1",
        definition: "",
        has_status: false,
        deprecation: "",
        scale: None,
        subresources: &[],
        columns: &[],
        cells: |_, _| Vec::new(),
        row_conditions: |_| Vec::new(),
        cells_read: &[],
        fields: &[],
        annotations: &[],
        conversion_fault: |_| None,
        default: |_| {},
        conversion: None,
    };

    fn to_catalog(&self, edition: Edition) -> catalog::Version {
        self.named(edition, self.name, self.definition, self.deprecation)
    }

    /// The version as the catalog has it, with this name, definition and deprecation warning.
    fn named(&self, edition: Edition, name: &str, definition: &str, deprecation: &str) -> catalog::Version {
        let subresource = |row: &Subresource| catalog::Subresource {
            name: row.name.into(),
            kind: GroupVersionKind::new(row.group, row.version, row.kind),
            verbs: row.verbs.to_vec(),
            handling: row.handling,
        };
        catalog::Version {
            name: name.into(),
            served: true,
            deprecation: Some(deprecation).filter(|text| !text.is_empty()).map(Into::into),
            schema: Arc::new(Schema::from_json_in(edition, &serde_json::json!({ "$ref": definition }))),
            definition: definition.into(),
            has_status: self.has_status,
            scale: self.scale.map(|row| catalog::Scale {
                spec: path(row.spec),
                status: path(row.status),
                selector: Some(match row.selector {
                    ScaleSelector::Labels(text) => catalog::ScaleSelector::Labels(path(text)),
                    ScaleSelector::Object(text) => catalog::ScaleSelector::Object(path(text)),
                }),
            }),
            subresources: self.subresources.iter().map(subresource).collect(),
            columns: self.columns.iter().map(Column::to_catalog).collect(),
            selectable_fields: self.fields.iter().map(SelectableField::to_catalog).collect(),
        }
    }
}

// === impl Subresource ===

impl Subresource {
    /// The verbs of a proxy subresource.
    pub const PROXY_VERBS: &[Verb] = &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update];

    /// A proxy to the endpoint that an object of the core group represents.
    pub const fn proxy(kind: &'static str) -> Subresource {
        let verbs = Subresource::PROXY_VERBS;
        Subresource { name: "proxy", group: "", version: "v1", kind, verbs, handling: Handling::Stream }
    }
}

// === impl Column ===

impl Column {
    /// The first column of nearly every table.
    pub const NAME: Column = Column {
        name: "Name",
        kind: "string",
        format: "name",
        description: "The name, unique among the objects of this kind in its namespace.",
        priority: 0,
    };
    /// The age of the object.
    pub const AGE: Column = Column::text("Age", "The time since the object was created.");

    /// A column of text.
    pub const fn text(name: &'static str, description: &'static str) -> Column {
        Column { name, kind: "string", format: "", description, priority: 0 }
    }

    /// A column of names.
    pub const fn name(name: &'static str, description: &'static str) -> Column {
        Column { format: "name", ..Column::text(name, description) }
    }

    /// A column of whole numbers.
    pub const fn integer(name: &'static str, description: &'static str) -> Column {
        Column { name, kind: "integer", format: "", description, priority: 0 }
    }

    /// A boolean column.
    pub const fn boolean(name: &'static str, description: &'static str) -> Column {
        Column { name, kind: "boolean", format: "", description, priority: 0 }
    }

    /// A column of times.
    pub const fn date(name: &'static str, description: &'static str) -> Column {
        Column { kind: "date", ..Column::text(name, description) }
    }

    /// The column, with a format of OpenAPI.
    pub const fn formatted(self, format: &'static str) -> Column {
        Column { format, ..self }
    }

    /// The column, shown in wide output only.
    pub const fn wide(self) -> Column {
        Column { priority: 1, ..self }
    }

    fn to_catalog(&self) -> catalog::Column {
        catalog::Column {
            name: self.name.into(),
            kind: self.kind.into(),
            format: self.format.into(),
            description: self.description.into(),
            priority: self.priority,
        }
    }
}

// === impl SelectableField ===

impl SelectableField {
    /// A field that is selected by its own path.
    pub const fn new(name: &'static str, path: &'static str) -> SelectableField {
        SelectableField { name, path, otherwise: None, absent: "" }
    }

    /// Sets the value of an object without the field.
    pub const fn or(self, absent: &'static str) -> SelectableField {
        SelectableField { absent, ..self }
    }

    /// Sets the path that is read where the first one is absent or empty.
    pub const fn or_at(self, path: &'static str) -> SelectableField {
        SelectableField { otherwise: Some(path), ..self }
    }

    fn to_catalog(&self) -> catalog::SelectableField {
        catalog::SelectableField {
            name: self.name.into(),
            path: path(self.path),
            otherwise: self.otherwise.map(path),
            absent: self.absent.into(),
        }
    }
}

fn path(text: &str) -> JsonPath {
    JsonPath::parse(text).expect("invariant: every path of a row parses, as the test over all rows has seen")
}
