//! The server: the store, what is served from it, and who may ask.

use crate::authn::{Authenticator, Peer};
use crate::authz::Authorizer;
use crate::chain::Chain;
use crate::in_force::Work;
use crate::limits::Limits;
use crate::route::Router;
use crate::service::Service;
use crate::state::State;
use crate::status::Failure;
use crate::user::User;
use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;
use steersman_storage::Store;
use tokio::task::JoinHandle;

/// What a server is made of.
pub struct Options {
    /// Where the objects are.
    pub store: Store,
    /// Who knows the users.
    pub authenticator: Authenticator,
    /// Who says what they may do.
    pub authorizer: Arc<dyn Authorizer>,
    /// `host:port` under which clients reach the server, for discovery.
    pub address: String,
    /// What time it is; [`Timestamp::now`] outside of tests.
    pub clock: fn() -> Timestamp,
}

/// A Kubernetes-compatible API server. Dropping it does not stop it: see [`Server::stop`].
pub struct Server {
    state: Arc<State>,
    chain: Arc<Chain>,
    tasks: Vec<JoinHandle<()>>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be read or written.
    #[error("the server cannot be prepared: {message}")]
    Prepare { message: String },
}

// === impl Server ===

impl Server {
    /// Starts a server: makes the namespaces of the system, serves what the definitions in the store define.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn start(options: Options) -> Result<Server, StartError> {
        let Options { store, authenticator, authorizer, address, clock } = options;
        let state = Arc::new(State::new(store, authorizer, crate::definitions::built_in(), clock));
        let fail = |failure: Failure| StartError::Prepare { message: failure.status.message.clone() };
        // The store may have been in use before, and its cache a moment behind.
        state.sync().await.map_err(fail)?;
        crate::registry::observe(&state).map_err(fail)?;
        crate::bootstrap::objects(&state).await.map_err(fail)?;
        let definitions = crate::definitions::start(&state).await.map_err(fail)?;
        let tasks = vec![definitions, crate::expiry::start(&state)];
        let limits = Arc::new(Limits::default());
        let router = Router::new(state.clone(), limits.clone(), address);
        let chain = Arc::new(Chain::new(authenticator, router, limits));
        Ok(Server { state, chain, tasks })
    }

    /// A `tower::Service` whose callers are whom their certificates or tokens say.
    pub fn service(&self) -> Service {
        Service::new(self.chain.clone(), None)
    }

    /// The same service for a caller within the process, who passes authorization and admission like anyone else.
    pub fn service_as(&self, user: User) -> Service {
        Service::new(self.chain.clone(), Some(Peer::new(user)))
    }

    /// What putting definitions in force has taken so far.
    pub fn definition_work(&self) -> Work {
        self.state.definitions.work()
    }

    /// From now on the server is not ready: `/readyz` fails. Everything else is still answered.
    pub fn withdraw(&self) {
        self.state.withdraw();
    }

    /// From now on new requests are told to go elsewhere, and watches end.
    pub fn begin_stop(&self) {
        self.withdraw();
        self.state.begin_stop();
    }

    /// Ends the server's own work: writes that have begun are carried through. Requests under way are the transport's to
    /// wait for, the store is the caller's to close.
    pub async fn stop(self) {
        self.begin_stop();
        self.chain.finish_writes().await;
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the server failed");
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}
