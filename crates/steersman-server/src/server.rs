//! The server: the store, what is served from it, and who may ask.

use crate::authn::{Authenticator, Peer};
use crate::authz::Authorizer;
use crate::builtin::service::Allocator;
use crate::catalog::{Catalog, Resource};
use crate::definitions::Definitions;
use crate::discovery::Discovery;
use crate::openapi::OpenApi;
use crate::registry::read_failure;
use crate::service::Service;
use crate::status::Failure;
use crate::user::User;
use arc_swap::ArcSwap;
use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use steersman_machinery::Revision;
use steersman_storage::{Store, WaitError};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Requests that read, carried out at a time; more are told to come back.
const READS_MAX: usize = 400;
/// Requests that write, carried out at a time.
const WRITES_MAX: usize = 200;
/// Requests whose bodies are on their way at a time.
const RECEIVING_MAX: usize = 1000;
/// How long a read waits for a version that is not there yet.
const VERSION_WAIT: Duration = Duration::from_secs(3);

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
    inner: Arc<Inner>,
    tasks: Vec<JoinHandle<()>>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be read or written.
    #[error("the server cannot be prepared: {message}")]
    Prepare { message: String },
}

/// What every request needs.
pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) address: String,
    /// The addresses and ports that Services have.
    pub(crate) services: Allocator,
    pub(crate) reads: Arc<Semaphore>,
    pub(crate) writes: Arc<Semaphore>,
    pub(crate) receiving: Semaphore,
    /// The writes that have begun.
    pub(crate) writing: TaskTracker,
    pub(crate) definitions: Definitions,
    face: ArcSwap<Face>,
    /// Rung whenever something else is served.
    face_changed: watch::Sender<()>,
    clock: fn() -> Timestamp,
    stopping: CancellationToken,
    withdrawn: AtomicBool,
}

/// What is served, in the forms in which it is asked for. Swapped whole.
pub(crate) struct Face {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) discovery: Discovery,
    pub(crate) openapi: OpenApi,
}

// === impl Server ===

impl Server {
    /// Starts a server: makes the namespaces of the system, serves what the definitions in the store define.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn start(options: Options) -> Result<Server, StartError> {
        let inner = Arc::new(Inner {
            services: Allocator::default(),
            store: options.store,
            authenticator: options.authenticator,
            authorizer: options.authorizer,
            address: options.address,
            reads: Arc::new(Semaphore::new(READS_MAX)),
            writes: Arc::new(Semaphore::new(WRITES_MAX)),
            receiving: Semaphore::new(RECEIVING_MAX),
            writing: TaskTracker::new(),
            definitions: Definitions::default(),
            face: ArcSwap::from_pointee(Face::new(crate::definitions::built_in())),
            face_changed: watch::Sender::new(()),
            clock: options.clock,
            stopping: CancellationToken::new(),
            withdrawn: AtomicBool::new(false),
        });
        let fail = |failure: Failure| StartError::Prepare { message: failure.status.message.clone() };
        // The store may have been in use before, and its cache a moment behind.
        inner.sync().await.map_err(fail)?;
        crate::registry::observe(&inner).map_err(fail)?;
        crate::bootstrap::namespaces(&inner).await.map_err(fail)?;
        let definitions = crate::definitions::start(&inner).await.map_err(fail)?;
        let tasks = vec![definitions, crate::expiry::start(&inner)];
        Ok(Server { inner, tasks })
    }

    /// The door: a `tower::Service` whose callers are whom their certificates or tokens say.
    pub fn service(&self) -> Service {
        Service::new(self.inner.clone(), None)
    }

    /// The same door for a caller within the process, who passes authorization and admission like anyone else.
    pub fn service_as(&self, user: User) -> Service {
        Service::new(self.inner.clone(), Some(Peer(user)))
    }

    /// From now on the server is not ready: `/readyz` fails. Everything else is still answered.
    pub fn withdraw(&self) {
        self.inner.withdrawn.store(true, Ordering::Relaxed);
    }

    /// From now on new requests are told to go elsewhere, and watches end.
    pub fn begin_stop(&self) {
        self.withdraw();
        self.inner.stopping.cancel();
    }

    /// Ends the server's own work: writes that have begun are carried through. Requests under way are the transport's to
    /// wait for, the store is the caller's to close.
    pub async fn stop(self) {
        self.begin_stop();
        self.inner.writing.close();
        self.inner.writing.wait().await;
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the server failed");
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.inner.address).finish_non_exhaustive()
    }
}

// === impl Inner ===

impl Inner {
    /// What is served at the moment.
    pub(crate) fn face(&self) -> Arc<Face> {
        self.face.load_full()
    }

    /// Serves something else from now on.
    pub(crate) fn serve(&self, catalog: Catalog) {
        let next = self.face().after(catalog);
        self.face.store(Arc::new(next));
        self.face_changed.send_replace(());
    }

    /// Tells when something else is served.
    pub(crate) fn face_changes(&self) -> watch::Receiver<()> {
        self.face_changed.subscribe()
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Whether clients should still be sent here.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Relaxed)
    }

    /// Resolves when the server stops.
    pub(crate) async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Waits until what was committed can be read.
    pub(crate) async fn sync(&self) -> Result<Revision, Failure> {
        self.store.sync().await.map_err(|error| read_failure(&error))
    }

    /// Waits a moment for a version that may not be there yet.
    pub(crate) async fn wait_for(&self, revision: Revision) -> Result<(), Failure> {
        match self.store.wait_for(revision, Instant::now() + VERSION_WAIT).await {
            Ok(()) => Ok(()),
            Err(WaitError::TooLarge { requested, current }) => Err(Failure::version_too_large(requested, current)),
            Err(WaitError::Closed) => Err(Failure::unavailable("the server is shutting down")),
        }
    }

    /// Called after every write: a definition is in force before its writer is answered.
    pub(crate) async fn written(&self, resource: &Resource, revision: Revision) {
        if crate::definitions::is_definition(resource) {
            // Both arms only wait. Who would put it in force ends with the server.
            tokio::select! {
                () = self.definitions.wait_for(revision) => {}
                () = self.stopping() => {}
            }
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("address", &self.address).finish_non_exhaustive()
    }
}

// === impl Face ===

impl Face {
    fn new(catalog: Catalog) -> Face {
        let catalog = Arc::new(catalog);
        Face { discovery: Discovery::new(catalog.clone()), openapi: OpenApi::new(catalog.clone()), catalog }
    }

    /// The next face, which takes over what has not changed.
    fn after(&self, catalog: Catalog) -> Face {
        let catalog = Arc::new(catalog);
        Face { discovery: Discovery::new(catalog.clone()), openapi: self.openapi.after(catalog.clone()), catalog }
    }
}
