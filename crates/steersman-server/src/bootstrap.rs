//! What is there from the first start: the namespaces of the system.

use crate::catalog::Served;
use crate::options::Write;
use crate::query::Query;
use crate::registry::{self, Own, Recorded};
use crate::server::Inner;
use crate::status::Failure;
use serde_json::json;
use std::sync::Arc;
use steersman_machinery::{GroupResource, ObjectKey};

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates the namespaces that are not there.
///
/// # Errors
/// When the store refuses.
pub(crate) async fn namespaces(server: &Arc<Inner>) -> Result<(), Failure> {
    let face = server.face();
    let Some(served) = face.catalog.find("", "v1", "namespaces") else { return Ok(()) };
    for name in NAMESPACES {
        let key = ObjectKey::cluster(name);
        let found = server.store.get(&GroupResource::new("", "namespaces"), &key).await;
        if found.map_err(|error| registry::read_failure(&error))?.is_none() {
            create(server, served, name).await?;
        }
    }
    Ok(())
}

async fn create(server: &Arc<Inner>, served: &Served, name: &str) -> Result<(), Failure> {
    let own = Own::collection(served, None);
    let mut cx = own.context(server, served, "create");
    let options = Write::parse(&Query::default(), "CreateOptions", false)?;
    let mut object = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}});
    cx.strategy().default(cx.version(), &mut object);
    registry::insert(&mut cx, &options, object, Recorded::No).await.map(|_| ())
}
