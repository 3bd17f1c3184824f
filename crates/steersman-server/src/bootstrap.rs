//! Creates the objects that every cluster has: the namespaces, the priority classes, the roles and the bindings of the system.

mod access;

use crate::builtin::SYSTEM_CLASSES;
use crate::catalog::Verb;
use crate::operation::Operation;
use crate::registry::{self, Change};
use crate::state::State;
use crate::status::Failure;
use serde_json::json;
use steersman_machinery::{GroupResource, ObjectKey, Value};

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates those that do not exist yet.
///
/// # Errors
/// When the store refuses.
pub(crate) async fn objects(state: &State) -> Result<(), Failure> {
    for name in NAMESPACES {
        let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}});
        create(state, &GroupResource::new("", "namespaces"), name, namespace).await?;
    }
    for (name, value, description) in SYSTEM_CLASSES {
        let class = json!({
            "kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": name}, "value": value,
            "description": description,
        });
        create(state, &GroupResource::new("scheduling.k8s.io", "priorityclasses"), name, class).await?;
    }
    access::reconcile(state).await
}

async fn create(state: &State, resource: &GroupResource, name: &str, object: Value) -> Result<(), Failure> {
    let catalog = state.catalog();
    let Some(served) = catalog.find(&resource.group, "v1", &resource.resource) else { return Ok(()) };
    if state.get(resource, &ObjectKey::cluster(name)).await?.is_some() {
        return Ok(());
    }
    let mut operation = Operation::of_system(served, Verb::Create, state.now());
    let mut object = object;
    operation.strategy().default(operation.version(), &mut object);
    registry::write(state, &mut operation, &Change::Create(object)).await.map(|_| ())
}
