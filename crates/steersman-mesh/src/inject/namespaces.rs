//! The labels of namespaces, from a cache.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use steersman::{Lister, LookupError, ObjectKey};

use crate::inject::decision::Labels;

/// Reads labels of namespaces.
pub(crate) struct Namespaces {
    pub(crate) client: Client,
    pub(crate) cached: Lister<PartialObjectMeta<Namespace>>,
}

/// Why the labels of a namespace are not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NamespaceError {
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error("the namespace {namespace} cannot be read")]
    Request {
        namespace: String,
        #[source]
        source: kube::Error,
    },
}

impl Namespaces {
    /// The labels of a namespace, from the cache. One that the cache does not have is asked for: it is most often so
    /// new that its creation is still on its way here.
    pub(crate) async fn labels(&self, namespace: &str) -> Result<Labels, NamespaceError> {
        let found: Option<Arc<_>> = self.cached.find(&ObjectKey::cluster(namespace))?;
        if let Some(known) = found {
            return Ok(known.metadata.labels.clone().unwrap_or_default());
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        let asked = api.get_metadata_opt(namespace).await;
        let asked = asked.map_err(|source| NamespaceError::Request { namespace: namespace.to_owned(), source })?;
        Ok(asked.and_then(|known| known.metadata.labels).unwrap_or_default())
    }
}
