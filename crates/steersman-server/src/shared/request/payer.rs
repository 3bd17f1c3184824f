//! The user to whom the memory and the computation of a request are charged.

use std::sync::Arc;
use steersman_kinds::user::User;

/// The namespace whose ServiceAccounts are those of the system: each pays for itself.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// The payer of the requests of a sender. It is the sender even of requests that are made as another user: whoever may impersonate any ServiceAccount
/// of a namespace would have a share of its own for each name. The ServiceAccounts of a namespace pay together, because whoever may make one there can
/// make any number.
pub(crate) fn payer(sender: &Arc<User>) -> Arc<User> {
    let account = sender.name.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    match account {
        Some((namespace, _)) if namespace != SYSTEM_NAMESPACE => {
            Arc::new(User { name: format!("system:serviceaccounts:{namespace}"), ..User::default() })
        }
        _ => sender.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_a_namespace_pay_together_and_those_of_the_system_for_themselves() {
        let name = |user| payer(&Arc::new(user)).name.clone();
        assert_eq!(name(User::service_account("a", "x")), name(User::service_account("a", "y")));
        assert_ne!(name(User::service_account("a", "x")), name(User::service_account("b", "x")));
        assert_ne!(name(User::service_account("kube-system", "x")), name(User::service_account("kube-system", "y")));
        assert_eq!(name(User::authenticated("alice", [])), "alice");
    }
}
