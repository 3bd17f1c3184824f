//! Users.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The group whose members may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of every authenticated user.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The name of who sends a request without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of who sends a request without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The group of the agents of nodes.
pub const NODES: &str = "system:nodes";
/// How the name of a node's agent begins; the rest is the name of the node.
const NODE: &str = "system:node:";
/// The group of all ServiceAccounts; with a colon and a namespace, of those there.
const ACCOUNTS: &str = "system:serviceaccounts";

/// A user as authentication found it, in the shape of `authentication.k8s.io` `UserInfo`.
#[derive(Clone, Debug, Default, Eq, PartialEq, serde::Serialize)]
pub struct User {
    /// The name, by which authorization decides.
    #[serde(rename = "username")]
    pub name: String,
    /// An identity that outlives the name; empty where there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups the user is in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What else the authenticator knows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The name of the authenticated user who sent a request, in the extensions of the answer. An answer without it went to an
/// unauthenticated client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuthenticatedUser(pub Arc<User>);

impl User {
    /// An authenticated user: in the given groups, and in that of all authenticated users.
    pub fn authenticated(name: impl Into<String>, groups: impl IntoIterator<Item = String>) -> User {
        let mut groups: Vec<String> = groups.into_iter().collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        User { name: name.into(), groups, ..User::default() }
    }

    /// The user that a process embedding the server acts as.
    pub fn master(name: impl Into<String>) -> User {
        User::authenticated(name, [MASTERS.to_owned()])
    }

    /// A ServiceAccount, as its tokens authenticate it.
    pub fn service_account(namespace: &str, name: &str) -> User {
        let groups = [ACCOUNTS.to_owned(), format!("{ACCOUNTS}:{namespace}")];
        User::authenticated(format!("system:serviceaccount:{namespace}:{name}"), groups)
    }

    /// The node whose agent the user is; empty if the user says that it is one and not which.
    pub fn node_name(&self) -> Option<&str> {
        self.name.strip_prefix(NODE).filter(|_| self.is_in(NODES))
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|one| one == group)
    }
}
