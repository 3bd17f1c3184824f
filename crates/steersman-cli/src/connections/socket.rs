//! TCP options of connections: small writes are sent at once, and a vanished peer is noticed.
//!
//! A watch may be silent for hours, and so may its peer. Only the operating system can distinguish a silent peer from
//! one whose machine lost its power: by probes while no data is in flight, by a limit on unacknowledged bytes
//! otherwise.

use rustix::net::sockopt;
use std::os::fd::AsFd;
use std::time::Duration;

/// The idle time after which the peer is probed, the pause between probes, and the number that may stay unanswered: the
/// connection to a vanished peer ends after 135 seconds.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 5;
/// The longest that sent data may stay unacknowledged. Without it the kernel retransmits for a quarter of an hour.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MS_MAX: u32 = 135_000;

/// Sets the options of an accepted connection.
pub(crate) fn configure(socket: impl AsFd) -> std::io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(socket, UNACKNOWLEDGED_MS_MAX)?;
    Ok(())
}

/// Acknowledges received data at once. A client whose kernel collects small writes (Nagle's algorithm) sends its
/// request only when the end of its handshake is acknowledged, and nothing else is sent at that moment.
pub(crate) fn acknowledge(socket: impl AsFd) {
    // If the kernel refuses, it acknowledges 40 ms later.
    #[cfg(target_os = "linux")]
    let _ = sockopt::set_tcp_quickack(socket, true);
    #[cfg(not(target_os = "linux"))]
    let _ = socket;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_silent_peer_is_probed_and_given_up_within_minutes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        configure(&socket).unwrap();
        assert!(sockopt::tcp_nodelay(&socket).unwrap() && sockopt::socket_keepalive(&socket).unwrap());
        let probing = sockopt::tcp_keepintvl(&socket).unwrap() * sockopt::tcp_keepcnt(&socket).unwrap();
        let given_up = sockopt::tcp_keepidle(&socket).unwrap() + probing;
        assert!(given_up < Duration::from_secs(180), "{given_up:?}");
        #[cfg(target_os = "linux")]
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), UNACKNOWLEDGED_MS_MAX);
    }
}
