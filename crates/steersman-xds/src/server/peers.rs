//! Fairness between addresses while nobody knows whose a stream is: one client cannot take all turns.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The bits of an IPv6 address that one client may have all of.
const CLIENT_BITS: u32 = 64;

/// The turns of each address whose streams have no owner yet.
#[derive(Debug)]
pub(crate) struct Peers {
    max: usize,
    turns: Mutex<HashMap<IpAddr, Waiting>>,
}

/// The streams of an address that wait or have their turn.
#[derive(Debug)]
struct Waiting {
    turns: Arc<Semaphore>,
    n_streams: usize,
}

/// Keeps an address known.
struct Known<'p> {
    peers: &'p Peers,
    address: IpAddr,
}

/// A turn of an address. Whoever has one may wait for a turn among all.
#[derive(Debug)]
pub(crate) struct Turn<'p> {
    _permit: OwnedSemaphorePermit,
    _known: Known<'p>,
}

// === impl Peers ===

impl Peers {
    /// At most `max` streams of an address have a turn at a time.
    pub(crate) fn new(max: usize) -> Peers {
        Peers { max: max.min(Semaphore::MAX_PERMITS), turns: Mutex::default() }
    }

    /// Waits for a turn. The addresses of one network of IPv6 count as one. Peers without an address, as at a Unix socket, need none.
    ///
    /// # Cancel safety
    /// A call that is dropped has taken nothing.
    pub(crate) async fn turn(&self, address: Option<IpAddr>) -> Result<Option<Turn<'_>>, AcquireError> {
        let Some(address) = address.map(client) else { return Ok(None) };
        let turns = {
            let mut all = self.lock();
            let new = || Waiting { turns: Arc::new(Semaphore::new(self.max)), n_streams: 0 };
            let waiting = all.entry(address).or_insert_with(new);
            waiting.n_streams += 1;
            Arc::clone(&waiting.turns)
        };
        let known = Known { peers: self, address };
        let permit = turns.acquire_owned().await?;
        Ok(Some(Turn { _permit: permit, _known: known }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Waiting>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address of a client: of IPv6 the network.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let mask = u128::MAX << (Ipv6Addr::BITS - CLIENT_BITS);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
        address @ IpAddr::V4(_) => address,
    }
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        let mut all = self.peers.lock();
        if let Some(waiting) = all.get_mut(&self.address) {
            waiting.n_streams -= 1;
            if waiting.n_streams == 0 {
                all.remove(&self.address);
            }
        }
    }
}

impl std::fmt::Debug for Known<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Known").field(&self.address).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn an_address_waits_for_itself_and_is_forgotten() {
        let peers = Peers::new(1);
        let at = |text: &str| Some(text.parse().unwrap());
        let soon = |address| tokio::time::timeout(Duration::from_secs(1), peers.turn(address));
        let one = soon(at("10.0.0.1")).await.unwrap().unwrap();
        assert!(one.is_some());
        assert!(soon(at("::ffff:10.0.0.1")).await.is_err(), "it is the same address");
        let network = soon(at("2001:db8::1")).await.unwrap().unwrap();
        assert!(soon(at("2001:db8::2")).await.is_err(), "it is the same network");
        let other = soon(at("2001:db8:0:1::1")).await.unwrap().unwrap();
        assert!(soon(None).await.unwrap().unwrap().is_none());
        drop(one);
        drop(soon(at("10.0.0.1")).await.unwrap().unwrap());
        drop((network, other));
        assert!(peers.lock().is_empty());
    }
}
