//! The address at which other machines and Pods reach the server, used by the Service `kubernetes`.
//!
//! Follows apimachinery's `util/net`: a server that listens everywhere, or on a loopback address, is reached at the
//! address of the interface with the default route. On a machine without one there is no such address, and the Service
//! has no endpoints.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// The requested address, or else one that fits the address on which the server listens.
pub(crate) fn find(asked: Option<IpAddr>, bound: IpAddr) -> Option<IpAddr> {
    let found = choose(asked, bound, outgoing);
    if found.is_none() {
        tracing::warn!(
            "this machine has no default route, so the Service kubernetes has no Endpoints: name an address of this machine with \
             --advertise-address"
        );
    }
    found
}

fn choose(asked: Option<IpAddr>, bound: IpAddr, outgoing: impl Fn(IpAddr) -> Option<IpAddr>) -> Option<IpAddr> {
    match asked.filter(|asked| !asked.is_unspecified()) {
        Some(asked) => Some(asked),
        None if bound.is_unspecified() || bound.is_loopback() => outgoing(bound),
        None => Some(bound),
    }
}

/// The address from which this machine reaches other networks, by its routes and in the family of `like`; nothing is
/// sent.
pub(crate) fn outgoing(like: IpAddr) -> Option<IpAddr> {
    // Addresses for documentation: they match the default route, and belong to nobody.
    let (any, afar) = match like {
        IpAddr::V4(_) => (IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from([192, 0, 2, 1])),
        IpAddr::V6(_) => (IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((afar, 9)).ok()?;
    socket.local_addr().ok().map(|own| own.ip()).filter(|own| !own.is_unspecified() && !own.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_loopback_is_advertised_at_the_address_of_the_default_route() {
        let route: IpAddr = "192.0.2.7".parse().unwrap();
        let chosen = |asked: Option<&str>, bound: &str| {
            choose(asked.map(|asked| asked.parse().unwrap()), bound.parse().unwrap(), |_| Some(route))
        };
        assert_eq!(chosen(None, "127.0.0.1"), Some(route));
        assert_eq!(chosen(None, "0.0.0.0"), Some(route));
        assert_eq!(chosen(Some("0.0.0.0"), "0.0.0.0"), Some(route));
        assert_eq!(chosen(None, "198.51.100.3"), Some("198.51.100.3".parse().unwrap()));
        assert_eq!(chosen(Some("203.0.113.9"), "127.0.0.1"), Some("203.0.113.9".parse().unwrap()));
        assert_eq!(choose(None, Ipv4Addr::LOCALHOST.into(), |_| None), None);
    }
}
