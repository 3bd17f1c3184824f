//! The state that all operations share: the store, the catalog, the authenticator, the authorizer, the clock.
//!
//! Independent of requests, answers and the stages of a write.

use crate::access::authn::{self, Authenticator};
use crate::access::authz::node::Nodes;
use crate::access::authz::rbac::Rbac;
use crate::access::authz::rbac::resource::Resource as RbacResource;
use crate::access::authz::{Authorization, Authorizer, WatchAuthorization};
use crate::http::timeouts::Timeouts;
use crate::metrics::Metrics;
use crate::shared::aggregation::remotes::Remotes;
use crate::shared::compute::{Compute, Pool};
use crate::shared::conversion::webhook::Caller;
use crate::shared::follower::Progress;
use crate::shared::follower::compiled::{Compiled, Dependents};
use crate::shared::follower::in_force::AppliedRevision;
use crate::shared::nodes::agents::Agents;
use crate::shared::nodes::connections::{Connections, KubeletClient};
use crate::shared::nodes::resource_metrics::Offer;
use crate::shared::request::memory::Memory;
use crate::shared::status::Failure;
use crate::shared::webhook::{Clients, Identity, Services};
use crate::write::admission::classes::Classes;
use crate::write::admission::dynamic::policy::Policies;
use crate::write::admission::dynamic::webhooks::Webhooks;
use crate::write::admission::plugin::Plugin;
use crate::write::initializers::{self, Configured};
use crate::write::registry::service_addresses::allocator::{Allocator, Ranges};
use crate::write::registry::service_addresses::follower::Part;
use crate::write::writes::Writes;
use arc_swap::ArcSwap;
use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::catalog::{Catalog, Resource};
use steersman_kinds::crd;
use steersman_machinery::{GroupResource, Object, ObjectKey, Revision};
use steersman_schema::Edition;
use steersman_storage::{ReadError, Store, WaitError};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The longest that a read waits for a resourceVersion that the cache has not reached yet.
const VERSION_WAIT: Duration = Duration::from_secs(3);

/// The state that operations share.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    /// The admission plugins that are on.
    pub(crate) admission: Vec<&'static dyn Plugin>,
    /// The roles and bindings in force. A writer of one may grant no more than he has, whatever the authorizer is.
    pub(crate) rbac: Arc<Rbac>,
    /// The admission policies in force.
    pub(crate) policies: Arc<Policies>,
    /// The default classes in force.
    pub(crate) classes: Arc<Classes>,
    /// The objects that belong to each node; `None` if no authorizer needs them.
    pub(crate) nodes: Option<Arc<Nodes>>,
    /// Allocates the addresses and ports of Services.
    pub(crate) services: Arc<Allocator>,
    pub(crate) definitions: AppliedRevision,
    /// The resources that are compiled; a request waits until their compiled form is as new as what could be read.
    pub(crate) compiled: Compiled,
    /// `None` if the server runs without initializers.
    pub(crate) initializers: Option<Arc<Configured>>,
    pub(crate) metrics: Metrics,
    /// Whether anything is stored.
    pub(crate) writes: Writes,
    pub(crate) timeouts: Timeouts,
    pub(crate) watch_authorization: WatchAuthorization,
    /// Where heavy requests are computed.
    pub(crate) compute: Arc<Pool>,
    /// The memory that is kept for users.
    pub(crate) memory: Memory,
    /// The agents of nodes within the process.
    pub(crate) agents: Option<Arc<dyn Agents>>,
    /// The usage of nodes and Pods; `None` if there is no source, and then the group is not served.
    pub(crate) resource_metrics: Option<Offer>,
    /// Calls kubelets, and what listens on nodes, in Pods and behind Services.
    pub(crate) connections: Connections,
    /// The tasks of upgraded connections.
    pub(crate) tunnels: TaskTracker,
    /// Calls the webhooks that objects name.
    pub(crate) webhooks: Arc<Clients>,
    /// The servers behind APIServices.
    pub(crate) remotes: Arc<Remotes>,
    /// Calls conversion webhooks, and measures their durations.
    pub(crate) conversions: Arc<Caller>,
    /// The admission webhooks in force.
    pub(crate) admission_webhooks: Arc<Webhooks>,
    catalog: ArcSwap<Catalog>,
    /// Notified whenever another catalog is served.
    catalog_changed: watch::Sender<()>,
    clock: fn() -> Timestamp,
    stopping: CancellationToken,
    withdrawn: CancellationToken,
}

