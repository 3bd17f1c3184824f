//! Cases about subnets.

use std::net::IpAddr;

use crate::answer::Class;
use crate::cloud::Cloud;
use crate::conformance::{Case, accepted, assert_refused, parsed};
use crate::types::address::{default_gateway, default_pools};
use crate::types::id::{NetworkId, Revision, SubnetId};
use crate::types::subnet::{AllocationPool, Gateway, HostRoute, SubnetCreate, SubnetFilter, SubnetUpdate};

fn pool(start: &str, end: &str) -> AllocationPool {
    AllocationPool { start: parsed(start), end: parsed(end) }
}

fn route(destination: &str, nexthop: &str) -> HostRoute {
    HostRoute { destination: parsed(destination), nexthop: parsed(nexthop) }
}

fn address(text: &str) -> Gateway {
    Gateway::Address(parsed(text))
}

/// `10.3.0.5/25` becomes `10.3.0.0/25`: compare the CIDR that was read, not the one that was sent.
pub async fn cidrs_lose_their_host_bits(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let network = case.network("n").await;
    assert_eq!(case.subnet(&network, "10.3.0.5/25").await.cidr, parsed("10.3.0.0/25"));
    assert_eq!(case.subnet(&network, "FD00:0002:0::1/64").await.cidr, parsed("fd00:2::/64"));
}

/// [`default_gateway`] and [`default_pools`] predict the choice.
pub async fn gateway_and_pools_are_chosen_where_the_request_does_not_say(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let network = case.network("n").await;
    for cidr in ["10.1.0.0/24", "10.0.2.0/30", "fd00:1::/64", "fd00:5::/126"] {
        let subnet = case.subnet(&network, cidr).await;
        assert_eq!(subnet.gateway_ip, default_gateway(subnet.cidr), "{cidr}");
        assert_eq!(subnet.allocation_pools, default_pools(subnet.cidr, subnet.gateway_ip), "{cidr}");
        assert_eq!((subnet.enable_dhcp, subnet.revision), (Some(true), Some(Revision(0))));
    }
    let named = [
        ("10.4.0.0/29", Gateway::Disabled, None),
        ("10.5.0.0/29", address("10.5.0.3"), Some("10.5.0.3")),
        ("10.6.0.0/29", address("10.99.0.1"), Some("10.99.0.1")),
        ("fd00:6::/64", address("fd00:6::1"), Some("fd00:6::1")),
    ];
    for (cidr, gateway, expected) in named {
        let create = SubnetCreate { gateway, ..SubnetCreate::new(network.id, parsed(cidr)) };
        let subnet = accepted(cloud.create_subnet(case.request, &create).await);
        assert_eq!(subnet.gateway_ip, expected.map(parsed::<IpAddr>), "{cidr}");
        assert_eq!(subnet.allocation_pools, default_pools(subnet.cidr, subnet.gateway_ip), "{cidr}");
    }
    let bare = |cidr| SubnetCreate { enable_dhcp: Some(false), ..SubnetCreate::new(network.id, parsed(cidr)) };
    for cidr in ["10.0.1.0/32", "fd00:8::/127", "fd00:9::/128"] {
        let subnet = accepted(cloud.create_subnet(case.request, &bare(cidr)).await);
        assert_eq!(subnet.gateway_ip, default_gateway(subnet.cidr), "{cidr}");
        assert_eq!(subnet.allocation_pools, default_pools(subnet.cidr, subnet.gateway_ip), "{cidr}");
    }
    let emptied = SubnetCreate { allocation_pools: Some(Vec::new()), ..bare("10.7.0.0/30") };
    let subnet = accepted(cloud.create_subnet(case.request, &emptied).await);
    assert_eq!(subnet.allocation_pools, [pool("10.7.0.2", "10.7.0.2")]);
}

/// Repeating a create is an overlap too: (network, cidr) is the natural key.
pub async fn overlapping_cidrs_are_refused_within_a_network_only(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let (here, elsewhere) = (case.network("here").await, case.network("elsewhere").await);
    case.subnet(&here, "10.1.0.0/24").await;
    for cidr in ["10.1.0.0/24", "10.1.0.128/25", "10.0.0.0/8"] {
        let create = SubnetCreate::new(here.id, parsed(cidr));
        assert_refused(cloud.create_subnet(case.request, &create).await, Class::Overlap, "InvalidInput");
    }
    case.subnet(&here, "10.1.1.0/24").await;
    case.subnet(&elsewhere, "10.1.0.0/24").await;
}

