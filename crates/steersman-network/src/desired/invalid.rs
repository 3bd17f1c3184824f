//! What can be wrong with a spec: one sentence each, that names the field, the value and the way out.

use ipnet::IpNet;
use std::net::IpAddr;
use steersman_neutron::AllocationPool;

/// A spec that cannot be made real.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Invalid {
    /// `adopt.id` is no UUID.
    #[error("spec.adopt.id {text:?} is no UUID: want the id of a network in Neutron")]
    AdoptId {
        /// What was given.
        text: String,
    },
    /// `adopt` names the network in two ways, or in none.
    #[error("spec.adopt has to name the network in exactly one way: want either id or tag")]
    AdoptNotOne,
    /// `adopt.tag` cannot be a tag.
    #[error("spec.adopt.tag {text:?} is no tag: want one that is not empty and has no comma")]
    AdoptTag {
        /// What was given.
        text: String,
    },
    /// The text is not a CIDR.
    #[error("spec.cidr {text:?} is no CIDR: want an address and a prefix length, such as \"192.168.0.0/16\"")]
    Cidr {
        /// What was given.
        text: String,
    },
    /// The description looks like a marker of the operator.
    #[error("spec.description {text:?} begins as the operator's own markers do: want another text")]
    DescriptionIsMarker {
        /// What was given.
        text: String,
    },
    /// The description is longer than Neutron takes.
    #[error("spec.description has {chars} characters: want at most {chars_max}")]
    DescriptionTooLong {
        /// How many it has.
        chars: usize,
        /// How many it may have.
        chars_max: usize,
    },
    /// The gateway is no address.
    #[error("spec.gateway {text:?} is no IP address: want one such as \"192.168.0.1\"")]
    Gateway {
        /// What was given.
        text: String,
    },
    /// The gateway is in a pool, so that a port could get its address.
    #[error("spec.gateway {gateway} is inside spec.allocationPools {start}-{end}: leave it out of the pool")]
    GatewayInPool {
        /// The gateway, chosen or given.
        gateway: IpAddr,
        /// Of the pool.
        start: IpAddr,
        /// Of the pool.
        end: IpAddr,
    },
    /// The gateway is not in the cidr.
    #[error("spec.gateway {gateway} is outside spec.cidr {cidr}: want an address within it")]
    GatewayOutside {
        /// What was given.
        gateway: IpAddr,
        /// Where it should be.
        cidr: IpNet,
    },
    /// The gateway is the first or last address of the cidr, which no host can have.
    #[error("spec.gateway {gateway} is the {what} address of spec.cidr {cidr}: want another address within it")]
    GatewayReserved {
        /// What was given.
        gateway: IpAddr,
        /// What it is.
        what: &'static str,
        /// Of what.
        cidr: IpNet,
    },
    /// The cidr has bits behind its prefix.
    #[error("spec.cidr {text:?} has bits set behind its prefix: write {network}")]
    HostBits {
        /// What was given.
        text: String,
        /// What was meant.
        network: IpNet,
    },
    /// A field that must be there is not.
    #[error("spec.{field} is missing: give it a value such as {example:?}")]
    Missing {
        /// Which.
        field: &'static str,
        /// What it could be.
        example: &'static str,
    },
    /// The MTU is smaller than any host may assume.
    #[error("spec.mtu {mtu} is too small for spec.cidr {cidr}: want {mtu_min} or more")]
    MtuTooSmall {
        /// What was given.
        mtu: u32,
        /// The smallest.
        mtu_min: u32,
        /// The subnet, whose version decides.
        cidr: IpNet,
    },
    /// A name server is no address.
    #[error("spec.dnsNameservers has {text:?}, which is no IP address: want one such as \"192.168.0.2\"")]
    Nameserver {
        /// What was given.
        text: String,
    },
    /// A name server is there twice.
    #[error("spec.dnsNameservers has {server} twice: name it once")]
    NameserverTwice {
        /// Which.
        server: IpAddr,
    },
    /// A name server is of the other version of IP.
    #[error(
        "spec.dnsNameservers has {server}, which spec.cidr {cidr} cannot reach: want addresses of its version of IP"
    )]
    NameserverVersion {
        /// Which.
        server: IpAddr,
        /// The subnet.
        cidr: IpNet,
    },
    /// `Observed` without anything to observe.
    #[error("spec.managementPolicy is Observed, which makes no network: name the one to observe in spec.adopt")]
    NothingToObserve,
    /// The end of a pool is no address.
    #[error("spec.allocationPools has {text:?}, which is no IP address: want one such as \"192.168.0.10\"")]
    Pool {
        /// What was given.
        text: String,
    },
    /// A pool is not a range of the cidr.
    #[error("spec.allocationPools {}-{} is no range of addresses of spec.cidr {cidr}: want start and end within it, in order", pool.start, pool.end)]
    PoolOutside {
        /// Which.
        pool: AllocationPool,
        /// Where it should be.
        cidr: IpNet,
    },
    /// Two pools share addresses.
    #[error("spec.allocationPools {}-{} and {}-{} overlap: make them one", first.start, first.end, second.start, second.end)]
    PoolsOverlap {
        /// One.
        first: AllocationPool,
        /// The other.
        second: AllocationPool,
    },
    /// The cidr is too small for a gateway and a host.
    #[error("spec.cidr {cidr} has no room for a gateway and a host: want a shorter prefix")]
    TooSmall {
        /// What was given.
        cidr: IpNet,
    },
    /// A field is of another type.
    #[error("spec.{field} is {json}, want {want}")]
    Type {
        /// Which.
        field: &'static str,
        /// What it is.
        json: String,
        /// What it should be.
        want: &'static str,
    },
}
