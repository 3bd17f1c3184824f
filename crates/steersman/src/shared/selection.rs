//! The selection of an informer: the type's path in the API, the scope and the selectors.

use std::collections::BTreeSet;
use std::fmt;

use kube::Resource;
use serde::de::DeserializeOwned;

/// A type that can be watched and cached: any `kube::Resource` that can be decoded and shared between threads.
///
/// Implemented for every such type; never implement it by hand.
pub trait CachedResource: Resource + Clone + DeserializeOwned + Send + Sync + 'static {}

impl<K: Resource + Clone + DeserializeOwned + Send + Sync + 'static> CachedResource for K {}

/// The namespaces to watch: all, one, or several.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Scope {
    /// All namespaces; the only choice for cluster-scoped types.
    #[default]
    All,
    /// One namespace.
    Namespace(String),
    /// Several namespaces: a watch for each, which needs permissions there only, and one cache, which is filled when
    /// all are. Use [`Scope::namespaces`] to make one.
    Namespaces(BTreeSet<String>),
}

/// The objects of a type to watch. Two equal selections of one type share one watch.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub struct Selection {
    /// The namespaces to watch.
    pub scope: Scope,
    /// Label selector in the server's syntax, for instance `app in (a,b),!legacy`. Empty selects everything.
    pub labels: String,
    /// Field selector in the server's syntax, for instance `metadata.name=a`. Empty selects everything.
    pub fields: String,
    /// Passed through as `shardSelector` for servers that shard watches. Empty sends nothing.
    pub shard: String,
    /// Whether to include objects that wait for initializers, which servers with initializers hide otherwise.
    pub includes_uninitialized: bool,
}

/// The path and form of one type in the API, known at run time.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Target {
    /// Path of the collection, namespace included.
    pub(crate) path: String,
    /// `networks.samplecrd.k8s.io`, the name of the type in errors and logs.
    pub(crate) resource: String,
    pub(crate) selection: Selection,
    /// A target for each of several namespaces; empty where one watch covers everything.
    pub(crate) parts: Vec<Self>,
    /// Whether to ask for whole objects or `PartialObjectMetadata`.
    pub(crate) form: Form,
}

/// The form in which the server sends each object.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Form {
    Metadata,
    Whole,
}

// === impl Scope ===

impl Scope {
    /// These namespaces; all namespaces if there are none, as with controller-runtime's `DefaultNamespaces`.
    ///
    /// ```
    /// use steersman::Scope;
    ///
    /// let from_flag = "shop,bank";
    /// assert!(Scope::namespaces(from_flag.split(',')).contains("bank"));
    /// assert_eq!(Scope::namespaces(["shop"]), Scope::Namespace("shop".to_owned()));
    /// ```
    pub fn namespaces<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self::Namespaces(names.into_iter().map(Into::into).collect()).normal()
    }

    /// Whether `namespace` is in the scope.
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(only) => only == namespace,
            Self::Namespaces(some) => some.contains(namespace),
        }
    }

    /// The namespace for kube's functions; `None` also for several namespaces, which no single request covers.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::All | Self::Namespaces(_) => None,
            Self::Namespace(namespace) => Some(namespace),
        }
    }

    /// The normal form of the scope, so that equal scopes compare equal: a set of namespaces has at least two.
    fn normal(self) -> Self {
        match self {
            Self::Namespaces(names) if names.len() < 2 => names.into_iter().next().map_or(Self::All, Self::Namespace),
            scope => scope,
        }
    }
}

// === impl Selection ===

impl Selection {
    /// Everything in `scope`.
    pub fn new(scope: Scope) -> Self {
        Self { scope, ..Self::default() }
    }

    /// Only objects whose labels match.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = selector.into();
        self
    }

    /// Only objects whose fields match. Servers support few fields; an unsupported one is reported by the watch.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = selector.into();
        self
    }

    /// Includes objects that wait for initializers: for controllers that initialize them.
    pub fn include_uninitialized(mut self) -> Self {
        self.includes_uninitialized = true;
        self
    }

    /// Only the objects of one server-side shard.
    pub fn shard(mut self, selector: impl Into<String>) -> Self {
        self.shard = selector.into();
        self
    }
}

impl From<&str> for Scope {
    /// The namespace of this name; all namespaces if it is empty, as client-go's `metav1.NamespaceAll` is.
    fn from(namespace: &str) -> Self {
        if namespace.is_empty() { Self::All } else { Self::Namespace(namespace.to_owned()) }
    }
}

impl From<Scope> for Selection {
    fn from(scope: Scope) -> Self {
        Self::new(scope)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("in all namespaces"),
            Self::Namespace(namespace) => write!(f, "in namespace {namespace}"),
            Self::Namespaces(namespaces) => {
                let names: Vec<&str> = namespaces.iter().map(String::as_str).collect();
                write!(f, "in namespaces {}", names.join(", "))
            }
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.scope.fmt(f)?;
        for (name, value) in [("labels", &self.labels), ("fields", &self.fields), ("shard", &self.shard)] {
            if !value.is_empty() {
                write!(f, ", {name} {value:?}")?;
            }
        }
        if self.includes_uninitialized {
            f.write_str(", also uninitialized")?;
        }
        Ok(())
    }
}

// === impl Target ===

impl Target {
    /// Group (empty for the core), version and plural name of the type.
    pub(crate) fn group_version_resource(&self) -> [String; 3] {
        let mut parts = self.path.trim_start_matches('/').split('/');
        let group = if parts.next() == Some("api") { "" } else { parts.next().unwrap_or_default() };
        let version = parts.next().unwrap_or_default();
        let resource = self.resource.split('.').next().unwrap_or_default();
        [group, version, resource].map(str::to_owned)
    }

    pub(crate) fn of<K: Resource>(dynamic: &K::DynamicType, selection: Selection) -> Self {
        let scope = selection.scope.clone().normal();
        let of_scope = |scope: Scope| Self {
            path: K::url_path(dynamic, scope.namespace()),
            resource: resource_name::<K>(dynamic),
            selection: Selection { scope, ..selection.clone() },
            parts: Vec::new(),
            form: if K::metadata_api() { Form::Metadata } else { Form::Whole },
        };
        let parts = match &scope {
            Scope::All | Scope::Namespace(_) => Vec::new(),
            Scope::Namespaces(names) => names.iter().map(|name| of_scope(Scope::Namespace(name.clone()))).collect(),
        };
        Self { parts, ..of_scope(scope) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.resource, self.selection)
    }
}

/// `plural.group`, or `plural` for the core group.
pub(crate) fn resource_name<K: Resource>(dynamic: &K::DynamicType) -> String {
    let (plural, group) = (K::plural(dynamic), K::group(dynamic));
    if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") }
}
