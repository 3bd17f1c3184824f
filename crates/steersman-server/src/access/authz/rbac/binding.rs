//! A RoleBinding or ClusterRoleBinding, reduced to what decisions need.

use serde::Deserialize;
use std::fmt;
use std::sync::Arc;
use steersman_machinery::{Object, ObjectKey};

/// The role to which a binding refers.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum RoleRef {
    ClusterRole(Arc<str>),
    /// A role in the binding's namespace.
    Role(Arc<str>),
}

#[derive(Debug, Eq, PartialEq)]
pub(super) struct Binding {
    pub(super) key: ObjectKey,
    pub(super) role: RoleRef,
    pub(super) subjects: Vec<Subject>,
}

/// A subject of a binding.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Subject {
    Group(String),
    ServiceAccount { namespace: String, name: String },
    User(String),
}

/// A binding that grants something to one of its subjects.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    pub(super) binding: Arc<Binding>,
    /// The index of the subject in the binding.
    pub(super) subject: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    role_ref: StoredRef,
    #[serde(default)]
    subjects: Option<Vec<StoredSubject>>,
}

#[derive(Deserialize)]
struct StoredRef {
    kind: String,
    name: String,
}

#[derive(Deserialize)]
struct StoredSubject {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: Option<String>,
}

// === impl RoleRef ===

impl RoleRef {
    /// A reference by the kind and the name of the role. Other kinds are refused when a binding is written.
    pub(crate) fn new(kind: &str, name: &str) -> Option<RoleRef> {
        match kind {
            "ClusterRole" => Some(RoleRef::ClusterRole(name.into())),
            "Role" => Some(RoleRef::Role(name.into())),
            _ => None,
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            RoleRef::ClusterRole(_) => "ClusterRole",
            RoleRef::Role(_) => "Role",
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            RoleRef::ClusterRole(name) | RoleRef::Role(name) => name,
        }
    }

    /// The error when the role does not exist.
    pub(crate) fn not_found(&self) -> String {
        format!("{}.rbac.authorization.k8s.io {:?} not found", self.kind().to_ascii_lowercase(), self.name())
    }
}

// === impl Binding ===

impl Binding {
    /// Reads a stored binding. Subjects of unknown kinds are skipped: they match no user.
    pub(super) fn read(object: &Object) -> Result<Binding, serde_json::Error> {
        let Stored { role_ref, subjects } = serde_json::from_slice(object.json())?;
        let role = RoleRef::new(&role_ref.kind, &role_ref.name);
        let role = role.ok_or_else(|| {
            serde::de::Error::custom(format!("the kind of its roleRef is {:?}, not Role or ClusterRole", role_ref.kind))
        })?;
        let subjects = subjects.into_iter().flatten().filter_map(|subject| {
            let StoredSubject { kind, name, namespace } = subject;
            match kind.as_str() {
                "Group" => Some(Subject::Group(name)),
                "User" => Some(Subject::User(name)),
                "ServiceAccount" => {
                    // A RoleBinding may omit the namespace of a subject in its own namespace.
                    let given = namespace.filter(|namespace| !namespace.is_empty());
                    let namespace = given.or_else(|| object.key.namespace.as_deref().map(str::to_owned))?;
                    Some(Subject::ServiceAccount { namespace, name })
                }
                _ => None,
            }
        });
        Ok(Binding { key: object.key.clone(), role, subjects: subjects.collect() })
    }
}

// === impl Grant ===

impl Grant {
    /// Identifies the binding while it is in the index.
    pub(super) fn binding_address(&self) -> usize {
        Arc::as_ptr(&self.binding).addr()
    }
}

/// `RoleBinding "rb/ns" of Role "r" to Group "g"`.
impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { key, role, subjects } = &*self.binding;
        match &key.namespace {
            Some(namespace) => write!(f, "RoleBinding {:?}", format!("{}/{namespace}", key.name))?,
            None => write!(f, "ClusterRoleBinding {:?}", key.name)?,
        }
        write!(f, " of {} {:?} to ", role.kind(), role.name())?;
        match subjects.get(self.subject) {
            Some(Subject::Group(name)) => write!(f, "Group {name:?}"),
            Some(Subject::ServiceAccount { namespace, name }) => {
                write!(f, "ServiceAccount {:?}", format!("{name}/{namespace}"))
            }
            Some(Subject::User(name)) => write!(f, "User {name:?}"),
            None => Ok(()),
        }
    }
}
