//! The pilot: it tells the proxies of a mesh where requests go, by Services and by routes of the Gateway API.
//!
//! ```text
//!  caches      Services, EndpointSlices, routes, grants; Pods and namespaces     [caches]
//!    v changes, gathered for a moment                                            [debounce]
//!  world       where requests come in, where they go, a verdict on each route    [world], pure
//!    v
//!  resources   what Envoy is told, each encoded once                             [resources], pure
//!    v
//!  scope       what one proxy should have of it: a view, shared by its like      [scope], pure
//!    v
//!  proxies     the streams with their views; what each proxy has                 [proxies], asked by steersman-xds
//!    v acknowledgements
//!  status      conditions of routes and of Pods                                  [status]
//! ```
//!
//! It needs the definitions of the Gateway API (`manifests/mesh/gateway-api`) and nothing of this project's server. Several replicas may
//! serve at once: a version of a resource is a hash of its content. One of them, by Lease, writes the statuses of routes.

mod caches;
mod debounce;
#[rustfmt::skip]
pub mod gateway_api;
mod identity;
mod proxies;
pub mod resources;
pub mod scope;
pub mod serve;
mod status;
pub mod world;

use std::convert::Infallible;
use std::sync::Arc;

use steersman::Manager;
use tokio_util::sync::CancellationToken;

use crate::pilot::caches::Caches;
use crate::pilot::debounce::Changes;
use crate::pilot::identity::Identities;
use crate::pilot::scope::Snapshot;
use crate::pilot::status::{PodConditions, RouteStatuses};
use crate::pilot::world::World;

pub use crate::pilot::identity::{AUDIENCE, Trust};
pub use crate::pilot::proxies::Proxies;

/// The name of the pilot: of its Lease, and in what it logs.
pub const NAME: &str = "steersman-mesh-pilot";

/// Options of the pilot.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// How proxies show which Pod they belong to.
    pub trust: Trust,
    /// The resources that every proxy gets besides.
    pub resources: resources::Options,
}

/// Adds the pilot to a manager, and returns what a server of the protocol asks for views.
///
/// Before the manager runs and its caches are filled, every proxy is refused, and keeps what it has. If the manager has an
/// election, its leader writes the statuses of routes.
pub fn add_to(manager: Manager, options: &Options) -> (Manager, Arc<Proxies>) {
    let client = manager.informers().client().clone();
    let changes = Arc::<Changes>::default();
    let caches = Caches::new(manager.informers(), &changes);
    let identities = Identities::new(client.clone(), caches.clone(), options.trust.clone());
    let proxies = Arc::new(Proxies::new(identities, caches.clone()));
    serve::register_metrics(manager.metrics(), &proxies);

    let known = Arc::clone(&proxies);
    manager.health().ready("views", move || match known.snapshot() {
        Some(_) => Ok(()),
        None => Err("what proxies should have is not known yet"),
    });
    let statuses = RouteStatuses { client: client.clone(), caches: caches.clone(), proxies: Arc::clone(&proxies) };
    let pods = PodConditions { client, caches: caches.clone(), proxies: Arc::clone(&proxies) };
    let (published, resources) = (Arc::clone(&proxies), options.resources.clone());
    let manager = manager
        .run_always("views", move |stop| publish(caches, changes, published, resources, stop))
        .run_always("pod-conditions", move |stop| pods.run(stop))
        .run_leading("route-statuses", move |stop| statuses.run(stop));
    (manager, proxies)
}

/// Publishes a view of every new world until `stop` is cancelled.
async fn publish(
    caches: Caches,
    changes: Arc<Changes>,
    proxies: Arc<Proxies>,
    options: resources::Options,
    stop: CancellationToken,
) -> Result<(), Infallible> {
    let mut snapshot = Arc::<Snapshot>::default();
    let mut is_first = true;
    loop {
        match caches.objects() {
            Ok(objects) => {
                let world = World::of(&objects);
                if is_first || world != snapshot.world {
                    snapshot = Arc::new(Snapshot::of(world, &options, &snapshot));
                }
                is_first = false;
                proxies.publish(&snapshot);
            }
            Err(error) => tracing::debug!(%error, "the caches are not filled yet"),
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = changes.next() => {}
        }
    }
}
