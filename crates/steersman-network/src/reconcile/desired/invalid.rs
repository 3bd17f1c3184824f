//! Validation errors of a spec: one sentence each, that names the field, the value and the way out.

use ipnet::IpNet;
use std::net::IpAddr;
use steersman_neutron::AllocationPool;

/// A spec that cannot be made real.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Invalid {
    /// `adopt.id` is not a UUID.
    #[error("spec.adopt.id {text:?} is no UUID: want the id of a network in Neutron")]
    AdoptId {
        /// The text given.
        text: String,
    },
    /// `adopt` names the network in two ways, or in none.
    #[error("spec.adopt has to name the network in exactly one way: want either id or tag")]
    AdoptNotOne,
    /// `adopt.tag` is not a legal tag.
    #[error("spec.adopt.tag {text:?} is no tag: want one that is not empty and has no comma")]
    AdoptTag {
        /// The text given.
        text: String,
    },
    /// The text is not a CIDR.
    #[error("spec.cidr {text:?} is no CIDR: want an address and a prefix length, such as \"192.168.0.0/16\"")]
    Cidr {
        /// The text given.
        text: String,
    },
    /// The description looks like a marker of the operator.
    #[error("spec.description {text:?} begins as the operator's own markers do: want another text")]
    DescriptionIsMarker {
        /// The text given.
        text: String,
    },
    /// The description is longer than Neutron accepts.
    #[error("spec.description has {chars} characters: want at most {chars_max}")]
    DescriptionTooLong {
        /// Its length in characters.
        chars: usize,
        /// The most characters that Neutron accepts.
        chars_max: usize,
    },
    /// The gateway is not an address.
    #[error("spec.gateway {text:?} is no IP address: want one such as \"192.168.0.1\"")]
    Gateway {
        /// The text given.
        text: String,
    },
    /// The gateway is in a pool, so that a port could get its address.
    #[error("spec.gateway {gateway} is inside spec.allocationPools {start}-{end}: leave it out of the pool")]
    GatewayInPool {
        /// The gateway, chosen or given.
        gateway: IpAddr,
        /// The first address of the pool.
        start: IpAddr,
        /// The last address of the pool.
        end: IpAddr,
    },
    /// The gateway is outside the CIDR.
    #[error("spec.gateway {gateway} is outside spec.cidr {cidr}: want an address within it")]
    GatewayOutside {
        /// The gateway given.
        gateway: IpAddr,
        /// The CIDR of the subnet.
        cidr: IpNet,
    },
    /// The gateway is the first or last address of the CIDR, which no host can have.
    #[error("spec.gateway {gateway} is the {what} address of spec.cidr {cidr}: want another address within it")]
    GatewayReserved {
        /// The gateway given.
        gateway: IpAddr,
        /// The name of such an address, for example "broadcast address".
        what: &'static str,
        /// The CIDR of the subnet.
        cidr: IpNet,
    },
    /// The CIDR has bits set behind its prefix.
    #[error("spec.cidr {text:?} has bits set behind its prefix: write {network}")]
    HostBits {
        /// The text given.
        text: String,
        /// The network that it lies in, which was probably meant.
        network: IpNet,
    },
    /// A required field is absent.
    #[error("spec.{field} is missing: give it a value such as {example:?}")]
    Missing {
        /// The path of the field.
        field: &'static str,
        /// An example of a value.
        example: &'static str,
    },
    /// The MTU is smaller than the minimum of the version of IP.
    #[error("spec.mtu {mtu} is too small for spec.cidr {cidr}: want {mtu_min} or more")]
    MtuTooSmall {
        /// The MTU given.
        mtu: u32,
        /// The smallest MTU allowed.
        mtu_min: u32,
        /// The CIDR of the subnet, whose version of IP decides the minimum.
        cidr: IpNet,
    },
    /// A name server is not an address.
    #[error("spec.dnsNameservers has {text:?}, which is no IP address: want one such as \"192.168.0.2\"")]
    Nameserver {
        /// The text given.
        text: String,
    },
    /// A name server is listed twice.
    #[error("spec.dnsNameservers has {server} twice: name it once")]
    NameserverTwice {
        /// The name server.
        server: IpAddr,
    },
    /// A name server is of the other version of IP.
    #[error(
        "spec.dnsNameservers has {server}, which spec.cidr {cidr} cannot reach: want addresses of its version of IP"
    )]
    NameserverVersion {
        /// The name server.
        server: IpAddr,
        /// The CIDR of the subnet.
        cidr: IpNet,
    },
    /// The policy is `Observed`, and the spec names nothing to observe.
    #[error("spec.managementPolicy is Observed, which makes no network: name the one to observe in spec.adopt")]
    NothingToObserve,
    /// The start or end of a pool is not an address.
    #[error("spec.allocationPools has {text:?}, which is no IP address: want one such as \"192.168.0.10\"")]
    Pool {
        /// The text given.
        text: String,
    },
    /// A pool is not a range inside the CIDR.
    #[error("spec.allocationPools {}-{} is no range of addresses of spec.cidr {cidr}: want start and end within it, in order", pool.start, pool.end)]
    PoolOutside {
        /// The pool.
        pool: AllocationPool,
        /// The CIDR of the subnet.
        cidr: IpNet,
    },
    /// Two pools share addresses.
    #[error("spec.allocationPools {}-{} and {}-{} overlap: make them one", first.start, first.end, second.start, second.end)]
    PoolsOverlap {
        /// One of the two pools.
        first: AllocationPool,
        /// The other pool.
        second: AllocationPool,
    },
    /// The CIDR is too small for a gateway and a host.
    #[error("spec.cidr {cidr} has no room for a gateway and a host: want a shorter prefix")]
    TooSmall {
        /// The CIDR given.
        cidr: IpNet,
    },
    /// A field has the wrong JSON type.
    #[error("spec.{field} is {json}, want {want}")]
    Type {
        /// The path of the field.
        field: &'static str,
        /// The value given, as JSON.
        json: String,
        /// The type that is wanted.
        want: &'static str,
    },
}
