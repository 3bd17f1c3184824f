//! The requests of a user, as roles: they allow the same requests again, and no more.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use steersman::{InformerFactory, Scope};
use steersman_codegen::rbac::ServiceAccount;
use steersman_server::authz::WatchAuthorization;
use steersman_testkit::{ControlPlane, Options, User};

#[tokio::test]
async fn the_roles_of_what_was_asked_for_allow_it_and_no_more() {
    let plane = ControlPlane::start().await;
    let name = "system:serviceaccount:default:robot";
    let account = User::authenticated(name, ["system:serviceaccounts".to_owned()]);
    let everything = User::authenticated(name, ["system:masters".to_owned()]);

    async fn work(client: kube::Client) -> Result<(), kube::Error> {
        let configs: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let params = PatchParams::apply("robot");
        configs
            .patch(
                "a",
                &params,
                &Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})),
            )
            .await?;
        Api::<ConfigMap>::all(client).list(&ListParams::default()).await?;
        Ok(())
    }
    work(plane.client_as(account.clone())).await.unwrap_err();
    // Refused as well, but recorded.
    work(plane.client_as(everything)).await.unwrap();
    let permissions = plane.permissions_of(&account);
    let verbs: Vec<(Option<&str>, &str)> =
        permissions.iter().map(|one| (one.namespace.as_deref(), one.verb.as_str())).collect();
    assert_eq!(verbs, [(None, "list"), (Some("default"), "create"), (Some("default"), "patch")]);

    plane.apply(&permissions.manifests(&ServiceAccount::new("default", "robot")).unwrap()).await;
    Api::<ConfigMap>::namespaced(plane.client(), "default").delete("a", &Default::default()).await.unwrap();
    work(plane.client_as(account.clone())).await.unwrap();
    let configs: Api<ConfigMap> = Api::namespaced(plane.client_as(account), "default");
    let refused = configs.delete("a", &Default::default()).await.unwrap_err();
    assert!(refused.to_string().contains("cannot delete resource"), "{refused}");
    plane.stop().await;
}

#[tokio::test]
async fn an_informer_takes_list_as_well_as_watch() {
    let plane = ControlPlane::start().await;
    let reader = User::authenticated("reader", ["system:masters".to_owned()]);
    let factory = InformerFactory::new(plane.client_as(reader.clone()));
    let configs = factory.informer::<ConfigMap>(Scope::All);
    let running = factory.start();
    configs.wait_synced(Duration::from_secs(30)).await.unwrap();
    let permissions = plane.permissions_of(&reader);
    let verbs: Vec<&str> = permissions.iter().map(|one| one.verb.as_str()).collect();
    assert_eq!(verbs, ["list", "watch"]);
    running.shutdown().await;
    plane.stop().await;
}

/// Everybody may read ConfigMaps.
const READS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reads}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reads}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reads}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
"#;

#[tokio::test(start_paused = true)]
async fn an_informer_whose_user_loses_the_permission_lists_again_and_is_refused() {
    let watch_authorization = WatchAuthorization::WhileOpen;
    let plane = ControlPlane::try_start(Options { watch_authorization, ..Options::default() }).await.unwrap();
    plane.apply(READS).await;
    let factory = InformerFactory::new(plane.client_as(User::authenticated("alice", [])));
    let configs = factory.informer::<ConfigMap>(Scope::All);
    let running = factory.start();
    configs.wait_synced(Duration::from_secs(30)).await.unwrap();
    assert_eq!(configs.last_error(), None);
    let bindings: Api<ClusterRoleBinding> = Api::all(plane.client());
    bindings.delete("reads", &Default::default()).await.unwrap();
    let refused = async {
        loop {
            match configs.last_error() {
                Some(error) if error.contains("cannot list resource") => return error,
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(60), refused).await.expect("it lists again");
    assert!(refused.contains("configmaps is forbidden: User \"alice\""), "{refused}");
    running.shutdown().await;
    plane.stop().await;
}
