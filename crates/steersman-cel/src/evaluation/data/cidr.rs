//! CIDRs.

use std::net::IpAddr;

/// A network: an address and the length of its prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}
