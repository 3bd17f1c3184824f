//! Addresses on the command line of the mesh.

use std::net::SocketAddr;
use steersman_mesh::pilot::serve::Address;

/// An address to listen on or to ask.
pub(super) fn socket(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "want an IP address and a port, such as 127.0.0.1:15010 or [::1]:0".to_owned())
}

/// An address to listen on, or a Unix socket.
pub(super) fn listen(text: &str) -> Result<Address, String> {
    match text.strip_prefix("unix:") {
        Some("") => Err("want a path after unix:".to_owned()),
        Some(path) => Ok(Address::Unix(path.into())),
        None => socket(text).map(Address::Tcp).map_err(|error| format!("{error}, or unix:PATH")),
    }
}

/// An address to listen on that no other machine reaches.
pub(super) fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address = socket(text)?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err(format!("{} is not on loopback, and whoever connects needs no login", address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_port_or_a_unix_socket() {
        assert_eq!(listen("unix:/run/xds"), Ok(Address::Unix("/run/xds".into())));
        assert_eq!(listen("127.0.0.1:1"), Ok(Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 1)))));
        assert!(listen("unix:").unwrap_err().contains("path"));
        assert!(listen("15010").unwrap_err().ends_with("or unix:PATH"));
        assert!(loopback("[::1]:0").is_ok());
        assert!(loopback("0.0.0.0:15014").unwrap_err().contains("0.0.0.0 is not on loopback"));
    }
}
