//! `steersman mesh`: the parts of the mesh, against any Kubernetes.

mod address;
mod inject;
mod pilot;
mod state;

use crate::Failure;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum MeshCommand {
    /// Puts a sidecar into Pods while they are created: as an initializer, as a mutating webhook, or both.
    ///
    /// The sidecar is in a ConfigMap, under the key `config`: YAML with containers, initContainers, volumes and so on. Who
    /// gets it is said by labels and annotations of Pods and namespaces; docs/mesh.md has the rules. As an initializer it needs a server with
    /// --enable-initializers, as a webhook a MutatingWebhookConfiguration (manifests/mesh/injector/webhook.yaml).
    Inject(Box<inject::InjectOptions>),
    /// Tells the Envoys of a mesh where requests go, by Services and by HTTPRoutes and GRPCRoutes that have a Service as parent.
    ///
    /// The cluster needs the definitions of the Gateway API (manifests/mesh/gateway-api). Envoys ask over ADS, SotW or delta; docs/mesh-traffic.md
    /// has their bootstrap.
    Pilot(Box<pilot::PilotOptions>),
    /// Prints the proxies that are connected to a pilot: whether they have all they should, and what they refuse.
    Proxies(state::StateOptions),
    /// Prints the routes of a mesh: where they count, what is wrong with them, and how many proxies have them.
    Routes(state::StateOptions),
}

/// Runs a part of the mesh until it ends.
pub(crate) async fn run(command: MeshCommand) -> Result<(), Failure> {
    match command {
        MeshCommand::Inject(options) => inject::run(*options).await,
        MeshCommand::Pilot(options) => pilot::run(*options).await,
        MeshCommand::Proxies(options) => state::proxies(&options).await,
        MeshCommand::Routes(options) => state::routes(&options).await,
    }
}
