//! `steersman forward`: one address for several servers, for clients that know only one.
//!
//! It passes on bytes and knows nothing of TLS or HTTP, so certificates are checked between the client and the server. A connection stays at
//! its server; the next one goes to the next server that takes connections.

use crate::Failure;
use crate::args::ForwardOptions;
use crate::connections::socket;
use crate::process::open_files;
use crate::process::signals::Signals;
use anyhow::Context as _;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use steersman_server::join;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// The most connections at a time; each takes two sockets.
const CONNECTIONS_MAX: usize = 8_192;
/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a server that took no connection is asked last.
const SHUNNED_FOR: Duration = Duration::from_secs(5);
/// How long connections may go on after the first signal; a second one cuts them.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed accept, as with too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The connections of each client: one address has at most half of all, so that no client takes those of the others.
#[derive(Debug)]
struct Shares {
    most: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection among those of its client, until it is dropped.
#[derive(Debug)]
struct Share {
    client: IpAddr,
    of: Arc<Shares>,
}

/// The servers, and whose turn it is.
#[derive(Debug)]
struct Servers {
    next: AtomicUsize,
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    address: String,
    /// When it last took no connection.
    failed: Mutex<Option<Instant>>,
}

pub(crate) async fn run(options: ForwardOptions) -> Result<(), Failure> {
    let listener = TcpListener::bind(options.listen).await.map_err(|error| {
        Failure::Refused(format!("cannot listen on {}: {error}; choose another --listen", options.listen))
    })?;
    let mut signals = Signals::new()?;
    let address = listener.local_addr().context("the address of the socket is unknown")?;
    let said = format!("forwarding {address} to {}\n", options.servers.join(", "));
    // A closed standard output is no reason to fail.
    let _ = io::stdout().lock().write_all(said.as_bytes());
    let servers = Arc::new(Servers::new(options.servers));
    let connections_max = open_files::room(2 * CONNECTIONS_MAX).div_ceil(2);
    let room = Arc::new(Semaphore::new(connections_max));
    let shares = Arc::new(Shares { most: connections_max.div_ceil(2), taken: Mutex::default() });
    let mut connections = JoinSet::new();
    loop {
        // All arms are cancel-safe. More connections than there is room for wait in the kernel's queue.
        tokio::select! {
            _ = signals.next() => break,
            Some(_) = connections.join_next() => {}
            accepted = async {
                let permit = room.clone().acquire_owned().await;
                (listener.accept().await, permit)
            } => match accepted {
                (Ok((client, from)), permit) => {
                    let Some(share) = shares.take(from.ip()) else {
                        tracing::debug!(client = %from.ip(), "a client has half of all connections: one more is refused");
                        continue;
                    };
                    let servers = servers.clone();
                    connections.spawn(async move {
                        let _held = (permit, share);
                        servers.serve(client).await;
                    });
                }
                (Err(error), _) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    tracing::info!(connections = connections.len(), "no more connections are accepted");
    // The end of the process cuts the connections that are left.
    tokio::select! {
        _ = signals.next() => {}
        _ = timeout(DRAIN_TIMEOUT, async { while connections.join_next().await.is_some() {} }) => {}
    }
    Ok(())
}

impl Shares {
    /// A place for one more connection of a client; `None` if it has its share.
    fn take(self: &Arc<Shares>, client: IpAddr) -> Option<Share> {
        let mut taken = self.taken.lock();
        let n_taken = taken.get(&client).copied().unwrap_or_default();
        if self.most <= n_taken {
            return None;
        }
        taken.insert(client, n_taken + 1);
        Some(Share { client, of: self.clone() })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Entry::Occupied(mut taken) = self.of.taken.lock().entry(self.client) {
            *taken.get_mut() -= 1;
            if *taken.get() == 0 {
                taken.remove();
            }
        }
    }
}

impl Servers {
    fn new(addresses: Vec<String>) -> Servers {
        let server = |address| Server { address, failed: Mutex::new(None) };
        Servers { next: AtomicUsize::new(0), servers: addresses.into_iter().map(server).collect() }
    }

    /// Passes on a connection until one side ends it.
    async fn serve(&self, client: TcpStream) {
        let Some(server) = self.connect().await else { return };
        // Options that the kernel refuses only make a vanished peer stay longer.
        let _ = socket::configure(&client).and_then(|()| socket::configure(&server));
        if let Err(error) = join(client, server).await {
            tracing::debug!(%error, "a connection ended");
        }
    }

    /// A connection to the next server that takes one; `None` if none does.
    async fn connect(&self) -> Option<TcpStream> {
        for server in self.in_order(Instant::now()) {
            let why = match timeout(CONNECT_TIMEOUT, TcpStream::connect(&server.address)).await {
                Ok(Ok(stream)) => {
                    if server.failed.lock().take().is_some() {
                        tracing::info!(server = server.address, "the server takes connections again");
                    }
                    return Some(stream);
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("it does not accept within {} s", CONNECT_TIMEOUT.as_secs()),
            };
            if server.failed.lock().replace(Instant::now()).is_none() {
                tracing::warn!(server = server.address, "the server takes no connections: {why}");
            }
        }
        tracing::error!("no server takes connections: one is refused");
        None
    }

    /// All servers, beginning with the one whose turn it is; behind them those that took no connection lately.
    fn in_order(&self, now: Instant) -> Vec<&Server> {
        let first = self.next.fetch_add(1, Ordering::Relaxed) % self.servers.len().max(1);
        let (late, early) = self.servers.split_at(first);
        let mut order: Vec<&Server> = early.iter().chain(late).collect();
        // Stable, so that the turns stay.
        order.sort_by_key(|server| server.failed.lock().is_some_and(|failed| now < failed + SHUNNED_FOR));
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_one_side_has_closed_does_not_stay_for_ever() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let servers = Servers::new(vec![server.local_addr().unwrap().to_string()]);
        let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(front.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = front.accept().await.unwrap();
        let served = servers.serve(accepted);
        let closes = async { drop(server.accept().await.unwrap()) };
        let bounded = async { timeout(Duration::from_secs(60), served).await.unwrap() };
        tokio::join!(bounded, closes);
        drop(client);
    }

    #[test]
    fn no_client_takes_the_connections_of_the_others() {
        let shares = Arc::new(Shares { most: 2, taken: Mutex::default() });
        let [greedy, other] = [1, 2].map(|n| IpAddr::from([192, 0, 2, n]));
        let (first, second) = (shares.take(greedy), shares.take(greedy));
        assert!(first.is_some() && second.is_some() && shares.take(greedy).is_none());
        assert!(shares.take(other).is_some());
        drop(first);
        assert!(shares.take(greedy).is_some());
        drop(second);
        assert!(shares.taken.lock().is_empty(), "nothing is kept of clients that have gone");
    }

    fn order(servers: &Servers, now: Instant) -> Vec<&str> {
        servers.in_order(now).into_iter().map(|server| &*server.address).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_server_has_its_turn_and_one_that_failed_is_asked_last_for_a_while() {
        let servers = Servers::new(["a", "b", "c"].map(str::to_owned).to_vec());
        let now = Instant::now();
        assert_eq!(order(&servers, now), ["a", "b", "c"]);
        assert_eq!(order(&servers, now), ["b", "c", "a"]);
        *servers.servers[2].failed.lock() = Some(now);
        assert_eq!(order(&servers, now), ["a", "b", "c"]);
        assert_eq!(order(&servers, now), ["a", "b", "c"]);
        assert_eq!(order(&servers, now + SHUNNED_FOR), ["b", "c", "a"]);
        assert_eq!(order(&servers, now + SHUNNED_FOR), ["c", "a", "b"]);
    }
}
