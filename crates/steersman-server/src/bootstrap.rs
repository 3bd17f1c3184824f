//! What is there from the first start: the namespaces of the system.

use crate::catalog::{Served, Verb};
use crate::operation::Operation;
use crate::registry::{self, Change};
use crate::state::State;
use crate::status::Failure;
use serde_json::json;
use steersman_machinery::{GroupResource, ObjectKey};

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates the namespaces that are not there.
///
/// # Errors
/// When the store refuses.
pub(crate) async fn namespaces(state: &State) -> Result<(), Failure> {
    let catalog = state.catalog();
    let Some(served) = catalog.find("", "v1", "namespaces") else { return Ok(()) };
    for name in NAMESPACES {
        if state.get(&GroupResource::new("", "namespaces"), &ObjectKey::cluster(name)).await?.is_none() {
            create(state, served, name).await?;
        }
    }
    Ok(())
}

async fn create(state: &State, served: &Served, name: &str) -> Result<(), Failure> {
    let mut operation = Operation::of_system(served, Verb::Create, state.now());
    let mut object = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}});
    operation.strategy().default(operation.version(), &mut object);
    registry::write(state, &mut operation, &Change::Create(object)).await.map(|_| ())
}
