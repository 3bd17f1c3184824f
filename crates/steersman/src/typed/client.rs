//! A client of one kind in one namespace: the methods that client-go's generator writes for every kind.

use std::fmt::{self, Debug};
use std::marker::PhantomData;

use futures::{Stream, StreamExt};
use kube::Resource;
use kube::api::{
    DeleteParams, GetParams, ListParams, ObjectList, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::{Request, subresource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::shared::key::ObjectKey;
use crate::shared::selection::{Scope, resource_name};
use crate::typed::apply::ApplyConfiguration;
use crate::writing::patch::Force;
use crate::writing::write::WriteError;

/// Requests for objects of the kind `K`. `S` says which subresources the kind has: methods for others do not exist,
/// except [`Client::patch_subresource`], which takes the name of any.
///
/// Objects are written to the namespace that they name, or else to the client's.
pub struct Client<K: Resource, S = NoSubresources> {
    client: kube::Client,
    dynamic: K::DynamicType,
    scope: Scope,
    field_manager: Option<String>,
    dry_run: bool,
    subresources: PhantomData<fn() -> S>,
}

/// The kind has neither `/status` nor `/scale`.
#[derive(Clone, Copy, Debug)]
pub enum NoSubresources {}

/// The kind has `/status`.
#[derive(Clone, Copy, Debug)]
pub enum Status {}

/// The kind has `/scale`.
#[derive(Clone, Copy, Debug)]
pub enum Scale {}

/// The kind has `/status` and `/scale`.
#[derive(Clone, Copy, Debug)]
pub enum StatusAndScale {}

/// The kind's status is written at `/status`.
pub trait HasStatus {}

impl HasStatus for Status {}
impl HasStatus for StatusAndScale {}

/// The kind's number of replicas is read and written at `/scale`.
pub trait HasScale {}

impl HasScale for Scale {}
impl HasScale for StatusAndScale {}

/// The verb of a request, for errors.
#[derive(Clone, Copy)]
struct Verb(&'static str);

// === impl Client ===

impl<K, S> Client<K, S>
where
    K: Resource,
    K::DynamicType: Default,
{
    /// A client for the objects in `scope`: a namespace by its name, or [`Scope::All`] for cluster-scoped kinds, and for
    /// listing and watching in all namespaces.
    pub fn new(client: kube::Client, scope: impl Into<Scope>) -> Self {
        Self::new_with(client, K::DynamicType::default(), scope)
    }
}

impl<K: Resource, S> Client<K, S> {
    /// As [`Client::new`], for types that are known only at run time.
    pub fn new_with(client: kube::Client, dynamic: K::DynamicType, scope: impl Into<Scope>) -> Self {
        Self { client, dynamic, scope: scope.into(), field_manager: None, dry_run: false, subresources: PhantomData }
    }

    /// The name under which `managedFields` record the creates, updates and patches of this client. Without it, the
    /// server takes the first part of the user agent.
    pub fn field_manager(mut self, name: impl Into<String>) -> Self {
        self.field_manager = Some(name.into());
        self
    }

    /// Writes are checked and answered as always, but not stored.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// The client that the requests go through.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// The key of `name` in this client's namespace.
    fn key(&self, name: &str) -> ObjectKey {
        match self.scope.namespace() {
            None => ObjectKey::cluster(name),
            Some(namespace) => ObjectKey::namespaced(namespace, name),
        }
    }

    /// The key of `object`, in this client's namespace if it names none.
    fn key_of(&self, object: &K) -> ObjectKey {
        self.key_in(object.meta())
    }

    fn key_in(&self, metadata: &kube::core::ObjectMeta) -> ObjectKey {
        // An object that is to be created may have no name yet, only `generateName`.
        let name = metadata.name.as_deref().or(metadata.generate_name.as_deref()).unwrap_or_default();
        match metadata.namespace.as_deref() {
            None => self.key(name),
            Some(namespace) => ObjectKey::namespaced(namespace, name),
        }
    }

    fn request(&self, key: &ObjectKey) -> Request {
        Request::new(K::url_path(&self.dynamic, key.namespace()))
    }

    fn post_params(&self) -> PostParams {
        PostParams { dry_run: self.dry_run, field_manager: self.field_manager.clone() }
    }

    fn failed(&self, verb: Verb, key: &ObjectKey, source: kube::Error) -> WriteError {
        WriteError { verb: verb.0, resource: resource_name::<K>(&self.dynamic), key: key.clone(), source }
    }

    /// Sends a request and decodes the answer.
    async fn send<T: DeserializeOwned>(
        &self,
        verb: Verb,
        key: &ObjectKey,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, WriteError> {
        let request = request.map_err(|error| self.failed(verb, key, kube::Error::BuildRequest(error)))?;
        self.client.request(request).await.map_err(|error| self.failed(verb, key, error))
    }

    /// `object` as the body of a request.
    fn body(&self, verb: Verb, key: &ObjectKey, object: &impl Serialize) -> Result<Vec<u8>, WriteError> {
        serde_json::to_vec(object).map_err(|error| self.failed(verb, key, kube::Error::SerdeError(error)))
    }
}

impl<K, S> Client<K, S>
where
    K: Resource + DeserializeOwned,
{
    /// The object `name`, from the server; a [`crate::Lister`] reads from a cache.
    ///
    /// # Errors
    /// [`WriteError`]; see [`WriteError::is_not_found`].
    pub async fn get(&self, name: &str) -> Result<K, WriteError> {
        let key = self.key(name);
        self.send(Verb("get"), &key, self.request(&key).get(name, &GetParams::default())).await
    }

    /// The object `name`, or `None` if it does not exist.
    ///
    /// # Errors
    /// [`WriteError`], which is never [`WriteError::is_not_found`].
    pub async fn get_opt(&self, name: &str) -> Result<Option<K>, WriteError> {
        match self.get(name).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One page of objects, or all of them.
    ///
    /// # Errors
    /// [`WriteError`], whose key has `*` in place of a name.
    pub async fn list(&self, params: &ListParams) -> Result<ObjectList<K>, WriteError>
    where
        K: Clone,
    {
        let key = self.key("*");
        self.send(Verb("list"), &key, self.request(&key).list(params)).await
    }

    /// Watches the objects after `resource_version`, until the server or the caller ends the stream. For a cache that
    /// is kept up to date over broken connections, use an [`crate::cache::Informer`].
    ///
    /// # Errors
    /// [`WriteError`], whose key has `*` in place of a name; later ones come down the stream.
    pub async fn watch(
        &self,
        params: &WatchParams,
        resource_version: &str,
    ) -> Result<impl Stream<Item = Result<WatchEvent<K>, kube::Error>> + Send + use<K, S>, WriteError>
    where
        K: Clone + Send + 'static,
    {
        let (key, verb) = (self.key("*"), Verb("watch"));
        let request = self.request(&key).watch(params, resource_version);
        let request = request.map_err(|error| self.failed(verb, &key, kube::Error::BuildRequest(error)))?;
        let events = self.client.request_events(request).await.map_err(|error| self.failed(verb, &key, error))?;
        Ok(events.boxed())
    }

    /// Creates `object`.
    ///
    /// # Errors
    /// [`WriteError`]; its status is 409 where the name is taken.
    pub async fn create(&self, object: &K) -> Result<K, WriteError>
    where
        K: Serialize,
    {
        let (key, verb) = (self.key_of(object), Verb("create"));
        let body = self.body(verb, &key, object)?;
        self.send(verb, &key, self.request(&key).create(&self.post_params(), body)).await
    }

    /// Replaces the object with `object`. If `object` has a resource version, the write fails on any other version.
    ///
    /// # Errors
    /// [`WriteError`]; see [`WriteError::is_conflict`].
    pub async fn update(&self, object: &K) -> Result<K, WriteError>
    where
        K: Serialize,
    {
        let (key, verb) = (self.key_of(object), Verb("update"));
        let body = self.body(verb, &key, object)?;
        self.send(verb, &key, self.request(&key).replace(key.name(), &self.post_params(), body)).await
    }

    /// Replaces the status with that of `object`, and nothing else.
    ///
    /// # Errors
    /// [`WriteError`]; see [`WriteError::is_conflict`].
    pub async fn update_status(&self, object: &K) -> Result<K, WriteError>
    where
        K: Serialize,
        S: HasStatus,
    {
        let (key, verb) = (self.key_of(object), Verb("update the status of"));
        let body = self.body(verb, &key, object)?;
        let request = self.request(&key).replace_subresource("status", key.name(), &self.post_params(), body);
        self.send(verb, &key, request).await
    }

    /// Changes the object `name` by a patch: `Patch::Merge`, `Patch::Json` or, for Kubernetes' own kinds, `Patch::Strategic`.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn patch<P: Serialize + Debug>(&self, name: &str, patch: &Patch<P>) -> Result<K, WriteError> {
        let key = self.key(name);
        self.send(Verb("patch"), &key, self.request(&key).patch(name, &self.patch_params(), patch)).await
    }

    /// As [`Client::patch`], on a subresource.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn patch_subresource<P: Serialize + Debug>(
        &self,
        name: &str,
        subresource: &str,
        patch: &Patch<P>,
    ) -> Result<K, WriteError> {
        let key = self.key(name);
        let request = self.request(&key).patch_subresource(subresource, name, &self.patch_params(), patch);
        self.send(Verb("patch"), &key, request).await
    }

    /// Server-side apply: sets the fields of `configuration`, which `manager` owns from then on. Fields that `manager`
    /// applied before and that `configuration` does not have are removed.
    ///
    /// # Errors
    /// [`WriteError`]; without force a field that another manager owns is a conflict.
    pub async fn apply<C>(&self, configuration: &C, manager: &str, force: Force) -> Result<K, WriteError>
    where
        C: ApplyConfiguration<Object = K>,
    {
        self.apply_to(None, configuration, manager, force).await
    }

    /// As [`Client::apply`], for the status.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn apply_status<C>(&self, configuration: &C, manager: &str, force: Force) -> Result<K, WriteError>
    where
        C: ApplyConfiguration<Object = K>,
        S: HasStatus,
    {
        self.apply_to(Some("status"), configuration, manager, force).await
    }

    async fn apply_to<C>(
        &self,
        subresource: Option<&str>,
        configuration: &C,
        manager: &str,
        force: Force,
    ) -> Result<K, WriteError>
    where
        C: ApplyConfiguration<Object = K>,
    {
        let (key, verb) = (self.key_in(configuration.metadata()), Verb("apply"));
        let tree = serde_json::to_value(configuration);
        let mut tree = tree.map_err(|error| self.failed(verb, &key, kube::Error::SerdeError(error)))?;
        tree["apiVersion"] = K::api_version(&self.dynamic).into();
        tree["kind"] = K::kind(&self.dynamic).into();
        if let Some(namespace) = key.namespace() {
            tree["metadata"]["namespace"] = namespace.into();
        }
        let params = PatchParams { dry_run: self.dry_run, force: force == Force::Yes, ..PatchParams::apply(manager) };
        let (request, patch) = (self.request(&key), Patch::Apply(tree));
        let request = match subresource {
            None => request.patch(key.name(), &params, &patch),
            Some(subresource) => request.patch_subresource(subresource, key.name(), &params, &patch),
        };
        self.send(verb, &key, request).await
    }

    fn patch_params(&self) -> PatchParams {
        PatchParams { dry_run: self.dry_run, field_manager: self.field_manager.clone(), ..PatchParams::default() }
    }
}

impl<K: Resource, S> Client<K, S> {
    /// Deletes the object `name`. It may stay for a while, until its finalizers are gone.
    ///
    /// # Errors
    /// [`WriteError`]; see [`WriteError::is_not_found`].
    pub async fn delete(&self, name: &str, params: &DeleteParams) -> Result<(), WriteError> {
        let key = self.key(name);
        let params = DeleteParams { dry_run: self.dry_run || params.dry_run, ..params.clone() };
        let deleted: Result<serde::de::IgnoredAny, WriteError> =
            self.send(Verb("delete"), &key, self.request(&key).delete(name, &params)).await;
        deleted.map(drop)
    }

    /// Deletes every object of this client's namespace that `list` selects.
    ///
    /// # Errors
    /// [`WriteError`], whose key has `*` in place of a name.
    pub async fn delete_collection(&self, params: &DeleteParams, list: &ListParams) -> Result<(), WriteError> {
        let key = self.key("*");
        let params = DeleteParams { dry_run: self.dry_run || params.dry_run, ..params.clone() };
        let deleted: Result<serde::de::IgnoredAny, WriteError> =
            self.send(Verb("delete"), &key, self.request(&key).delete_collection(&params, list)).await;
        deleted.map(drop)
    }

    /// The numbers of replicas that the object `name` wants and has.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn get_scale(&self, name: &str) -> Result<subresource::Scale, WriteError>
    where
        S: HasScale,
    {
        let key = self.key(name);
        self.send(Verb("get the scale of"), &key, self.request(&key).get_subresource("scale", name)).await
    }

    /// Sets the number of replicas that the object `name` wants.
    ///
    /// # Errors
    /// [`WriteError`]; a conflict if `scale` names another resource version than the object's.
    pub async fn update_scale(&self, name: &str, scale: &subresource::Scale) -> Result<subresource::Scale, WriteError>
    where
        S: HasScale,
    {
        let (key, verb) = (self.key(name), Verb("scale"));
        let body = self.body(verb, &key, scale)?;
        let request = self.request(&key).replace_subresource("scale", name, &self.post_params(), body);
        self.send(verb, &key, request).await
    }
}

impl<K: Resource, S> Clone for Client<K, S>
where
    K::DynamicType: Clone,
{
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            dynamic: self.dynamic.clone(),
            scope: self.scope.clone(),
            field_manager: self.field_manager.clone(),
            dry_run: self.dry_run,
            subresources: PhantomData,
        }
    }
}

impl<K: Resource, S> Debug for Client<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("resource", &resource_name::<K>(&self.dynamic))
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
