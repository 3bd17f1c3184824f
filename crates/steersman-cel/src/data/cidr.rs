//! Networks.

use std::net::IpAddr;

/// A network: an address and how many of its bits count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}
