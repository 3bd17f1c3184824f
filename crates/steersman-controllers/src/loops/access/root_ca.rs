//! Publishes the certificate of the cluster's authority in every namespace, in the ConfigMap `kube-root-ca.crt`, by
//! which pods verify the API server. A ConfigMap that somebody changes or deletes is restored.
//!
//! Follows kube-controller-manager's root CA certificate publisher.

use crate::settings::Parts;
use crate::shared::refusal::{self, Refused};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman::cache::Selection;
use steersman::{Action, BoxError, Controller, Lister, Manager, ObjectKey, Scope};

/// The name of the loop in logs.
const NAME: &str = "root-ca-certificate-publisher-controller";
const CONFIG_MAP: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const DESCRIPTION_KEY: &str = "kubernetes.io/description";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as \
     the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
const WORKERS: usize = 4;

struct Context {
    bundle: Arc<str>,
    client: Client,
    configs: Lister<ConfigMap>,
    namespaces: Lister<Namespace>,
}

/// The action due in a namespace.
#[derive(Clone, Debug, PartialEq)]
enum Plan {
    Create(ConfigMap),
    Replace(ConfigMap),
    /// The ConfigMap is as it should be.
    Rest,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let Some(bundle) = settings.root_ca.clone() else { return manager };
    let namespaces = manager.informers().informer::<Namespace>(Scope::All);
    let selection = Selection::new(Scope::All).fields(format!("metadata.name={CONFIG_MAP}"));
    let configs = manager.informers().informer::<ConfigMap>(selection);
    let context = Context { bundle, client, configs: configs.lister(), namespaces: namespaces.lister() };
    let controller = Controller::<Namespace>::of(&namespaces, reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .watches(&configs, |config| config.namespace().iter().map(|name| ObjectKey::cluster(name)).collect());
    manager.controller(controller)
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let namespace = cx.namespaces.get(&key)?;
    let known = cx.configs.find(&ObjectKey::namespaced(key.name(), CONFIG_MAP))?;
    let api = Api::<ConfigMap>::namespaced(cx.client.clone(), key.name());
    let written = match plan(known.as_deref(), &cx.bundle) {
        // Nothing can be created in the namespace any more.
        Plan::Create(_) if namespace.metadata.deletion_timestamp.is_some() => return Ok(Action::AwaitChange),
        Plan::Create(config) => api.create(&PostParams::default(), &config).await,
        Plan::Replace(config) => api.replace(CONFIG_MAP, &PostParams::default(), &config).await,
        Plan::Rest => return Ok(Action::AwaitChange),
    };
    match written {
        Ok(_) => Ok(Action::AwaitChange),
        // Somebody else wrote first: the event of that write brings the key back.
        Err(error) if refusal::exists_already(&error) || refusal::is_conflict(&error) => Ok(Action::AwaitChange),
        Err(error) if refusal::is_gone(&error) || refusal::is_namespace_ending(&error) => Ok(Action::AwaitChange),
        Err(error) => Err(Refused::to("publish the certificate of the cluster")(error).into()),
    }
}

/// The write after which the ConfigMap has the bundle and nothing else.
fn plan(known: Option<&ConfigMap>, bundle: &str) -> Plan {
    let data = Some(BTreeMap::from([(KEY.to_owned(), bundle.to_owned())]));
    let Some(known) = known else {
        let annotations = BTreeMap::from([(DESCRIPTION_KEY.to_owned(), DESCRIPTION.to_owned())]);
        let metadata =
            ObjectMeta { annotations: Some(annotations), name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() };
        return Plan::Create(ConfigMap { data, metadata, ..ConfigMap::default() });
    };
    // Any description is accepted, as upstream.
    let is_described = known.annotations().get(DESCRIPTION_KEY).is_some_and(|text| !text.is_empty());
    if known.data == data && is_described {
        return Plan::Rest;
    }
    let mut config = ConfigMap { data, ..known.clone() };
    config.annotations_mut().insert(DESCRIPTION_KEY.to_owned(), DESCRIPTION.to_owned());
    Plan::Replace(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published() -> ConfigMap {
        match plan(None, "bundle") {
            Plan::Create(config) => config,
            plan => panic!("{plan:?}"),
        }
    }

    #[test]
    fn what_is_published_rests_even_with_another_description() {
        assert_eq!(plan(Some(&published()), "bundle"), Plan::Rest);
        let mut other = published();
        other.annotations_mut().insert(DESCRIPTION_KEY.to_owned(), "mine".to_owned());
        assert_eq!(plan(Some(&other), "bundle"), Plan::Rest);
    }

    #[test]
    fn more_data_another_bundle_and_no_description_are_put_right() {
        assert_eq!(
            plan(Some(&published()), "new"),
            Plan::Replace(ConfigMap {
                data: Some(BTreeMap::from([(KEY.to_owned(), "new".to_owned())])),
                ..published()
            })
        );
        let mut more = published();
        more.data.get_or_insert_default().insert("mine".to_owned(), String::new());
        assert_eq!(plan(Some(&more), "bundle"), Plan::Replace(published()));
        let mut bare = published();
        bare.metadata.annotations = None;
        assert_eq!(plan(Some(&bare), "bundle"), Plan::Replace(published()));
    }
}