/// Without DHCP, CIDRs that DHCP cannot serve are allowed; DHCP is the default.
pub async fn unusable_cidrs_are_refused(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let network = case.network("n").await;
    let with_dhcp = ["10.0.0.0/31", "10.0.0.0/32", "fd00::/127", "0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/24"];
    for cidr in with_dhcp {
        let create = SubnetCreate::new(network.id, parsed(cidr));
        assert_refused(cloud.create_subnet(case.request, &create).await, Class::InvalidInput, "InvalidInput");
    }
    let bare = |cidr| SubnetCreate { enable_dhcp: Some(false), ..SubnetCreate::new(network.id, parsed(cidr)) };
    for cidr in ["0.0.0.0/0", "::/0", "::/64"] {
        assert_refused(cloud.create_subnet(case.request, &bare(cidr)).await, Class::InvalidInput, "InvalidInput");
    }
    let chosen = cloud.create_subnet(case.request, &bare("10.0.0.0/31")).await;
    assert_refused(chosen, Class::Conflict, "IpamValueInvalid");
    let without = SubnetCreate { gateway: Gateway::Disabled, ..bare("10.0.0.0/31") };
    let subnet = accepted(cloud.create_subnet(case.request, &without).await);
    assert_eq!(subnet.allocation_pools, [pool("10.0.0.0", "10.0.0.1")]);
    let start_dhcp = SubnetUpdate { enable_dhcp: Some(true), ..SubnetUpdate::default() };
    let started = cloud.update_subnet(case.request, subnet.id, &start_dhcp, None).await;
    assert_refused(started, Class::InvalidInput, "InvalidInput");
}

/// Each is refused under its own error name of Neutron.
pub async fn bad_gateways_pools_servers_and_routes_are_refused(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let network = case.network("n").await;
    let base = SubnetCreate::new(network.id, parsed("10.3.0.0/24"));
    let gateway = |text| SubnetCreate { gateway: address(text), ..base.clone() };
    let pools = |pools: &[AllocationPool]| SubnetCreate { allocation_pools: Some(pools.to_vec()), ..base.clone() };
    let servers = |servers: &[&str]| SubnetCreate {
        dns_nameservers: Some(servers.iter().map(|server| parsed(server)).collect()),
        ..base.clone()
    };
    let routes = |routes: &[HostRoute]| SubnetCreate { host_routes: Some(routes.to_vec()), ..base.clone() };
    let (invalid, conflict) = (Class::InvalidInput, Class::Conflict);
    let refusals = [
        (gateway("10.3.0.0"), invalid, "InvalidInput"),
        (gateway("10.3.0.255"), invalid, "InvalidInput"),
        (gateway("fd00::1"), invalid, "InvalidInput"),
        (pools(&[pool("10.3.0.30", "10.3.0.20")]), invalid, "InvalidAllocationPool"),
        (pools(&[pool("fd00::1", "fd00::2")]), invalid, "InvalidAllocationPool"),
        (pools(&[pool("10.3.0.0", "10.3.0.20")]), invalid, "OutOfBoundsAllocationPool"),
        (pools(&[pool("10.3.0.9", "10.3.0.255")]), invalid, "OutOfBoundsAllocationPool"),
        (
            pools(&[pool("10.3.0.20", "10.3.0.30"), pool("10.3.0.25", "10.3.0.39")]),
            conflict,
            "OverlappingAllocationPools",
        ),
        (pools(&[pool("10.3.0.1", "10.3.0.20")]), Class::GatewayConflict, "GatewayConflictWithAllocationPools"),
        (servers(&["1.1.1.1", "1.1.1.1"]), invalid, "HTTPBadRequest"),
        (servers(&["fd00::1"]), invalid, "InvalidInput"),
        (
            servers(&["9.0.0.1", "9.0.0.2", "9.0.0.3", "9.0.0.4", "9.0.0.5", "9.0.0.6"]),
            invalid,
            "DNSNameServersExhausted",
        ),
        (routes(&[route("10.9.1.5/16", "10.3.0.1")]), invalid, "HTTPBadRequest"),
        (routes(&[route("10.9.0.0/16", "10.3.0.1"); 2]), invalid, "HTTPBadRequest"),
        (routes(&[route("10.9.0.0/16", "fd00::1")]), invalid, "InvalidInput"),
        (routes(&[route("fd00::/64", "10.3.0.1")]), invalid, "InvalidInput"),
    ];
    for (create, class, kind) in refusals {
        assert_refused(cloud.create_subnet(case.request, &create).await, class, kind);
    }
    assert_eq!(case.reread(&network).await.subnets, []);
    let good = SubnetCreate {
        allocation_pools: Some(vec![pool("10.3.0.100", "10.3.0.110"), pool("10.3.0.10", "10.3.0.20")]),
        dns_nameservers: Some(vec![parsed("9.9.9.9"), parsed("1.1.1.1")]),
        host_routes: Some(vec![route("10.9.0.0/16", "10.3.0.9")]),
        ..base
    };
    let subnet = accepted(cloud.create_subnet(case.request, &good).await);
    let mut sorted = subnet.allocation_pools.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [pool("10.3.0.10", "10.3.0.20"), pool("10.3.0.100", "10.3.0.110")]);
    assert_eq!(subnet.dns_nameservers, [parsed::<IpAddr>("9.9.9.9"), parsed("1.1.1.1")]);
    assert_eq!(Some(subnet.host_routes), good.host_routes);
}

