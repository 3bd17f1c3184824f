//! The smallest controller: it writes a greeting into every ConfigMap whose data has a `name`.
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use steersman::{Action, BoxError, ClientOptions, Controller, Lister, Manager, ManagerError, ObjectKey, Scope, patch};

struct Context {
    client: kube::Client,
    configs: Lister<ConfigMap>,
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let config = cx.configs.get(&key)?;
    if let Some(name) = config.data.as_ref().and_then(|data| data.get("name")) {
        let wanted = json!({"data": {"greeting": format!("Hello, {name}!")}});
        patch::apply::<ConfigMap>(&cx.client, &key, "greeter", patch::Force::Yes, &wanted).await?;
    }
    Ok(Action::AwaitChange)
}

pub(crate) async fn run(client: kube::Client, end: impl Future<Output = ()>) -> Result<(), ManagerError> {
    let manager = Manager::new(client.clone());
    let configs = manager.informers().informer(Scope::All).lister();
    manager.controller(Controller::<ConfigMap>::new(reconcile, Context { client, configs })).run(end).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = steersman::client(&ClientOptions::default()).await?;
    Ok(run(client, steersman::shutdown_signal()).await?)
}
