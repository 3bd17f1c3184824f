//! Deletes the content of a namespace, and counts the remainder.
//!
//! Follows upstream's `namespaced_resources_deleter.go`. A kind is counted first, and deleted and counted again only if
//! there is an instance: most kinds have no instances in most namespaces.

use crate::shared::served::{Catalog, Served};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, ListParams, Preconditions};
use kube::core::{ApiResource, ObjectList, PartialObjectMeta, Request};
use kube::{Api, Client};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The size of a page of a list.
const PAGE: u32 = 500;
/// How many kinds are deleted concurrently, and how many instances of a kind that does not support deletecollection.
const AT_ONCE: usize = 8;

/// The outcome of a pass.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// Why discovery failed for some groups.
    pub(super) discovery_failure: Option<String>,
    /// Failed deletions and counts, with their reasons.
    pub(super) failures: Vec<String>,
    /// Remaining instances by `resource.group`. Pods are left out while they are waited for, as upstream does not
    /// report them then.
    pub(super) remaining: BTreeMap<String, usize>,
    /// Remaining instances by the finalizer that holds them.
    pub(super) finalizers: BTreeMap<String, usize>,
    /// The kinds that still have instances.
    pub(super) left: Vec<Left>,
    /// How long Pods may still take to terminate.
    pub(super) pods_end_in: Duration,
}

/// The remaining instances of a kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Left {
    pub(super) served: Served,
    pub(super) n_instances: usize,
    finalizers: BTreeMap<String, usize>,
    /// The finalizers of each instance, by its name.
    pub(super) held: Arc<HashMap<String, Vec<String>>>,
    /// The resourceVersion of the list that was counted.
    pub(super) version: String,
}

/// The outcome of the deletion of a kind.
#[derive(Default)]
struct Deleted {
    left: Option<Left>,
    failure: Option<String>,
}

/// A namespace that is being deleted.
#[derive(Clone, Copy)]
pub(super) struct Ending<'a> {
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
    /// How long ago its deletion began.
    pub(super) since: Duration,
}

// === impl Outcome ===

impl Outcome {
    /// Whether nothing remains, and every kind was checked.
    pub(super) fn is_empty(&self) -> bool {
        self.discovery_failure.is_none() && self.failures.is_empty() && self.left.is_empty()
    }

    fn add(&mut self, deleted: Deleted) {
        self.failures.extend(deleted.failure);
        if let Some(left) = deleted.left {
            let resource = &left.served.resource;
            self.remaining.insert(format!("{}.{}", resource.plural, resource.group), left.n_instances);
            for (finalizer, n_instances) in &left.finalizers {
                *self.finalizers.entry(finalizer.clone()).or_default() += n_instances;
            }
            self.left.push(left);
        }
    }
}

/// The kinds whose instances are deleted with a namespace.
pub(super) fn kinds_of(catalog: &Catalog) -> Vec<Served> {
    let goes =
        |served: &&Served| served.is_preferred && served.is_namespaced() && served.can("delete") && served.can("list");
    catalog.resources.iter().filter(goes).cloned().collect()
}

// === impl Ending ===