/// A create answers "not found" for the network, not for the subnet.
pub async fn a_subnet_in_a_missing_network_is_not_found(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let create = SubnetCreate::new(NetworkId::random(), parsed("10.1.0.0/24"));
    assert_refused(cloud.create_subnet(case.request, &create).await, Class::NotFound, "NetworkNotFound");
    let (absent, change) = (SubnetId::random(), SubnetUpdate { name: Some("s".into()), ..SubnetUpdate::default() });
    assert_refused(cloud.read_subnet(case.request, absent).await, Class::NotFound, "SubnetNotFound");
    let update = cloud.update_subnet(case.request, absent, &change, None).await;
    assert_refused(update, Class::NotFound, "SubnetNotFound");
    assert_refused(cloud.delete_subnet(case.request, absent, None).await, Class::NotFound, "SubnetNotFound");
}

/// This is how an unanswered create is found again, and how an adopted subnet is compared.
pub async fn subnets_are_found_by_network_and_cidr(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let (here, elsewhere) = (case.network("here").await, case.network("elsewhere").await);
    let marked = SubnetCreate {
        name: Some("s".into()),
        description: Some("marker".into()),
        ..SubnetCreate::new(here.id, parsed("10.1.0.0/24"))
    };
    let made = accepted(cloud.create_subnet(case.request, &marked).await);
    case.subnet(&here, "10.2.0.0/24").await;
    case.subnet(&elsewhere, "10.1.0.0/24").await;
    let find = async |filter: SubnetFilter| {
        let found = accepted(cloud.find_subnets(case.request, &filter).await);
        found.into_iter().map(|subnet| subnet.id).collect::<Vec<_>>()
    };
    assert_eq!(find(SubnetFilter::network_and_cidr(here.id, parsed("10.1.0.7/24"))).await, [made.id]);
    assert_eq!(find(SubnetFilter::description("marker")).await, [made.id]);
    assert_eq!(find(SubnetFilter::id(made.id)).await, [made.id]);
    assert_eq!(find(SubnetFilter::network(here.id)).await.len(), 2);
    assert_eq!(find(SubnetFilter::all()).await.len(), 3);
    assert_eq!(find(SubnetFilter::ids([])).await, []);
    assert_eq!((made.name.as_str(), made.description.as_str()), ("s", "marker"));
}

