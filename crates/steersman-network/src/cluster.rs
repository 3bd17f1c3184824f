//! The cluster that the operator works for, by default identified by the uid of the namespace `kube-system`, which
//! every cluster has and none shares.

use crate::identity::{ClusterId, InvalidClusterId};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::OnceCell;

/// The id of the cluster, once it is known.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    id: OnceCell<ClusterId>,
}

/// Why the cluster has no id.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error(
        "the uid of the namespace kube-system, which tells this cluster from others, is no cluster id: name the cluster with --cluster-id"
    )]
    Invalid(#[source] InvalidClusterId),
    #[error(
        "the namespace kube-system, whose uid tells this cluster from others, cannot be read: grant get on namespaces with resourceNames [kube-system], or name the cluster with --cluster-id"
    )]
    Read(#[source] kube::Error),
}

impl ClusterError {
    /// The error with its cause.
    pub(crate) fn sentence(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

impl Cluster {
    /// A cluster with this id, or one whose id is to be read from the server.
    pub(crate) fn new(id: Option<ClusterId>) -> Cluster {
        Cluster { id: OnceCell::new_with(id) }
    }

    /// The cluster's id; asks the server until it has answered once.
    ///
    /// # Errors
    /// The server cannot be asked, or its answer is not an id.
    pub(crate) async fn id(&self, client: &Client) -> Result<&ClusterId, ClusterError> {
        let ask = async {
            let namespaces = Api::<Namespace>::all(client.clone());
            let system = namespaces.get("kube-system").await.map_err(ClusterError::Read)?;
            system.uid().unwrap_or_default().parse().map_err(ClusterError::Invalid)
        };
        self.id.get_or_try_init(|| ask).await
    }
}
