//! Whether the server behind an APIService is available: its Service has the port and an endpoint, and it answers.

use crate::background::upkeep::api_services::condition as condition_of;
use crate::shared::aggregation::remote::{Remote, ServiceReference};
use crate::shared::aggregation::remotes::{Fetch, SendError};
use crate::shared::conversion;
use crate::shared::identity::digest_cache::Digest;
use crate::shared::status::Failure;
use crate::state::State;
use futures::stream::{FuturesUnordered, StreamExt as _};
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::builtin::cluster::api_service;
use steersman_kinds::user::{MASTERS, User};
use steersman_machinery::value::{at, str_at};
use steersman_machinery::{GroupResource, Object, ObjectKey, Revision, Value};
use steersman_storage::{At, Page, Scope};

/// The attempts that are made at once. One that succeeds is enough, since only some of the endpoints may answer.
const ATTEMPTS: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of a document whose content does not matter.
const BYTES_MAX: usize = 1 << 20;
/// The label of an EndpointSlice that names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The facts in the store on which a check is based.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Facts {
    written: Digest,
    service: Option<Revision>,
    slices: Vec<Revision>,
}

/// The resources with these facts.
pub(super) fn resources() -> [GroupResource; 3] {
    [GroupResource::new(api_service::GROUP, "apiservices"), services(), slices()]
}

fn services() -> GroupResource {
    GroupResource::new("", "services")
}

fn slices() -> GroupResource {
    GroupResource::new("discovery.k8s.io", "endpointslices")
}

impl Facts {
    /// # Errors
    /// When the store cannot be read.
    pub(super) fn of(state: &State, remote: &Remote) -> Result<Facts, Failure> {
        let service = state.store.get_cached(&services(), &key(&remote.service)).map(|service| service.revision);
        let slices = slices_of(state, &remote.service)?.iter().map(|slice| slice.revision).collect();
        Ok(Facts { written: remote.written, service, slices })
    }
}

fn key(service: &ServiceReference) -> ObjectKey {
    ObjectKey::namespaced(service.namespace.as_str(), service.name.as_str())
}

fn slices_of(state: &State, service: &ServiceReference) -> Result<Vec<Arc<Object>>, Failure> {
    let is_of = |object: &Object| object.label(SERVICE_NAME) == Some(&*service.name);
    let scope = Scope::Namespace(service.namespace.as_str().into());
    let listed = state.store.list_where(&slices(), &scope, At::Latest, Page::ALL, is_of);
    Ok(listed.map_err(|error| Failure::of_read(&error))?.objects)
}

/// The condition `Available` of an APIService.
pub(super) async fn condition(state: &State, remote: &Remote) -> Value {
    // Where the address of the Service is mapped, nothing else leads there.
    if !state.remotes.is_mapped(remote)
        && let Some(fault) = fault_of_service(state, &remote.service).await
    {
        return fault;
    }
    match answers(state, remote).await {
        Ok(()) => condition_of("True", "Passed", "all checks passed".to_owned()),
        Err(why) => condition_of("False", "FailedDiscoveryCheck", why),
    }
}

/// The condition of an APIService whose Service leads nowhere.
async fn fault_of_service(state: &State, reference: &ServiceReference) -> Option<Value> {
    let ServiceReference { namespace, name, port } = reference;
    let fault = |status, reason, why: String| Some(condition_of(status, reason, why));
    let cannot = |error: &str| format!("service/{name} in {namespace:?} cannot be checked due to: {error}");
    let found = state.get(&services(), &key(reference)).await;
    let found = found.and_then(|found| found.map(|found| conversion::parse(&found)).transpose());
    let service = match found {
        Err(failure) => return fault("Unknown", "ServiceAccessError", cannot(&failure.status.message)),
        Ok(None) => {
            return fault("False", "ServiceNotFound", format!("service/{name} in {namespace:?} is not present"));
        }
        Ok(Some(service)) => service,
    };
    if str_at(&service, &["spec", "type"]) != Some("ClusterIP") {
        return None;
    }
    let mut ports = at(&service, &["spec", "ports"]).and_then(Value::as_array).into_iter().flatten();
    let found = ports.find(|one| at(one, &["port"]).and_then(Value::as_u64) == Some(u64::from(*port)));
    let Some(port_name) = found.map(|port| str_at(port, &["name"]).unwrap_or_default()) else {
        let why = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return fault("False", "ServicePortError", why);
    };
    let slices = match slices_of(state, reference) {
        Err(failure) => return fault("Unknown", "EndpointsAccessError", cannot(&failure.status.message)),
        Ok(slices) if slices.is_empty() => {
            let why = format!("cannot find endpointslices for service/{name} in {namespace:?}");
            return fault("False", "EndpointsNotFound", why);
        }
        Ok(slices) => slices,
    };
    if slices.iter().filter_map(|slice| conversion::parse(slice).ok()).any(|slice| has_endpoint(&slice, port_name)) {
        return None;
    }
    let why =
        format!("endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}");
    fault("False", "MissingEndpoints", why)
}

/// Whether a slice has a ready endpoint, and a port of this name.
fn has_endpoint(slice: &Value, port_name: &str) -> bool {
    let list = |field: &str| at(slice, &[field]).and_then(Value::as_array).into_iter().flatten();
    let is_ready = |endpoint: &Value| at(endpoint, &["conditions", "ready"]) != Some(&Value::Bool(false));
    let is_named = |port: &Value| {
        str_at(port, &["name"]) == Some(port_name) && at(port, &["port"]).is_some_and(|number| !number.is_null())
    };
    list("endpoints").any(is_ready) && list("ports").any(is_named)
}

/// Asks for the discovery document of the version.
async fn answers(state: &State, remote: &Remote) -> Result<(), String> {
    let path = remote.path();
    let user = checker();
    let fetch = Fetch { path: &path, accept: "application/json", user: &user, timeout: TIMEOUT, bytes_max: BYTES_MAX };
    let ServiceReference { namespace, name, port } = &remote.service;
    let url = format!("https://{name}.{namespace}.svc:{port}{path}");
    let mut attempts: FuturesUnordered<_> = (0..ATTEMPTS).map(|_| state.remotes.fetch(remote, &fetch)).collect();
    let mut why = String::new();
    while let Some(answer) = attempts.next().await {
        why = match answer {
            Ok(answer) if answer.status.is_success() => return Ok(()),
            Ok(answer) => {
                format!("failing or missing response from {url}: bad status from {url}: {}", answer.status.as_u16())
            }
            Err(SendError::Service(why) | SendError::Certificates(why)) => why,
            Err(SendError::Connection { why, hint }) => {
                format!("failing or missing response from {url}: Get {url:?}: {why}{hint}")
            }
            Err(error @ (SendError::Timeout(_) | SendError::TooLong(_))) => {
                format!("failing or missing response from {url}: Get {url:?}: {error}")
            }
        };
    }
    Err(why)
}

/// The user in whose name the server asks, upstream's.
pub(super) fn checker() -> User {
    User { name: "system:kube-aggregator".to_owned(), groups: vec![MASTERS.to_owned()], ..User::default() }
}