/// Creating, renaming and deleting a subnet raises the network's revision; a change of its description does not.
pub async fn a_subnets_changes_show_in_the_networks_revision(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let network = case.network("n").await;
    let subnet = case.subnet(&network, "10.1.0.0/24").await;
    let created = case.reread(&network).await.revision;
    assert!(network.revision < created);

    let rename = SubnetUpdate { name: Some("renamed".into()), ..SubnetUpdate::default() };
    let renamed = accepted(cloud.update_subnet(case.request, subnet.id, &rename, subnet.revision).await);
    assert!(subnet.revision < renamed.revision);
    let after_rename = case.reread(&network).await.revision;
    assert!(created < after_rename);

    let describe = SubnetUpdate { description: Some("d".into()), ..SubnetUpdate::default() };
    let described = accepted(cloud.update_subnet(case.request, subnet.id, &describe, None).await);
    assert!(renamed.revision < described.revision);
    assert_eq!(case.reread(&network).await.revision, after_rename);

    let stale = cloud.delete_subnet(case.request, subnet.id, subnet.revision).await;
    assert_refused(stale, Class::PreconditionFailed, "RevisionNumberConstraintFailed");
    let stale = cloud.update_subnet(case.request, subnet.id, &rename, subnet.revision).await;
    assert_refused(stale, Class::PreconditionFailed, "RevisionNumberConstraintFailed");
    accepted(cloud.delete_subnet(case.request, subnet.id, described.revision).await);
    let bare = case.reread(&network).await;
    assert!(after_rename < bare.revision);
    assert_eq!(bare.subnets, []);
}

/// So a drift check that compares only revisions misses such changes.
pub async fn pools_servers_and_routes_do_not_raise_the_revision(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let network = case.network("n").await;
    let subnet = case.subnet(&network, "10.1.0.0/24").await;
    let change = SubnetUpdate {
        allocation_pools: Some(vec![pool("10.1.0.10", "10.1.0.20")]),
        dns_nameservers: Some(vec![parsed("1.1.1.1")]),
        host_routes: Some(vec![route("10.9.0.0/16", "10.1.0.9")]),
        ..SubnetUpdate::default()
    };
    let changed = accepted(cloud.update_subnet(case.request, subnet.id, &change, subnet.revision).await);
    assert_eq!(changed.allocation_pools, [pool("10.1.0.10", "10.1.0.20")]);
    assert_eq!(changed.revision, subnet.revision);
    let emptied = SubnetUpdate {
        allocation_pools: Some(Vec::new()),
        dns_nameservers: Some(Vec::new()),
        host_routes: Some(Vec::new()),
        ..SubnetUpdate::default()
    };
    accepted(cloud.update_subnet(case.request, subnet.id, &emptied, changed.revision).await);
    let read = case.reread_subnet(&subnet).await;
    assert_eq!((read.allocation_pools.len(), read.dns_nameservers.len(), read.host_routes.len()), (0, 0, 0));
}

/// Pools do not follow the gateway; one update with both moves them.
pub async fn a_gateway_in_a_pool_is_refused_unless_the_pools_move_too(cloud: &dyn Cloud) {
    let case = Case::new(cloud);
    let network = case.network("n").await;
    let subnet = case.subnet(&network, "10.1.0.0/24").await;
    let update = async |gateway, allocation_pools| {
        let change = SubnetUpdate { gateway, allocation_pools, ..SubnetUpdate::default() };
        cloud.update_subnet(case.request, subnet.id, &change, None).await
    };
    let conflict = "GatewayConflictWithAllocationPools";
    assert_refused(update(address("10.1.0.5"), None).await, Class::GatewayConflict, conflict);
    assert_refused(update(address("10.1.0.255"), None).await, Class::InvalidInput, "InvalidInput");
    let pools = default_pools(subnet.cidr, Some(parsed("10.1.0.5")));
    let moved = accepted(update(address("10.1.0.5"), Some(pools.clone())).await);
    assert_eq!(moved.gateway_ip, Some(parsed("10.1.0.5")));
    assert!(subnet.revision < moved.revision);
    let mut read = case.reread_subnet(&subnet).await.allocation_pools;
    read.sort_unstable();
    assert_eq!(read, pools);
    let into_gateway = update(Gateway::Automatic, Some(vec![pool("10.1.0.1", "10.1.0.9")])).await;
    assert_refused(into_gateway, Class::GatewayConflict, conflict);
    assert_eq!(accepted(update(Gateway::Disabled, None).await).gateway_ip, None);
    assert_eq!(accepted(update(address("10.99.0.1"), None).await).gateway_ip, Some(parsed("10.99.0.1")));
}
