//! Creates the ServiceAccount `default` in every namespace, and again when it is deleted.
//!
//! Follows kube-controller-manager's serviceaccount controller. A namespace that is being deleted gets none.

use crate::settings::Parts;
use crate::shared::refusal::{self, Refused};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use steersman::cache::Selection;
use steersman::{Action, BoxError, Controller, Lister, Manager, ObjectKey, Scope};

/// The name of the loop in logs.
const NAME: &str = "serviceaccount-controller";
const ACCOUNT: &str = "default";
const WORKERS: usize = 4;

struct Context {
    accounts: Lister<ServiceAccount>,
    client: Client,
    namespaces: Lister<Namespace>,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let namespaces = manager.informers().informer::<Namespace>(Scope::All);
    let selection = Selection::new(Scope::All).fields(format!("metadata.name={ACCOUNT}"));
    let accounts = manager.informers().informer::<ServiceAccount>(selection);
    let context = Context { accounts: accounts.lister(), client, namespaces: namespaces.lister() };
    let controller = Controller::<Namespace>::of(&namespaces, reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .watches(&accounts, |account| account.namespace().iter().map(|name| ObjectKey::cluster(name)).collect());
    manager.controller(controller)
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let namespace = cx.namespaces.get(&key)?;
    if !is_active(&namespace) || cx.accounts.contains(&ObjectKey::namespaced(key.name(), ACCOUNT))? {
        return Ok(Action::AwaitChange);
    }
    let account = ServiceAccount {
        metadata: ObjectMeta { name: Some(ACCOUNT.to_owned()), ..ObjectMeta::default() },
        ..ServiceAccount::default()
    };
    let api = Api::<ServiceAccount>::namespaced(cx.client.clone(), key.name());
    match api.create(&PostParams::default(), &account).await {
        Ok(_) => Ok(Action::AwaitChange),
        Err(error) if refusal::exists_already(&error) || refusal::is_namespace_ending(&error) => {
            Ok(Action::AwaitChange)
        }
        Err(error) => Err(Refused::to(format!("create the account {ACCOUNT:?}"))(error).into()),
    }
}

/// Whether objects can be created in a namespace.
pub(crate) fn is_active(namespace: &Namespace) -> bool {
    namespace.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Active")
}
