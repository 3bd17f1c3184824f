//! Takes steps until nothing is left to do.

use crate::desired::Desired;
use crate::event::Event;
use crate::observe::observe;
use crate::outcome::{Next, Obstacle, Outcome};
use crate::pending::Pending;
use crate::plan::{Identity, Step, plan};
use steersman_neutron::{
    Cloud, Error, Gateway, Network, NetworkCreate, NetworkId, NetworkUpdate, RequestId, Revision, Subnet, SubnetCreate,
    SubnetId, SubnetUpdate, default_pools,
};

/// Steps of one reconcile. Six are enough for anything; more means that somebody works against us.
const STEPS_MAX: usize = 12;

/// What a reconcile works on.
pub(crate) struct Work<'a> {
    pub(crate) cloud: &'a dyn Cloud,
    pub(crate) request: RequestId,
    pub(crate) uid: &'a str,
    pub(crate) identity: &'a Identity,
    pub(crate) desired: Desired,
    pub(crate) pending: &'a Pending,
}

/// Brings Neutron to agree with what is wanted. An event is added for each thing that was done.
pub(crate) async fn converge(
    work: &Work<'_>,
    status: Option<&crate::api::NetworkStatus>,
    events: &mut Vec<Event>,
) -> Outcome {
    for _ in 0..STEPS_MAX {
        let observed = match observe(work.cloud, work.request, work.identity, status).await {
            Ok(observed) => observed,
            Err(error) => return Outcome::Stuck(error.into()),
        };
        let step = plan(&work.desired, work.identity, &observed);
        let taken = match step {
            Step::Done(network, subnet) => {
                work.pending.forget(work.uid);
                return Outcome::Ready { network: network.to_string(), subnet: subnet.to_string() };
            }
            Step::Foreign(subnet) => {
                let message = format!(
                    "subnet {subnet}, which somebody else made, has the addresses {}: remove it, or choose another spec.cidr",
                    work.desired.cidr
                );
                return Outcome::Stuck(Obstacle::new(
                    "CIDROverlap",
                    message,
                    Next::After(std::time::Duration::from_secs(60)),
                ));
            }
            Step::CreateNetwork | Step::CreateSubnet(_) if work.pending.wait(work.uid).is_some() => {
                let wait = work.pending.wait(work.uid).unwrap_or_default();
                let message = "the answer to a create was lost: waiting to see whether it came about";
                return Outcome::Stuck(Obstacle::new("AnswerLost", message, Next::After(wait)));
            }
            Step::CreateNetwork => create_network(work, events).await,
            Step::CreateSubnet(network) => create_subnet(work, network, events).await,
            Step::DeleteDuplicate(network) => {
                let deleted = forgiving(work.cloud.delete_network(work.request, network, None).await);
                record(
                    events,
                    "DuplicateDeleted",
                    format!("deleted network {network}, which had been made twice"),
                    deleted,
                )
            }
            Step::DeleteSubnet(subnet) => {
                let deleted = forgiving(work.cloud.delete_subnet(work.request, subnet, None).await);
                record(
                    events,
                    "SubnetDeleted",
                    format!("deleted subnet {subnet}, whose addresses are no longer wanted"),
                    deleted,
                )
            }
            Step::RestoreNetwork(id) => restore_network(work, revision_of(&observed.networks, id), id, events).await,
            Step::RestoreSubnet(id) => restore_subnet(work, id, events).await,
            Step::SetGateway(id, gateway) => set_gateway(work, &observed.subnets, id, gateway, events).await,
        };
        match taken {
            Ok(()) => {}
            // Somebody else wrote in between: look again.
            Err(Stop::Again) => {}
            Err(Stop::With(obstacle)) => return Outcome::Stuck(obstacle),
        }
    }
    let message =
        format!("Neutron was still not as it should be after {STEPS_MAX} steps: something else changes it too");
    Outcome::Stuck(Obstacle::new("NeutronChanged", message, Next::BackOff))
}

/// Why a step was not the last word.
pub(crate) enum Stop {
    Again,
    With(Obstacle),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        match error.class() {
            Some(steersman_neutron::Class::PreconditionFailed) => Stop::Again,
            _ => Stop::With(error.into()),
        }
    }
}

