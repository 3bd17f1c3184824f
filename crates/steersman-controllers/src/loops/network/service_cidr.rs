//! Marks address ranges of Services as ready, and keeps a range that is being deleted while its addresses are in use.
//!
//! Follows kube-controller-manager's ServiceCIDR controller: each ServiceCIDR gets a finalizer and the condition
//! `Ready`, after which the server allocates its addresses. A deleted range is removed when no Service has an address
//! that only this range contains. Upstream waits ten more seconds, for allocators of other servers; here the allocator
//! takes the deletion into account with its write.

use crate::settings::Parts;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR, ServiceCIDRStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;
use steersman::status::Writer;
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, ReconcileError, Scope};
use steersman::{WriteError, finalizers};

/// The name of the loop in logs.
const NAME: &str = "service-cidr-controller";

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const READY: &str = "Ready";
const READY_MESSAGE: &str = "Kubernetes Service CIDR is ready";
const IN_USE_MESSAGE: &str =
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
/// The label selector of addresses that the server has allocated.
const OF_SERVICES: &str = "ipaddress.kubernetes.io/managed-by=ipallocator.k8s.io";
/// How often the addresses are listed while a range is being deleted. They are not watched, because ranges are seldom
/// deleted.
const IN_USE_INTERVAL: Duration = Duration::from_secs(1);
const PAGE: u32 = 500;

struct Context {
    client: Client,
    clock: fn() -> Timestamp,
    ranges: Lister<ServiceCIDR>,
    status: Writer<ServiceCIDR>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot read the range")]
    Read(#[from] LookupError),
    #[error("cannot write whether the range is ready")]
    Write(#[source] WriteError),
    #[error("cannot {what}")]
    Request { what: &'static str, source: kube::Error },
}

impl ReconcileError for Error {}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let ranges = manager.informers().informer::<ServiceCIDR>(Scope::All).lister();
    let context = Context { clock: settings.clock, status: Writer::new(client.clone()), ranges, client };
    manager.controller(Controller::<ServiceCIDR>::new(reconcile, context).name(NAME))
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let Some(range) = cx.ranges.find(&key)? else { return Ok(Action::AwaitChange) };
    if !finalizers::is_deleting(&*range) {
        if !finalizers::contains(&*range, FINALIZER) {
            patch(cx, &range, &json!({"finalizers": [FINALIZER]})).await?;
        }
        return say(cx, &range, "True", "", READY_MESSAGE).await.map(|()| Action::AwaitChange);
    }
    if !finalizers::contains(&*range, FINALIZER) {
        return Ok(Action::AwaitChange);
    }
    if is_in_use(cx, &range).await? {
        say(cx, &range, "False", "Terminating", IN_USE_MESSAGE).await?;
        return Ok(Action::RequeueAfter(IN_USE_INTERVAL));
    }
    patch(cx, &range, &json!({"$deleteFromPrimitiveList/finalizers": [FINALIZER]})).await?;
    tracing::info!(range = %key, "no address of the range is in use that only it has: it goes");
    Ok(Action::AwaitChange)
}

/// Whether a Service has an address that no other range contains.
async fn is_in_use(cx: &Context, range: &ServiceCIDR) -> Result<bool, Error> {
    let others: Vec<IpNet> = cx
        .ranges
        .list()?
        .iter()
        .filter(|other| other.name_any() != range.name_any())
        .flat_map(|other| nets(other))
        .collect();
    let own = nets(range);
    if own.iter().all(|own| others.iter().any(|other| other.contains(own))) {
        return Ok(false);
    }
    let addresses = Api::<IPAddress>::all(cx.client.clone());
    let mut page = ListParams::default().labels(OF_SERVICES).limit(PAGE);
    loop {
        let list = addresses.list_metadata(&page).await;
        let list = list.map_err(|source| Error::Request { what: "list the addresses in use", source })?;
        let mut taken = list.items.iter().filter_map(|address| address.name_any().parse::<IpAddr>().ok());
        let only_own = |address: &IpAddr| {
            own.iter().any(|range| range.contains(address)) && !others.iter().any(|range| range.contains(address))
        };
        if taken.any(|address| only_own(&address)) {
            return Ok(true);
        }
        match list.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return Ok(false),
        }
    }
}

fn nets(range: &ServiceCIDR) -> Vec<IpNet> {
    let texts = range.spec.iter().flat_map(|spec| &spec.cidrs).flatten();
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// Patches the metadata of a range. A range that is gone is no failure.
async fn patch(cx: &Context, range: &ServiceCIDR, metadata: &Value) -> Result<(), Error> {
    let ranges = Api::<ServiceCIDR>::all(cx.client.clone());
    let patch = Patch::Strategic(json!({"metadata": metadata}));
    match ranges.patch_metadata(&range.name_any(), &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(source) => Err(Error::Request { what: "change the finalizers of the range", source }),
    }
}

/// Writes the condition `Ready`, unless it is up to date.
async fn say(cx: &Context, range: &ServiceCIDR, status: &str, reason: &str, message: &str) -> Result<(), Error> {
    let mut conditions =
        range.status.iter().flat_map(|status| &status.conditions).flatten().cloned().collect::<Vec<_>>();
    let known = conditions.iter().position(|condition| condition.type_ == READY);
    let is_said = known.is_some_and(|at| {
        let known = &conditions[at];
        known.status == status && known.reason == reason && known.message == message
    });
    if is_said {
        return Ok(());
    }
    let condition = Condition {
        last_transition_time: Time((cx.clock)()),
        message: message.to_owned(),
        observed_generation: None,
        reason: reason.to_owned(),
        status: status.to_owned(),
        type_: READY.to_owned(),
    };
    match known {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    match cx.status.write(range, &ServiceCIDRStatus { conditions: Some(conditions) }).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(Error::Write(error)),
    }
}
