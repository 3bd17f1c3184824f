//! A controller of a kind that is known at run time only: it puts a label on every object of the kind in its arguments.
//!
//! `cargo run -p steersman --example dynamic_types -- example.com/v1 Door`
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;
use steersman::{Action, BoxError, ClientOptions, Controller, Lister, Manager, ManagerError, ObjectKey, Scope, patch};

struct Context {
    client: kube::Client,
    resource: ApiResource,
    objects: Lister<DynamicObject>,
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let object = cx.objects.get(&key)?;
    let is_seen = object.metadata.labels.iter().flatten().any(|(name, _)| name == "example.com/seen");
    if !is_seen {
        let label = json!({"metadata": {"labels": {"example.com/seen": "true"}}});
        patch::merge_with::<DynamicObject>(&cx.client, &cx.resource, &key, &label).await?;
    }
    Ok(Action::AwaitChange)
}

pub(crate) async fn run(
    client: kube::Client,
    resource: ApiResource,
    end: impl Future<Output = ()>,
) -> Result<(), ManagerError> {
    let manager = Manager::new(client.clone());
    let objects = manager.informers().informer_with(&resource, Scope::All).lister();
    let context = Context { client, resource: resource.clone(), objects };
    manager.controller(Controller::<DynamicObject>::new_with(resource, reconcile, context)).run(end).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(api_version), Some(kind)) = (arguments.next(), arguments.next()) else {
        return Err("usage: dynamic_types GROUP/VERSION KIND".into());
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let client = steersman::client(&ClientOptions::default()).await?;
    // Discovery returns the plural name of the kind.
    let kind = GroupVersionKind::gvk(group, version, &kind);
    let (resource, _) = kube::discovery::pinned_kind(&client, &kind).await?;
    Ok(run(client, resource, steersman::shutdown_signal()).await?)
}
