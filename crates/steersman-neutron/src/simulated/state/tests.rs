//! Random sequences of requests, and the invariants that hold after each.

use std::collections::BTreeMap;

use ipnet::IpNet;
use jiff::Timestamp;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use uuid::Uuid;

use super::State;
use crate::types::address::overlap;
use crate::types::id::{NetworkId, Revision, SubnetId};
use crate::types::network::{NetworkCreate, NetworkFilter, NetworkUpdate};
use crate::types::subnet::{AllocationPool, Gateway, SubnetCreate, SubnetFilter, SubnetUpdate};

/// A request; networks and subnets have small numbers as names, so that requests meet.
#[derive(Clone, Debug)]
enum Request {
    CreateNetwork(u8, NetworkCreate),
    CreateSubnet(u8, SubnetCreate),
    DeleteNetwork(u8, Option<Revision>),
    DeleteSubnet(u8, Option<Revision>),
    UpdateNetwork(u8, NetworkUpdate, Option<Revision>),
    UpdateSubnet(u8, SubnetUpdate, Option<Revision>),
}

fn network_id(number: u8) -> NetworkId {
    NetworkId::from(Uuid::from_u128(u128::from(number)))
}

fn subnet_id(number: u8) -> SubnetId {
    SubnetId::from(Uuid::from_u128(u128::from(number)))
}

fn cidrs() -> impl Strategy<Value = IpNet> {
    (0_u8..4, 0_u8..8, 22_u8..=32).prop_map(|(third, fourth, length)| {
        format!("10.0.{third}.{}/{length}", u32::from(fourth) * 32).parse::<IpNet>().unwrap()
    })
}

fn gateways() -> impl Strategy<Value = Gateway> {
    prop_oneof![
        Just(Gateway::Automatic),
        Just(Gateway::Disabled),
        (0_u8..4, any::<u8>()).prop_map(|(third, fourth)| Gateway::Address([10, 0, third, fourth].into())),
    ]
}

fn pools() -> impl Strategy<Value = Option<Vec<AllocationPool>>> {
    let pool = (0_u8..4, any::<u8>(), any::<u8>()).prop_map(|(third, start, end)| AllocationPool {
        start: [10, 0, third, start].into(),
        end: [10, 0, third, end].into(),
    });
    proptest::option::of(proptest::collection::vec(pool, 0..3))
}

fn texts() -> impl Strategy<Value = Option<String>> {
    proptest::option::of(prop_oneof![
        Just(String::new()),
        Just("a".to_owned()),
        Just("b".to_owned()),
        Just("x".repeat(256))
    ])
}

fn revisions() -> impl Strategy<Value = Option<Revision>> {
    proptest::option::of((0_u64..4).prop_map(Revision))
}

fn requests() -> impl Strategy<Value = Request> {
    let number = 0_u8..4;
    prop_oneof![
        (any::<u8>(), texts(), texts()).prop_map(|(id, name, description)| Request::CreateNetwork(
            id % 4,
            NetworkCreate { name, description, ..NetworkCreate::default() }
        )),
        (any::<u8>(), number.clone(), cidrs(), gateways(), any::<Option<bool>>(), pools()).prop_map(
            |(id, network, cidr, gateway, enable_dhcp, allocation_pools)| {
                let unset = SubnetCreate::new(network_id(network), cidr);
                Request::CreateSubnet(id % 8, SubnetCreate { gateway, enable_dhcp, allocation_pools, ..unset })
            }
        ),
        (number.clone(), revisions()).prop_map(|(id, expected)| Request::DeleteNetwork(id, expected)),
        (0_u8..8, revisions()).prop_map(|(id, expected)| Request::DeleteSubnet(id, expected)),
        (number, texts(), proptest::option::of(0_u32..2000), revisions()).prop_map(|(id, name, mtu, expected)| {
            Request::UpdateNetwork(id, NetworkUpdate { name, mtu, ..NetworkUpdate::default() }, expected)
        }),
        (0_u8..8, texts(), gateways(), any::<Option<bool>>(), pools(), revisions()).prop_map(
            |(id, description, gateway, enable_dhcp, allocation_pools, expected)| {
                let change =
                    SubnetUpdate { description, gateway, enable_dhcp, allocation_pools, ..SubnetUpdate::default() };
                Request::UpdateSubnet(id, change, expected)
            }
        ),
    ]
}

/// Whether the request was carried out. An id in use is never drawn again, as with real UUIDs.
fn apply(state: &mut State, now: Timestamp, request: &Request) -> bool {
    match request {
        Request::CreateNetwork(id, create) => {
            let id = network_id(*id);
            state.read_network(id).is_err() && state.create_network(id, now, create).is_ok()
        }
        Request::CreateSubnet(id, create) => {
            let id = subnet_id(*id);
            state.read_subnet(id).is_err() && state.create_subnet(id, now, create).is_ok()
        }
        Request::DeleteNetwork(id, expected) => state.delete_network(network_id(*id), *expected).is_ok(),
        Request::DeleteSubnet(id, expected) => state.delete_subnet(subnet_id(*id), now, *expected).is_ok(),
        Request::UpdateNetwork(id, change, expected) => {
            state.update_network(network_id(*id), now, change, *expected).is_ok()
        }
        Request::UpdateSubnet(id, change, expected) => {
            state.update_subnet(subnet_id(*id), now, change, *expected).is_ok()
        }
    }
}

fn revision_of(state: &State) -> BTreeMap<NetworkId, Option<Revision>> {
    state.find_networks(&NetworkFilter::all()).iter().map(|network| (network.id, network.revision)).collect()
}

proptest! {
    #[test]
    fn every_sequence_of_requests_keeps_the_state_sound(sequence in proptest::collection::vec(requests(), 1..60)) {
        let mut state = State::default();
        for (step, request) in sequence.iter().enumerate() {
            let now = Timestamp::from_second(step.try_into().unwrap()).unwrap();
            let before = state.clone();
            if !apply(&mut state, now, request) {
                prop_assert_eq!(&before, &state, "a refused request changed something: {:?}", request);
            }
            prop_assert!(state.is_consistent());
            let (old, new) = (revision_of(&before), revision_of(&state));
            for (id, revision) in &new {
                prop_assert!(old.get(id).is_none_or(|old| old <= revision), "revision fell: {:?}", request);
            }
            let subnets = state.find_subnets(&SubnetFilter::all());
            for (position, subnet) in subnets.iter().enumerate() {
                prop_assert_eq!(subnet.cidr, subnet.cidr.trunc());
                let gateway = subnet.gateway_ip;
                let in_pool = subnet.allocation_pools.iter().any(|pool| gateway.is_some_and(|it| pool.contains(it)));
                prop_assert!(!in_pool, "a pool hands out the gateway: {:?}", subnet);
                for other in &subnets[position + 1..] {
                    prop_assert!(other.network_id != subnet.network_id || !overlap(other.cidr, subnet.cidr));
                }
            }
        }
    }

    #[test]
    fn the_file_holds_the_whole_state(sequence in proptest::collection::vec(requests(), 1..40)) {
        let mut state = State::default();
        for request in &sequence {
            apply(&mut state, Timestamp::UNIX_EPOCH, request);
        }
        let again: State = serde_json::from_slice(&serde_json::to_vec(&state).unwrap()).unwrap();
        prop_assert_eq!(state, again);
    }
}
