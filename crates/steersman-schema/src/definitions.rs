//! The built-in kinds' definitions, embedded as a compressed table and parsed one by one on first use.
//!
//! The table is made by `data/generate.py` (see `data/README.md`): one line per definition, its name, a tab, its schema in
//! JSON. Unpacking and indexing takes about a millisecond and happens once; a definition is parsed when it is first asked for.
//!
//! There are two [`Edition`]s of them. The one with initializers is indexed when a server first asks for it; it costs nothing where
//! nobody does.

use crate::schema::{Origin, Schema};
use flate2::read::DeflateDecoder;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::sync::{LazyLock, OnceLock};
use steersman_machinery::{GroupVersionKind, Value};

/// Which definitions there are.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Edition {
    /// Those of the version of Kubernetes that is emulated.
    #[default]
    Kubernetes,
    /// The same, and what Kubernetes 1.7 to 1.13 had for initializers: the field `initializers` of all metadata, and the kind
    /// InitializerConfiguration.
    WithInitializers,
}

/// Every built-in definition.
pub struct Definitions {
    edition: Edition,
    /// Sorted by name.
    entries: Vec<Entry>,
    kinds: BTreeMap<GroupVersionKind, Definition>,
}

/// One built-in definition, such as `io.k8s.api.core.v1.Pod`. Two are equal if they are the same.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Definition {
    edition: Edition,
    index: u16,
}

struct Entry {
    name: &'static str,
    json: &'static str,
    schema: OnceLock<Schema>,
}

/// The unpacked table; definitions are slices of it.
static TABLE: LazyLock<String> = LazyLock::new(|| {
    let mut text = String::with_capacity(384 * 1024);
    DeflateDecoder::new(include_bytes!("../data/definitions.deflate").as_slice())
        .read_to_string(&mut text)
        .expect("invariant: the embedded table unpacks, as the tests have seen it do");
    text
});

/// What the edition with initializers has beside the table, in the form of the table.
const INITIALIZERS: &str = include_str!("../data/initializers.txt");
/// What `metrics.k8s.io` serves, in the form of the table. Only servers that know of nodes' resource metrics serve it.
const METRICS: &str = include_str!("../data/metrics.txt");
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

static BUILTIN: LazyLock<Definitions> = LazyLock::new(|| Definitions::read(Edition::Kubernetes, &[&TABLE, METRICS]));
static WITH_INITIALIZERS: LazyLock<Definitions> =
    LazyLock::new(|| Definitions::read(Edition::WithInitializers, &[&TABLE, METRICS, INITIALIZERS]));

/// The schemas of metadata. Asked for with every object, so they are looked up once.
static BUILTIN_META: LazyLock<&'static Schema> = LazyLock::new(|| Definitions::builtin().metadata());
static META_WITH_INITIALIZERS: LazyLock<&'static Schema> = LazyLock::new(|| WITH_INITIALIZERS.metadata());

// === impl Definitions ===

impl Definitions {
    /// The definitions of the version of Kubernetes that is emulated.
    pub fn builtin() -> &'static Definitions {
        &BUILTIN
    }

    /// The definitions of an edition.
    pub fn of(edition: Edition) -> &'static Definitions {
        match edition {
            Edition::Kubernetes => &BUILTIN,
            Edition::WithInitializers => &WITH_INITIALIZERS,
        }
    }

    /// Lines `name TAB json`, and lines `TAB group TAB version TAB kind TAB name`.
    fn read(edition: Edition, tables: &[&'static str]) -> Definitions {
        let mut entries = Vec::with_capacity(1024);
        let mut kinds = Vec::with_capacity(1024);
        for line in tables.iter().flat_map(|table| table.lines()) {
            match line.strip_prefix('\t') {
                Some(kind) => kinds.push(kind),
                None => entries.extend(line.split_once('\t').map(|(name, json)| Entry {
                    name,
                    json,
                    schema: OnceLock::new(),
                })),
            }
        }
        entries.sort_unstable_by_key(|entry| entry.name);
        let mut definitions = Definitions { edition, entries, kinds: BTreeMap::new() };
        for kind in kinds {
            let mut words = kind.split('\t');
            let (Some(group), Some(version), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                continue;
            };
            if let Some(definition) = definitions.definition(name) {
                definitions.kinds.insert(GroupVersionKind::new(group, version, kind), definition);
            }
        }
        definitions
    }

    /// The definition of a name such as `io.k8s.api.core.v1.Pod`.
    pub fn definition(&self, name: &str) -> Option<Definition> {
        let index = self.entries.binary_search_by(|entry| entry.name.cmp(name)).ok()?;
        Some(Definition { edition: self.edition, index: u16::try_from(index).ok()? })
    }

    /// The definition of a kind.
    pub fn definition_of(&self, gvk: &GroupVersionKind) -> Option<Definition> {
        self.kinds.get(gvk).copied()
    }

    /// The schema of a name such as `io.k8s.api.core.v1.Pod`.
    pub fn schema(&self, name: &str) -> Option<&'static Schema> {
        self.definition(name).map(Definition::schema)
    }

    /// The schema of the metadata of every kind.
    pub(crate) fn object_meta(edition: Edition) -> &'static Schema {
        match edition {
            Edition::Kubernetes => *BUILTIN_META,
            Edition::WithInitializers => *META_WITH_INITIALIZERS,
        }
    }

    fn metadata(&self) -> &'static Schema {
        self.schema(OBJECT_META).expect("invariant: the embedded table has ObjectMeta, which its kinds refer to")
    }

    /// The schema of a kind.
    pub fn schema_of(&self, gvk: &GroupVersionKind) -> Option<&'static Schema> {
        self.definition_of(gvk).map(Definition::schema)
    }

    /// Every definition, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = Definition> {
        let edition = self.edition;
        let indexes = (0..self.entries.len()).filter_map(|index| u16::try_from(index).ok());
        indexes.map(move |index| Definition { edition, index })
    }

    /// Every kind with its definition, sorted by group, version and kind.
    pub fn kinds(&self) -> impl Iterator<Item = (&GroupVersionKind, Definition)> {
        self.kinds.iter().map(|(gvk, definition)| (gvk, *definition))
    }
}

// === impl Definition ===

impl Definition {
    fn entry(self) -> &'static Entry {
        &Definitions::of(self.edition).entries[usize::from(self.index)]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// Its schema, parsed on first use.
    pub fn schema(self) -> &'static Schema {
        let entry = self.entry();
        entry.schema.get_or_init(|| {
            let mut json: Value = serde_json::from_str(entry.json)
                .expect("invariant: every definition of the embedded table parses, as the tests have seen it do");
            if entry.name == OBJECT_META && self.edition == Edition::WithInitializers {
                json["properties"]["initializers"] =
                    serde_json::json!({"$ref": "io.k8s.apimachinery.pkg.apis.meta.v1.Initializers"});
            }
            Schema::read(&json, Origin::Table(self.edition))
        })
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