impl State {
    pub(crate) fn new(
        store: Store,
        authentication: authn::Options,
        authorization: Authorization,
        admission: Vec<&'static dyn Plugin>,
        catalog: Catalog,
        clock: fn() -> Timestamp,
    ) -> State {
        let rbac = Arc::new(Rbac::default());
        let nodes = Arc::new(Nodes::default());
        let has_nodes = authorization.has_nodes();
        let webhooks = Arc::new(Clients::new(store.clone(), Services::default()));
        State {
            authenticator: Authenticator::new(authentication, store.clone()),
            conversions: Arc::new(Caller::new(webhooks.clone())),
            remotes: Arc::new(Remotes::new(store.clone(), webhooks.clone(), None)),
            webhooks,
            admission_webhooks: Arc::default(),
            store,
            authorizer: authorization.authorizer(&rbac, &nodes),
            admission,
            rbac,
            policies: Arc::default(),
            classes: Arc::default(),
            nodes: has_nodes.then_some(nodes),
            services: Arc::default(),
            definitions: AppliedRevision::default(),
            compiled: Compiled::default(),
            initializers: None,
            metrics: Metrics::default(),
            writes: Writes::Accepted,
            timeouts: Timeouts::default(),
            watch_authorization: WatchAuthorization::default(),
            compute: Arc::new(Pool::new(Compute::default())),
            memory: Memory::default(),
            agents: None,
            resource_metrics: None,
            connections: Connections::new(KubeletClient::default()),
            tunnels: TaskTracker::new(),
            catalog: ArcSwap::from_pointee(catalog),
            catalog_changed: watch::Sender::new(()),
            clock,
            stopping: CancellationToken::new(),
            withdrawn: CancellationToken::new(),
        }
    }

    /// Allocates from these ranges. Must be called before anything is read or written.
    #[must_use]
    pub(crate) fn with_services(self, ranges: Ranges) -> State {
        State { services: Arc::new(Allocator::new(ranges)), ..self }
    }

    /// Takes writes, or none; then nobody outside is called either. Must be called after
    /// [`State::with_webhook_services`].
    #[must_use]
    pub(crate) fn with_writes(self, writes: Writes) -> State {
        if let Some(why) = writes.refusal() {
            self.webhooks.close(why);
        }
        State { writes, ..self }
    }

    /// Calls the webhooks and servers behind these Services at their mapped addresses, the servers with this certificate.
    /// Must be called before anything is written.
    #[must_use]
    pub(crate) fn with_webhook_services(self, services: Services, identity: Option<Identity>) -> State {
        let webhooks = Arc::new(Clients::new(self.store.clone(), services));
        let remotes = Arc::new(Remotes::new(self.store.clone(), webhooks.clone(), identity));
        State { conversions: Arc::new(Caller::new(webhooks.clone())), webhooks, remotes, ..self }
    }

    /// Makes requests wait until everything that could be read is in force, flow schemas and priority levels (`flow`)
    /// included. Must be called before the followers start.
    #[must_use]
    pub(crate) fn catching_up(mut self, flow: Vec<(GroupResource, Progress)>) -> State {
        let (store, compiled) = (&self.store, &mut self.compiled);
        for resource in RbacResource::ALL {
            compiled.add(store, &resource.storage(), Dependents::All, self.rbac.progress(resource));
        }
        for (resource, progress) in flow {
            compiled.add(store, &resource, Dependents::All, &progress);
        }
        for (resource, progress) in self.policies.followed().into_iter().chain(self.admission_webhooks.progress()) {
            compiled.add(store, &resource, Dependents::Admitted, progress);
        }
        for (resource, progress) in self.classes.followed() {
            compiled.add(store, &resource, Dependents::Admitted, progress);
        }
        for part in Part::ALL {
            compiled.add(store, &part.resource(), Dependents::OnServices, self.services.followers.progress(part));
        }
        if let Some(initializers) = &self.initializers {
            compiled.add(store, &initializers::resource(), Dependents::Admitted, initializers.progress());
        }
        let definitions = GroupResource::new(crd::GROUP, crd::PLURAL);
        compiled.add(store, &definitions, Dependents::OnDefinitions, self.definitions.progress());
        self
    }

