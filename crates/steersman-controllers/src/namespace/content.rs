//! What is in a namespace: deleting it, and counting what remains.

use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::core::{ApiResource, ObjectList, PartialObjectMeta, Request};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, Client};
use std::collections::BTreeMap;

/// Instances that a page of the count holds.
const PAGE: u32 = 500;

/// How a pass went. Empty when nothing is left and nothing went wrong.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Why the kinds could not be found out.
    pub(super) discovery_failure: Option<String>,
    /// What could not be deleted or counted, and why.
    pub(super) failures: Vec<String>,
    /// Instances that remain, by `resource.group`.
    pub(super) remaining: BTreeMap<String, usize>,
    /// Instances that remain, by the finalizer that holds them.
    pub(super) finalizers: BTreeMap<String, usize>,
}

impl Outcome {
    pub(super) fn is_empty(&self) -> bool {
        self.discovery_failure.is_none() && self.failures.is_empty() && self.remaining.is_empty()
    }
}

/// Deletes all that is in a namespace, of every kind, and says what remains.
pub(super) async fn delete_all(client: &Client, namespace: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let discovery = match Discovery::new(client.clone()).run_aggregated().await {
        Ok(discovery) => discovery,
        Err(error) => {
            outcome.discovery_failure = Some(error.to_string());
            return outcome;
        }
    };
    for (resource, capabilities) in discovery.groups().flat_map(|group| group.resources_by_stability()) {
        let can = |verb| capabilities.supports_operation(verb);
        if capabilities.scope != Scope::Namespaced || !can(verbs::LIST) || !can(verbs::DELETE) {
            continue;
        }
        let name = format!("{}.{}", resource.plural, resource.group);
        if let Err(error) = delete_kind(client, namespace, &resource, can(verbs::DELETE_COLLECTION), &mut outcome).await
        {
            // A kind that was removed since discovery has no instances.
            if !matches!(&error, kube::Error::Api(status) if status.is_not_found()) {
                outcome.failures.push(format!("{name}: {error}"));
            }
        }
    }
    outcome
}

async fn delete_kind(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
    has_collection: bool,
    outcome: &mut Outcome,
) -> Result<(), kube::Error> {
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, resource);
    let params = DeleteParams::background();
    if has_collection {
        api.delete_collection(&params, &ListParams::default()).await?;
    }
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = list(client, api.resource_url(), &page).await?;
        for object in list.items {
            let name = object.metadata.name.unwrap_or_default();
            if !has_collection && object.metadata.deletion_timestamp.is_none() {
                delete_one(&api, &name, object.metadata.uid, &params).await?;
            }
            *outcome.remaining.entry(format!("{}.{}", resource.plural, resource.group)).or_default() += 1;
            for finalizer in object.metadata.finalizers.unwrap_or_default() {
                *outcome.finalizers.entry(finalizer).or_default() += 1;
            }
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

/// A page of what there is, with what waits for initializers: the namespace must not go before it.
async fn list(
    client: &Client,
    collection: &str,
    page: &ListParams,
) -> Result<ObjectList<PartialObjectMeta<DynamicObject>>, kube::Error> {
    let mut request = Request::new(collection).list_metadata(page).map_err(kube::Error::BuildRequest)?;
    let uri = format!("{}&includeUninitialized=true", request.uri());
    *request.uri_mut() = uri.parse().map_err(|error| kube::Error::HttpError(http::Error::from(error)))?;
    client.request(request).await
}

/// Deletes exactly this instance, not one created since under the same name.
async fn delete_one(
    api: &Api<DynamicObject>,
    name: &str,
    uid: Option<String>,
    params: &DeleteParams,
) -> Result<(), kube::Error> {
    let preconditions = kube::api::Preconditions { uid, resource_version: None };
    match api.delete(name, &params.clone().preconditions(preconditions)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}
