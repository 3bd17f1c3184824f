//! The contract of every [`Cloud`]: one suite, run over the simulated cloud and over a real Neutron.
//!
//! Each case is an async function of a cloud in which the case's project is empty; it panics with the fact that does not
//! hold. [`for_each_case`](crate::for_each_case) makes a test of each, so that a failure is named after its case.

mod networks;
mod subnets;

use std::fmt::Debug;

pub use crate::conformance::networks::{
    a_change_raises_the_revision_and_no_change_does_not, a_marker_in_the_description_finds_its_network,
    a_second_create_makes_a_second_network, a_stale_revision_changes_nothing,
    a_tag_finds_its_network_until_it_is_taken_away, a_tag_that_is_no_part_of_a_path_is_refused,
    a_text_of_256_characters_is_refused, deleting_a_network_deletes_its_subnets, filters_are_exact_and_combine,
    many_ids_are_found_in_one_call, missing_networks_are_not_found, packets_larger_than_the_cloud_carries_are_refused,
    tagging_a_missing_network_fails,
};
pub use crate::conformance::subnets::{
    a_gateway_in_a_pool_is_refused_unless_the_pools_move_too, a_subnet_in_a_missing_network_is_not_found,
    a_subnets_changes_show_in_the_networks_revision, bad_gateways_pools_servers_and_routes_are_refused,
    cidrs_lose_their_host_bits, gateway_and_pools_are_chosen_where_the_request_does_not_say,
    overlapping_cidrs_are_refused_within_a_network_only, pools_servers_and_routes_do_not_raise_the_revision,
    subnets_are_found_by_network_and_cidr, unusable_cidrs_are_refused,
};

use crate::answer::Class;
use crate::cloud::{Cloud, RequestId};
use crate::error::Error;
use crate::types::network::{Network, NetworkCreate};
use crate::types::subnet::{Subnet, SubnetCreate};

/// Calls a macro with the name of every case.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_case {
    ($callback:ident) => {
        $callback! {
            a_change_raises_the_revision_and_no_change_does_not
            a_gateway_in_a_pool_is_refused_unless_the_pools_move_too
            a_marker_in_the_description_finds_its_network
            a_second_create_makes_a_second_network
            a_stale_revision_changes_nothing
            a_subnet_in_a_missing_network_is_not_found
            a_subnets_changes_show_in_the_networks_revision
            a_tag_finds_its_network_until_it_is_taken_away
            a_tag_that_is_no_part_of_a_path_is_refused
            a_text_of_256_characters_is_refused
            bad_gateways_pools_servers_and_routes_are_refused
            cidrs_lose_their_host_bits
            deleting_a_network_deletes_its_subnets
            filters_are_exact_and_combine
            gateway_and_pools_are_chosen_where_the_request_does_not_say
            many_ids_are_found_in_one_call
            missing_networks_are_not_found
            overlapping_cidrs_are_refused_within_a_network_only
            packets_larger_than_the_cloud_carries_are_refused
            pools_servers_and_routes_do_not_raise_the_revision
            subnets_are_found_by_network_and_cidr
            tagging_a_missing_network_fails
            unusable_cidrs_are_refused
        }
    };
}

/// A cloud with the id of one case's work, and short names for the calls of cases.
struct Case<'a> {
    cloud: &'a dyn Cloud,
    request: RequestId,
}

impl<'a> Case<'a> {
    fn new(cloud: &'a dyn Cloud) -> Self {
        Self { cloud, request: RequestId::random() }
    }

    async fn network(&self, name: &str) -> Network {
        let create = NetworkCreate { name: Some(name.to_owned()), ..NetworkCreate::default() };
        accepted(self.cloud.create_network(self.request, &create).await)
    }

    async fn subnet(&self, network: &Network, cidr: &str) -> Subnet {
        accepted(self.cloud.create_subnet(self.request, &SubnetCreate::new(network.id, parsed(cidr))).await)
    }

    async fn reread(&self, network: &Network) -> Network {
        accepted(self.cloud.read_network(self.request, network.id).await)
    }

    async fn reread_subnet(&self, subnet: &Subnet) -> Subnet {
        accepted(self.cloud.read_subnet(self.request, subnet.id).await)
    }
}

#[track_caller]
fn accepted<T>(outcome: Result<T, Error>) -> T {
    match outcome {
        Ok(value) => value,
        Err(error) => panic!("{error} ({error:?})"),
    }
}

/// The class and Neutron's name of a refusal.
#[track_caller]
fn refused<T: Debug>(outcome: Result<T, Error>) -> (Class, String) {
    match outcome {
        Ok(value) => panic!("this was to be refused, but gave {value:?}"),
        Err(Error::Answered { answer, .. }) => (answer.class, answer.kind.unwrap_or_default()),
        Err(error) => panic!("this was to be refused, but: {error} ({error:?})"),
    }
}

#[track_caller]
fn assert_refused<T: Debug>(outcome: Result<T, Error>, class: Class, kind: &str) {
    assert_eq!(refused(outcome), (class, kind.to_owned()));
}

#[track_caller]
fn parsed<T: std::str::FromStr<Err: Debug>>(text: &str) -> T {
    match text.parse() {
        Ok(value) => value,
        Err(error) => panic!("{text:?}: {error:?}"),
    }
}