    /// The definitions of the kinds that are served.
    pub(crate) fn edition(&self) -> Edition {
        if self.initializers.is_some() { Edition::WithInitializers } else { Edition::Kubernetes }
    }

    /// The catalog that is served now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Replaces the served catalog by its successor. `next` is called again if another catalog was served in the
    /// meantime.
    pub(crate) fn serve_next(&self, next: impl Fn(&Catalog) -> Catalog) {
        self.catalog.rcu(|catalog| next(catalog));
        self.catalog_changed.send_replace(());
    }

    /// A receiver that is notified when another catalog is served.
    pub(crate) fn catalog_changes(&self) -> watch::Receiver<()> {
        self.catalog_changed.subscribe()
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    pub(crate) fn clock(&self) -> fn() -> Timestamp {
        self.clock
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Resolves when the server stops.
    pub(crate) async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Cancelled when the server stops.
    pub(crate) fn stopping_token(&self) -> &CancellationToken {
        &self.stopping
    }

    /// From now on requests get 429 and watches end.
    pub(crate) fn begin_stop(&self) {
        self.stopping.cancel();
    }

    /// Whether readiness has been withdrawn.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.withdrawn.is_cancelled()
    }

    /// Resolves when readiness is withdrawn, which is before the server stops.
    pub(crate) async fn withdrawn(&self) {
        self.withdrawn.cancelled().await;
    }

    /// Makes the readiness check fail from now on.
    pub(crate) fn withdraw(&self) {
        self.withdrawn.cancel();
    }

    /// The object as it was when a request arrived, or later.
    pub(crate) async fn get_since(
        &self,
        arrived: Instant,
        resource: &GroupResource,
        key: &ObjectKey,
    ) -> Result<Option<Arc<Object>>, Failure> {
        self.sync_since(arrived).await?;
        self.store.get_readable(resource, key).map_err(|error| Failure::of_read(&error))
    }

    /// The current object, by a linearizable read.
    pub(crate) async fn get(&self, resource: &GroupResource, key: &ObjectKey) -> Result<Option<Arc<Object>>, Failure> {
        self.store.get(resource, key).await.map_err(|error| Failure::of_read(&error))
    }

    /// The object as the cache has it, or as it is stored: the cache may lag behind a creation that was already answered.
    pub(crate) async fn find(&self, resource: &GroupResource, key: &ObjectKey) -> Result<Option<Arc<Object>>, Failure> {
        match self.store.get_cached(resource, key) {
            Some(found) => Ok(Some(found)),
            None => self.get(resource, key).await,
        }
    }

    /// An object that the server itself maintains: an unreadable one is removed, so that the caller makes it anew.
    pub(crate) async fn get_own(
        &self,
        resource: &GroupResource,
        key: &ObjectKey,
    ) -> Result<Option<Arc<Object>>, Failure> {
        match self.store.get(resource, key).await {
            Err(error @ ReadError::Unreadable { .. }) => {
                self.remove_own(resource, key, &Failure::of_read(&error)).await?;
                Ok(None)
            }
            found => found.map_err(|error| Failure::of_read(&error)),
        }
    }

    /// Removes the unreadable entry of an object that the server itself maintains.
    ///
    /// # Errors
    /// With the given failure when the entry is encrypted with a key that is not there: it is whole, and readable with the key.
    pub(crate) async fn remove_own(
        &self,
        resource: &GroupResource,
        key: &ObjectKey,
        failure: &Failure,
    ) -> Result<(), Failure> {
        let is_sealed = self.store.is_sealed(resource, key).await;
        if is_sealed.map_err(|error| Failure::of_read(&error))? {
            return Err(failure.clone());
        }
        tracing::warn!(error = %failure.status.message, "an object of the server's own is made anew");
        let removed = self.store.delete_unreadable(resource, key).await;
        removed.map_err(|error| Failure::of_write(&error, resource, &key.name))?;
        Ok(())
    }

    /// Waits until the cache has everything that was committed before the call.
    pub(crate) async fn sync(&self) -> Result<Revision, Failure> {
        self.store.sync().await.map_err(|error| Failure::of_read(&error))
    }

    /// Waits until the cache has everything that was committed when a request arrived.
    pub(crate) async fn sync_since(&self, arrived: Instant) -> Result<Revision, Failure> {
        self.store.sync_since(arrived).await.map_err(|error| Failure::of_read(&error))
    }

    /// Waits up to [`VERSION_WAIT`] for a version that the cache may not have reached yet.
    pub(crate) async fn wait_for(&self, revision: Revision) -> Result<(), Failure> {
        match self.store.wait_for(revision, Instant::now() + VERSION_WAIT).await {
            Ok(()) => Ok(()),
            Err(WaitError::TooLarge { requested, current }) => Err(Failure::version_too_large(requested, current)),
            Err(WaitError::Closed) => Err(Failure::unavailable("the server is shutting down")),
        }
    }

    /// Waits until the definitions that can be read are in force.
    pub(crate) async fn catch_up_with_definitions(&self) {
        let newest = self.store.newest(&GroupResource::new(crd::GROUP, crd::PLURAL)).revision();
        self.definitions.progress().wait_for(newest).await;
    }

    /// Called after every write. Waits until a definition, role, policy, binding, webhook configuration, default class,
    /// ServiceCIDR, IPAddress or InitializerConfiguration is in force.
    ///
    /// # Errors
    /// When it was stored but could not be put in force.
    pub(crate) async fn written(&self, resource: &Resource, revision: Revision) -> Result<(), Failure> {
        if is_definition(resource) {
            return self.definitions.wait_for(revision).await;
        }
        let is_in_force = match &self.initializers {
            Some(initializers) if is_initializers(resource) => initializers.wait_for(revision).await,
            Some(_) | None => match RbacResource::find(&resource.group, &resource.plural) {
                Some(resource) => self.rbac.wait_for(resource, revision).await,
                None => {
                    self.policies.wait_for(resource, revision).await
                        && self.admission_webhooks.wait_for(resource, revision).await
                        && self.classes.wait_for(resource, revision).await
                        && self.services.wait_for(&resource.storage, revision).await
                }
            },
        };
        // A stopping server serves no further request under the change.
        if is_in_force || self.is_stopping() {
            return Ok(());
        }
        let what = &resource.plural;
        Err(Failure::internal(format!("the write was stored, but changes of {what} no longer come into force")))
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

/// Whether a resource is `initializerconfigurations`.
fn is_initializers(resource: &Resource) -> bool {
    *resource.group == *"admissionregistration.k8s.io" && *resource.plural == *"initializerconfigurations"
}

/// Whether a resource is `customresourcedefinitions`.
fn is_definition(resource: &Resource) -> bool {
    *resource.group == *crd::GROUP && *resource.plural == *crd::PLURAL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::authz::rbac;
    use crate::background::definitions;
    use crate::write::admission::Plugins;
    use crate::write::admission::classes;
    use crate::write::admission::dynamic::policy;
    use crate::write::admission::dynamic::webhooks;
    use steersman_kinds::runtime_config::RuntimeConfig;
    use steersman_storage::{Memory, Options};

    #[tokio::test]
    async fn a_write_that_ends_while_the_server_stops_is_answered() {
        let store = Store::open(Arc::new(Memory::new()), Options::default()).await.unwrap();
        let (authentication, authorization) = (authn::Options::default(), Authorization::default());
        let catalog = definitions::configured(&RuntimeConfig::default());
        let plugins = Plugins::default().asked();
        let state = State::new(store, authentication, authorization, plugins, catalog, || Timestamp::UNIX_EPOCH);
        let stopping = state.stopping_token();
        let mut tasks = rbac::follower::start(&state.store, &state.rbac, stopping).unwrap();
        tasks.extend(policy::follower::start(&state.store, &state.policies, stopping).unwrap());
        tasks.extend(webhooks::start(&state.store, &state.admission_webhooks, stopping).unwrap());
        tasks.extend(classes::start(&state.store, &state.classes, stopping).unwrap());
        state.begin_stop();
        for task in tasks {
            task.await.unwrap();
        }
        let (admission, access) = ("admissionregistration.k8s.io", "rbac.authorization.k8s.io");
        for (group, plural) in [
            (admission, "mutatingadmissionpolicies"),
            (admission, "mutatingwebhookconfigurations"),
            (admission, "validatingadmissionpolicies"),
            (admission, "validatingadmissionpolicybindings"),
            (access, "clusterroles"),
            ("scheduling.k8s.io", "priorityclasses"),
        ] {
            let catalog = state.catalog();
            let served = catalog.find(group, "v1", plural).unwrap();
            assert!(state.written(&served.resource, Revision(1_000)).await.is_ok(), "{plural}");
        }
    }
}
