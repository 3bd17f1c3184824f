//! The users that the loops and the simulated nodes act as.

/// The namespace of the loops' ServiceAccounts.
const NAMESPACE: &str = "kube-system";

/// The user that a client acts as.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    /// The name of the user.
    pub user: String,
    /// The groups of the user, besides `system:authenticated`.
    pub groups: Vec<String>,
    /// The `User-Agent` of the requests, which becomes the field manager of their writes.
    pub agent: &'static str,
}

impl Identity {
    /// A user without further groups.
    pub(crate) fn user(name: &str, agent: &'static str) -> Identity {
        Identity { user: name.to_owned(), groups: Vec::new(), agent }
    }

    /// A ServiceAccount in `kube-system` that kube-controller-manager uses.
    pub(crate) fn controller(account: &str) -> Identity {
        Identity {
            user: format!("system:serviceaccount:{NAMESPACE}:{account}"),
            groups: vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{NAMESPACE}")],
            agent: "kube-controller-manager",
        }
    }
}
