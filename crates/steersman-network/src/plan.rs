//! What to do next, from what is wanted and what is there. Pure: no calls, no clock.

use crate::desired::Desired;
use std::net::IpAddr;
use steersman_neutron::{Network, NetworkId, Subnet, SubnetId, default_gateway};

/// What Neutron has of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The networks that carry the object's marker, oldest first; if none does, the one that has lost it.
    pub networks: Vec<Network>,
    /// The subnets of the first of them.
    pub subnets: Vec<Subnet>,
}

/// How what is made is recognised: names are not unique in Neutron.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    /// The description of network and subnet.
    pub marker: String,
    /// The name of network and subnet, for people.
    pub name: String,
}

/// One step towards what is wanted.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Make the network, with its marker.
    CreateNetwork,
    /// Make the subnet, with its marker.
    CreateSubnet(NetworkId),
    /// A network that was made twice: take away the younger.
    DeleteDuplicate(NetworkId),
    /// The subnet has other addresses, which cannot be changed: take it away, to make it anew.
    DeleteSubnet(SubnetId),
    /// Everything is as it should be.
    Done(NetworkId, SubnetId),
    /// Somebody else's subnet has the addresses.
    Foreign(SubnetId),
    /// Somebody changed the network's name or marker: change it back.
    RestoreNetwork(NetworkId),
    /// Somebody changed the subnet's name or marker: change it back.
    RestoreSubnet(SubnetId),
    /// The subnet has another gateway.
    SetGateway(SubnetId, Option<IpAddr>),
}

