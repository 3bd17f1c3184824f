//! The names that a project may have, and names derived from them.

use crate::project::Options;
use crate::words;

/// The longest name: other names are derived from it, and labels have at most 63 characters.
const NAME_MAX: usize = 40;
const KIND_MAX: usize = 63;
const GROUP_MAX: usize = 253;

/// Packages that the project itself needs, and names that cargo refuses.
const NAMES_TAKEN: [&str; 19] = [
    "alloc",
    "anyhow",
    "build",
    "core",
    "deps",
    "examples",
    "incremental",
    "k8s-openapi",
    "kube",
    "proc-macro",
    "schemars",
    "serde",
    "serde-json",
    "std",
    "steersman",
    "test",
    "thiserror",
    "tokio",
    "tracing",
];

/// Types that the project uses itself, and the types and traits of the prelude.
const KINDS_TAKEN: [&str; 92] = [
    "Action",
    "Api",
    "AsMut",
    "AsRef",
    "BTreeMap",
    "Box",
    "Client",
    "ClientOptions",
    "Clone",
    "Condition",
    "ConfigMap",
    "Context",
    "ControlPlane",
    "Controller",
    "Copy",
    "CustomResource",
    "CustomResourceExt",
    "Debug",
    "Default",
    "Denial",
    "Deserialize",
    "Drop",
    "EnvFilter",
    "Eq",
    "Err",
    "Error",
    "Event",
    "EventRecorder",
    "EventType",
    "Extend",
    "FieldError",
    "Files",
    "Fn",
    "FnMut",
    "FnOnce",
    "Force",
    "From",
    "FromIterator",
    "Future",
    "Hash",
    "Into",
    "IntoIterator",
    "IsTerminal",
    "Iterator",
    "KubeSchema",
    "ListParams",
    "Lister",
    "LookupError",
    "Manager",
    "Metrics",
    "MutatingWebhookConfiguration",
    "None",
    "ObjectKey",
    "ObjectMeta",
    "Ok",
    "Option",
    "Ord",
    "OwnerError",
    "PartialEq",
    "PartialOrd",
    "Path",
    "PathBuf",
    "PostParams",
    "ReconcileError",
    "Resource",
    "Result",
    "Scope",
    "Self",
    "SelfSigned",
    "Send",
    "Serialize",
    "ServiceAccount",
    "Sized",
    "SocketAddr",
    "Some",
    "Spec",
    "Status",
    "String",
    "Sync",
    "ToOwned",
    "ToString",
    "TryFrom",
    "TryInto",
    "Unpin",
    "User",
    "ValidatingWebhookConfiguration",
    "Vec",
    "Webhooks",
    "Write",
    "WriteError",
    "Writer",
    "Written",
];

/// Groups below these belong to the Kubernetes community: servers require an approval for them.
const GROUPS_RESERVED: [&str; 2] = ["k8s.io", "kubernetes.io"];

/// Why a name cannot be used for a project.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    #[error(
        "{name:?} is no name of a project: want lower-case letters, digits and '-', beginning with a letter, not ending with '-', at most {NAME_MAX} characters"
    )]
    Name { name: String },
    #[error("a project cannot be called {name:?}, because that is the name of a package it needs or a word of Rust")]
    NameTaken { name: String },
    #[error(
        "{kind:?} is no name of a kind: want letters and digits, beginning with a capital letter, at most {KIND_MAX} characters"
    )]
    Kind { kind: String },
    #[error("the kind cannot be called {kind:?}, because the project uses another type of that name")]
    KindTaken { kind: String },
    #[error("{group:?} is no API group: want a domain such as storage.example.org, in lower case")]
    Group { group: String },
    #[error("the group {group:?} belongs to the Kubernetes community: choose one below a domain of yours")]
    GroupReserved { group: String },
}

pub(super) fn check(options: &Options) -> Result<(), NameError> {
    let Options { name, kind, group, .. } = options;
    if name.len() > NAME_MAX || !is_label(name) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Err(NameError::Name { name: name.clone() });
    }
    if NAMES_TAKEN.contains(&name.as_str())
        || name.starts_with("steersman-")
        || words::identifier(name.clone()) != *name
    {
        return Err(NameError::NameTaken { name: name.clone() });
    }
    let is_kind = kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind.chars().all(|character| character.is_ascii_alphanumeric());
    if kind.len() > KIND_MAX || !is_kind {
        return Err(NameError::Kind { kind: kind.clone() });
    }
    if KINDS_TAKEN.contains(&kind.as_str()) {
        return Err(NameError::KindTaken { kind: kind.clone() });
    }
    if group.len() > GROUP_MAX || !group.contains('.') || !group.split('.').all(is_label) {
        return Err(NameError::Group { group: group.clone() });
    }
    if GROUPS_RESERVED.iter().any(|reserved| group == reserved || group.ends_with(&format!(".{reserved}"))) {
        return Err(NameError::GroupReserved { group: group.clone() });
    }
    Ok(())
}

/// Whether a text is a label of a domain.
fn is_label(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(is_known) && !text.starts_with('-') && !text.ends_with('-')
}

/// `NetworkPolicy` as `networkpolicies`.
pub(super) fn plural(kind: &str) -> String {
    plural_of(&kind.to_lowercase())
}

/// `NetworkPolicy` as `network_policies`.
pub(super) fn plural_ident(kind: &str) -> String {
    plural_of(&words::snake(&words::words(kind)))
}

fn plural_of(word: &str) -> String {
    if let Some(stem) = word.strip_suffix('y')
        && !stem.ends_with(['a', 'e', 'i', 'o', 'u'])
    {
        return format!("{stem}ies");
    }
    match ["s", "x", "z", "ch", "sh"].iter().any(|ending| word.ends_with(ending)) {
        true => format!("{word}es"),
        false => format!("{word}s"),
    }
}