impl Ending<'_> {
    /// Deletes the instances of kinds and returns what remains: Pods first, and nothing else while Pods remain.
    pub(super) async fn delete_all(self, kinds: &[Served]) -> Outcome {
        let mut outcome = Outcome::default();
        let (pods, others): (Vec<&Served>, Vec<&Served>) = kinds.iter().partition(|served| is_pods(&served.resource));
        for served in pods {
            let (deleted, end_in) = self.delete_pods(served).await;
            outcome.pods_end_in = outcome.pods_end_in.max(end_in);
            outcome.add(deleted);
        }
        if !outcome.left.is_empty() {
            outcome.remaining.clear();
            outcome.finalizers.clear();
            return outcome;
        }
        let deletions = futures::stream::iter(others.into_iter().cloned())
            .map(|served| async move { self.delete_kind(&served, Duration::ZERO).await })
            .buffer_unordered(AT_ONCE);
        let mut deletions = std::pin::pin!(deletions);
        while let Some(deleted) = deletions.next().await {
            outcome.add(deleted);
        }
        outcome.failures.sort();
        outcome
    }

    async fn delete_pods(self, served: &Served) -> (Deleted, Duration) {
        match self.longest_grace().await {
            Ok(grace) => {
                let end_in = grace.saturating_sub(self.since);
                (self.delete_kind(served, end_in).await, end_in)
            }
            Err(error) => {
                let failure = Some(crate::shared::refusal::message(&error));
                (Deleted { failure, ..Deleted::default() }, Duration::ZERO)
            }
        }
    }

    /// The longest grace period of a Pod that has not terminated.
    async fn longest_grace(self) -> kube::Result<Duration> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), self.namespace);
        let mut page = ListParams::default().limit(PAGE);
        let mut longest = 0;
        loop {
            let list = pods.list(&page).await?;
            let running = list.items.iter().filter(|pod| !crate::shared::pods::is_terminal(pod));
            let graces = running.filter_map(|pod| pod.spec.as_ref()?.termination_grace_period_seconds);
            longest = graces.fold(longest, i64::max);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page.continue_token = Some(token),
                None => return Ok(Duration::from_secs(longest.try_into().unwrap_or_default())),
            }
        }
    }

    /// Deletes the instances of a kind. Remaining instances without a finalizer are a failure, unless Pods may still
    /// take time to terminate.
    async fn delete_kind(self, served: &Served, end_in: Duration) -> Deleted {
        match self.try_delete_kind(served).await {
            Ok(left) => {
                let is_odd = |left: &Left| left.finalizers.is_empty() && end_in.is_zero();
                let failure = left.as_ref().filter(|left| is_odd(left)).map(|_| {
                    let ApiResource { group, version, plural, .. } = &served.resource;
                    let namespace = self.namespace;
                    format!(
                        "unexpected items still remain in namespace: {namespace} for gvr: {group}/{version}, Resource={plural}"
                    )
                });
                Deleted { left, failure }
            }
            // A kind that was removed since discovery has no instances. The answer is plain text then, in which `is_not_found` looks
            // for the reason alone.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => Deleted::default(),
            Err(error) => Deleted { failure: Some(crate::shared::refusal::message(&error)), left: None },
        }
    }

    async fn try_delete_kind(self, served: &Served) -> kube::Result<Option<Left>> {
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), self.namespace, &served.resource);
        if self.count(&api, served).await?.is_none() {
            return Ok(None);
        }
        let params = DeleteParams::background();
        if served.can("deletecollection") {
            api.delete_collection(&params, &ListParams::default()).await?;
        } else {
            self.delete_each(&api, &params).await?;
        }
        self.count(&api, served).await
    }

    async fn count(self, api: &Api<DynamicObject>, served: &Served) -> kube::Result<Option<Left>> {
        let mut page = ListParams::default().limit(PAGE);
        let (mut held, mut finalizers) = (HashMap::new(), BTreeMap::new());
        loop {
            let list = list(self.client, api.resource_url(), &page).await?;
            for object in list.items {
                let holding = object.metadata.finalizers.unwrap_or_default();
                for finalizer in &holding {
                    *finalizers.entry(finalizer.clone()).or_default() += 1;
                }
                held.insert(object.metadata.name.unwrap_or_default(), holding);
            }
            if let Some(token) = list.metadata.continue_.filter(|token| !token.is_empty()) {
                page.continue_token = Some(token);
                continue;
            }
            let version = list.metadata.resource_version.unwrap_or_default();
            let (served, n_instances, held) = (served.clone(), held.len(), Arc::new(held));
            let left = Left { served, n_instances, finalizers, held, version };
            return Ok(Some(left).filter(|left| left.n_instances > 0));
        }
    }

    async fn delete_each(self, api: &Api<DynamicObject>, params: &DeleteParams) -> kube::Result<()> {
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = list(self.client, api.resource_url(), &page).await?;
            let living = list.items.into_iter().filter(|object| object.metadata.deletion_timestamp.is_none());
            let deletions = futures::stream::iter(living)
                .map(|object| async move { delete_one(api, object, params).await })
                .buffer_unordered(AT_ONCE);
            let mut deletions = std::pin::pin!(deletions);
            while let Some(deleted) = deletions.next().await {
                deleted?;
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page.continue_token = Some(token),
                None => return Ok(()),
            }
        }
    }
}

/// How long ago a namespace's deletion began.
pub(super) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

fn is_pods(resource: &ApiResource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

/// A page of a list, including objects that wait for initializers: the namespace must not be removed before them.
async fn list(client: &Client, collection: &str, page: &ListParams) -> kube::Result<ObjectList<PartialObjectMeta>> {
    let mut request = Request::new(collection).list_metadata(page).map_err(kube::Error::BuildRequest)?;
    let uri = format!("{}&includeUninitialized=true", request.uri());
    *request.uri_mut() = uri.parse().map_err(|error| kube::Error::HttpError(http::Error::from(error)))?;
    client.request(request).await
}

/// Deletes exactly this instance, not one created since under the same name.
async fn delete_one(api: &Api<DynamicObject>, object: PartialObjectMeta, params: &DeleteParams) -> kube::Result<()> {
    let preconditions = Preconditions { uid: object.metadata.uid, resource_version: None };
    let name = object.metadata.name.unwrap_or_default();
    match api.delete(&name, &params.clone().preconditions(preconditions)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request as HttpRequest, Response};
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;

    #[tokio::test]
    async fn a_kind_that_was_removed_since_discovery_keeps_no_namespace() {
        let service = tower::service_fn(|_: HttpRequest<Body>| async {
            Ok::<_, Infallible>(
                Response::builder().status(404).body(Body::from(b"404 page not found\n".to_vec())).unwrap(),
            )
        });
        let client = Client::new(service, "default");
        let document = json!({"items": [{"metadata": {"name": "shop"}, "versions": [{"version": "v1", "resources": [{
            "resource": "carts", "scope": "Namespaced", "verbs": ["delete", "list"], "responseKind": {"kind": "Cart"},
        }]}]}]});
        let kinds = kinds_of(&Catalog::of([serde_json::from_value(document).unwrap()]));
        assert_eq!(kinds.len(), 1);
        let ending = Ending { client: &client, namespace: "a", since: Duration::ZERO };
        assert_eq!(ending.delete_all(&kinds).await, Outcome::default());
    }
}
