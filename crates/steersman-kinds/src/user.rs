//! Users.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The group whose members may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of every authenticated user.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The user name of a request without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of a request without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The group of the agents of nodes.
pub const NODES: &str = "system:nodes";
/// The prefix of the user name of a node's agent; the rest is the name of the node.
const NODE: &str = "system:node:";
/// The group of all ServiceAccounts; with a colon and a namespace appended, of those in the namespace.
const ACCOUNTS: &str = "system:serviceaccounts";

/// An authenticated user, in the form of `authentication.k8s.io` `UserInfo`.
#[derive(Clone, Debug, Default, Eq, PartialEq, serde::Serialize)]
pub struct User {
    /// The name, on which authorization decides.
    #[serde(rename = "username")]
    pub name: String,
    /// An identity that outlives the name; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups of the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Additional information from the authenticator.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The authenticated user of a request, in the extensions of the answer. An answer without it went to an
/// unauthenticated client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuthenticatedUser(pub Arc<User>);

impl User {
    /// An authenticated user in the given groups and in that of all authenticated users.
    pub fn authenticated(name: impl Into<String>, groups: impl IntoIterator<Item = String>) -> User {
        let mut groups: Vec<String> = groups.into_iter().collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        User { name: name.into(), groups, ..User::default() }
    }

    /// The user of a process that embeds the server.
    pub fn master(name: impl Into<String>) -> User {
        User::authenticated(name, [MASTERS.to_owned()])
    }

    /// The user of a ServiceAccount's tokens.
    pub fn service_account(namespace: &str, name: &str) -> User {
        let groups = [ACCOUNTS.to_owned(), format!("{ACCOUNTS}:{namespace}")];
        User::authenticated(format!("system:serviceaccount:{namespace}:{name}"), groups)
    }

    /// The node whose agent the user is; empty if the user's name has the prefix only.
    pub fn node_name(&self) -> Option<&str> {
        self.name.strip_prefix(NODE).filter(|_| self.is_in(NODES))
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|one| one == group)
    }
}