async fn create_network(work: &Work<'_>, events: &mut Vec<Event>) -> Result<(), Stop> {
    let create = NetworkCreate {
        name: Some(work.identity.name.clone()),
        description: Some(work.identity.marker.clone()),
        admin_state_up: Some(true),
        ..NetworkCreate::default()
    };
    let sending = work.pending.sending(work.uid);
    let network = sending.outcome(work.cloud.create_network(work.request, &create).await)?;
    events.push(Event::new("NetworkCreated", format!("created network {}", network.id)));
    // Credentials that may create but not read would make a network at every look.
    match work.cloud.read_network(work.request, network.id).await {
        Err(error) if error.is_not_found() => {
            work.pending.note(work.uid);
            let message = format!(
                "network {} was created but cannot be read: the credentials need the role reader in their project",
                network.id
            );
            Err(Stop::With(Obstacle::new(
                "NeutronForbidden",
                message,
                Next::After(std::time::Duration::from_secs(300)),
            )))
        }
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

async fn create_subnet(work: &Work<'_>, network: NetworkId, events: &mut Vec<Event>) -> Result<(), Stop> {
    let create = SubnetCreate {
        name: Some(work.identity.name.clone()),
        description: Some(work.identity.marker.clone()),
        gateway: work.desired.request_gateway(),
        ..SubnetCreate::new(network, work.desired.cidr)
    };
    let sending = work.pending.sending(work.uid);
    let subnet = sending.outcome(work.cloud.create_subnet(work.request, &create).await)?;
    events.push(Event::new("SubnetCreated", format!("created subnet {} with {}", subnet.id, work.desired.cidr)));
    Ok(())
}

async fn restore_network(
    work: &Work<'_>,
    revision: Option<Revision>,
    id: NetworkId,
    events: &mut Vec<Event>,
) -> Result<(), Stop> {
    let changed = give_back_marker(work.cloud, work.request, work.identity, id, revision).await;
    record(events, "NetworkRestored", format!("gave network {id} its name and marker back"), changed)
}

/// Gives a network its name and marker, if it still has this revision.
///
/// # Errors
/// The cloud's.
pub(crate) async fn give_back_marker(
    cloud: &dyn Cloud,
    request: RequestId,
    identity: &Identity,
    id: NetworkId,
    revision: Option<Revision>,
) -> Result<(), Error> {
    let change = NetworkUpdate {
        name: Some(identity.name.clone()),
        description: Some(identity.marker.clone()),
        ..NetworkUpdate::default()
    };
    cloud.update_network(request, id, &change, revision).await.map(|_| ())
}

async fn restore_subnet(work: &Work<'_>, id: SubnetId, events: &mut Vec<Event>) -> Result<(), Stop> {
    let change = SubnetUpdate {
        name: Some(work.identity.name.clone()),
        description: Some(work.identity.marker.clone()),
        ..SubnetUpdate::default()
    };
    let changed = work.cloud.update_subnet(work.request, id, &change, None).await.map(|_| ());
    record(events, "SubnetRestored", format!("gave subnet {id} its name and marker back"), changed)
}

async fn set_gateway(
    work: &Work<'_>,
    subnets: &[Subnet],
    id: SubnetId,
    gateway: Option<std::net::IpAddr>,
    events: &mut Vec<Event>,
) -> Result<(), Stop> {
    let revision = subnets.iter().find(|subnet| subnet.id == id).and_then(|subnet| subnet.revision);
    // The pools are cut round the gateway at creation and not again: an address inside them is refused alone.
    let change = SubnetUpdate {
        gateway: gateway.map_or(Gateway::Disabled, Gateway::Address),
        allocation_pools: Some(default_pools(work.desired.cidr, gateway)),
        ..SubnetUpdate::default()
    };
    let changed = work.cloud.update_subnet(work.request, id, &change, revision).await.map(|_| ());
    let text = gateway.map_or("none".to_owned(), |gateway| gateway.to_string());
    record(events, "GatewayChanged", format!("set the gateway of subnet {id} to {text}"), changed)
}

fn revision_of(networks: &[Network], id: NetworkId) -> Option<Revision> {
    networks.iter().find(|network| network.id == id).and_then(|network| network.revision)
}

/// What is gone already needs no deletion.
fn forgiving(deleted: Result<(), Error>) -> Result<(), Error> {
    match deleted {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

fn record(events: &mut Vec<Event>, reason: &'static str, message: String, done: Result<(), Error>) -> Result<(), Stop> {
    done?;
    events.push(Event::new(reason, message));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending::SETTLE;
    use std::sync::Arc;
    use std::time::Duration;
    use steersman_neutron::{Fault, Faulty, Operation, Simulated};

    async fn converged(cloud: &Faulty, pending: &Pending) -> Outcome {
        let identity = Identity { marker: "network-controller/u".to_owned(), name: "default/u".to_owned() };
        let desired = Desired { cidr: "10.0.0.0/24".parse().unwrap(), gateway: None };
        let work = Work { cloud, request: RequestId::random(), uid: "u", identity: &identity, desired, pending };
        converge(&work, None, &mut Vec::new()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_create_that_is_cut_off_is_waited_for_from_then_on() {
        for create in [Operation::CreateNetwork, Operation::CreateSubnet] {
            let (cloud, pending) = (Faulty::new(Arc::new(Simulated::in_memory())), Pending::default());
            cloud.next(create, Fault::Hang);
            tokio::time::timeout(Duration::from_secs(180), converged(&cloud, &pending)).await.unwrap_err();
            assert_eq!(pending.wait("u"), Some(SETTLE), "{create:?}");
            assert!(matches!(converged(&cloud, &pending).await, Outcome::Stuck(Obstacle { reason: "AnswerLost", .. })));
            tokio::time::advance(SETTLE).await;
            assert!(matches!(converged(&cloud, &pending).await, Outcome::Ready { .. }), "{create:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_answer_that_says_nothing_is_waited_for() {
        for (fault, wait) in [
            (Fault::LoseAnswer, Some(SETTLE)),
            (Fault::DropRequest, Some(SETTLE)),
            (Fault::Refuse, None),
            (Fault::Unavailable, None),
        ] {
            let (cloud, pending) = (Faulty::new(Arc::new(Simulated::in_memory())), Pending::default());
            cloud.next(Operation::CreateNetwork, fault);
            assert!(matches!(converged(&cloud, &pending).await, Outcome::Stuck(_)), "{fault:?}");
            assert_eq!(pending.wait("u"), wait, "{fault:?}");
        }
    }
}