/// The next step.
pub fn plan(desired: &Desired, identity: &Identity, observed: &Observed) -> Step {
    let Some((network, duplicates)) = observed.networks.split_first() else {
        return Step::CreateNetwork;
    };
    // Only what carries the marker is ours to take away.
    if let Some(duplicate) = duplicates.iter().find(|duplicate| duplicate.description == identity.marker) {
        return Step::DeleteDuplicate(duplicate.id);
    }
    if network.description != identity.marker || network.name != identity.name {
        return Step::RestoreNetwork(network.id);
    }
    let wanted = |subnet: &&Subnet| subnet.cidr == desired.cidr;
    let is_marked = |subnet: &Subnet| subnet.description == identity.marker;
    if let Some(other) = observed.subnets.iter().find(|subnet| is_marked(subnet) && !wanted(subnet)) {
        return Step::DeleteSubnet(other.id);
    }
    let Some(subnet) = observed.subnets.iter().find(wanted) else {
        return Step::CreateSubnet(network.id);
    };
    // The name is enough to recognise what only needs its marker back.
    if !is_marked(subnet) && subnet.name != identity.name {
        return Step::Foreign(subnet.id);
    }
    if subnet.description != identity.marker || subnet.name != identity.name {
        return Step::RestoreSubnet(subnet.id);
    }
    let gateway = desired.gateway.or_else(|| default_gateway(desired.cidr));
    if subnet.gateway_ip != gateway {
        return Step::SetGateway(subnet.id, gateway);
    }
    Step::Done(network.id, subnet.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: &str = "network-controller/u1";
    const NAME: &str = "default/a";

    fn identity() -> Identity {
        Identity { marker: MARKER.to_owned(), name: NAME.to_owned() }
    }

    fn uuid(number: u8) -> String {
        format!("00000000-0000-4000-8000-0000000000{number:02x}")
    }

    fn network(number: u8, marker: &str, name: &str) -> Network {
        serde_json::from_value(serde_json::json!({"id": uuid(number), "name": name, "description": marker})).unwrap()
    }

    fn subnet(number: u8, marker: &str, cidr: &str, gateway: Option<&str>) -> Subnet {
        let name = if marker == MARKER { NAME } else { "theirs" };
        serde_json::from_value(serde_json::json!({
            "id": uuid(number), "network_id": uuid(1), "name": name, "description": marker, "cidr": cidr, "gateway_ip": gateway
        }))
        .unwrap()
    }

    #[track_caller]
    fn check(gateway: Option<&str>, networks: Vec<Network>, subnets: Vec<Subnet>, want: &Step) {
        let desired =
            Desired { cidr: "10.0.0.0/24".parse().unwrap(), gateway: gateway.map(|text| text.parse().unwrap()) };
        assert_eq!(&plan(&desired, &identity(), &Observed { networks, subnets }), want);
    }

    fn net(number: u8) -> NetworkId {
        uuid(number).parse().unwrap()
    }

    fn sub(number: u8) -> SubnetId {
        uuid(number).parse().unwrap()
    }

    #[test]
    fn what_is_missing_is_made_in_order() {
        check(None, vec![], vec![], &Step::CreateNetwork);
        check(None, vec![network(1, MARKER, NAME)], vec![], &Step::CreateSubnet(net(1)));
        let made = vec![subnet(9, MARKER, "10.0.0.0/24", Some("10.0.0.1"))];
        check(None, vec![network(1, MARKER, NAME)], made.clone(), &Step::Done(net(1), sub(9)));
        check(Some("10.0.0.1"), vec![network(1, MARKER, NAME)], made, &Step::Done(net(1), sub(9)));
    }

    #[test]
    fn the_younger_of_two_goes_but_only_if_it_is_ours() {
        check(None, vec![network(1, MARKER, NAME), network(2, MARKER, NAME)], vec![], &Step::DeleteDuplicate(net(2)));
        check(None, vec![network(1, MARKER, NAME), network(2, "theirs", NAME)], vec![], &Step::CreateSubnet(net(1)));
    }

    #[test]
    fn what_somebody_changed_is_changed_back() {
        check(None, vec![network(1, "", NAME)], vec![], &Step::RestoreNetwork(net(1)));
        check(None, vec![network(1, MARKER, "renamed")], vec![], &Step::RestoreNetwork(net(1)));
        let unmarked: Subnet = serde_json::from_value(serde_json::json!({
            "id": uuid(9), "network_id": uuid(1), "name": NAME, "description": "", "cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.1"
        }))
        .unwrap();
        check(None, vec![network(1, MARKER, NAME)], vec![unmarked.clone()], &Step::RestoreSubnet(sub(9)));
        let elsewhere = Subnet { cidr: "10.1.0.0/24".parse().unwrap(), ..unmarked };
        check(None, vec![network(1, MARKER, NAME)], vec![elsewhere], &Step::CreateSubnet(net(1)));
        let other_gateway = vec![subnet(9, MARKER, "10.0.0.0/24", Some("10.0.0.254"))];
        check(
            None,
            vec![network(1, MARKER, NAME)],
            other_gateway.clone(),
            &Step::SetGateway(sub(9), Some("10.0.0.1".parse().unwrap())),
        );
        check(
            Some("10.0.0.7"),
            vec![network(1, MARKER, NAME)],
            other_gateway,
            &Step::SetGateway(sub(9), Some("10.0.0.7".parse().unwrap())),
        );
        let none = vec![subnet(9, MARKER, "10.0.0.0/24", None)];
        check(None, vec![network(1, MARKER, NAME)], none, &Step::SetGateway(sub(9), Some("10.0.0.1".parse().unwrap())));
    }

    #[test]
    fn other_addresses_mean_another_subnet() {
        let old = vec![subnet(9, MARKER, "10.1.0.0/24", Some("10.1.0.1"))];
        check(None, vec![network(1, MARKER, NAME)], old, &Step::DeleteSubnet(sub(9)));
    }

    #[test]
    fn what_others_made_is_left_alone() {
        let theirs = vec![subnet(9, "theirs", "10.9.0.0/24", None)];
        check(None, vec![network(1, MARKER, NAME)], theirs, &Step::CreateSubnet(net(1)));
        let same = vec![subnet(9, "theirs", "10.0.0.0/24", None)];
        check(None, vec![network(1, MARKER, NAME)], same, &Step::Foreign(sub(9)));
    }
}
