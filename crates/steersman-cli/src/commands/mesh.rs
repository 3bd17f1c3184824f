//! `steersman mesh`: the parts of the mesh, against any Kubernetes.

mod inject;

use crate::Failure;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum MeshCommand {
    /// Puts a sidecar into Pods while they are created: as an initializer, as a mutating webhook, or both.
    ///
    /// The sidecar is in a ConfigMap, under the key `config`: YAML with containers, initContainers, volumes and so on. Who
    /// gets it is said by labels and annotations of Pods and namespaces; docs/mesh.md has the rules. As an initializer it needs a server with
    /// --enable-initializers, as a webhook a MutatingWebhookConfiguration (manifests/mesh/injector/webhook.yaml).
    Inject(inject::InjectOptions),
}

/// Runs a part of the mesh until it ends.
pub(crate) async fn run(command: MeshCommand) -> Result<(), Failure> {
    match command {
        MeshCommand::Inject(options) => inject::run(options).await,
    }
}
