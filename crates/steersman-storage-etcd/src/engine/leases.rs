//! Leases of etcd for entries that go away by themselves, such as Events. As in kube-apiserver (`storage/etcd3/lease_manager.go`) many
//! entries share one: a lease lasts a little longer than they must, and those that are written within that time hang on it.
//!
//! An entry that is written again hangs on the lease of that write, so it lasts from its last write on.

use crate::client::failure::NoTurn;
use crate::client::{Client, Lane, undone};
use crate::options::Expiry;
use crate::proto::LeaseGrantRequest;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use steersman_storage::kv::Error;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

/// The most entries on one lease. etcd deletes them in one revision.
const ENTRIES_MAX: u32 = 1_000;
/// How much longer than its entries a lease lasts: this part of their time, and at most this.
const LONGER_PART: u32 = 20;
const LONGER_MAX: Duration = Duration::from_secs(60);

/// The leases on which entries are hung at present.
#[derive(Debug)]
pub(crate) struct Leases(Vec<(Expiry, Mutex<Option<Current>>)>);

#[derive(Clone, Copy, Debug)]
struct Current {
    id: i64,
    n_entries: u32,
    /// From then on the lease would end before an entry may.
    until: Instant,
}

impl Leases {
    pub(crate) fn new(expiring: &[Expiry]) -> Leases {
        Leases(expiring.iter().map(|expiry| (expiry.clone(), Mutex::new(None))).collect())
    }

    /// The lease for an entry with this key; 0 if it stays until it is deleted.
    ///
    /// # Errors
    /// When etcd grants none.
    pub(crate) async fn of(&self, client: &Client, key: &Bytes, give_up: Instant) -> Result<i64, Error> {
        let Some((expiry, current)) = self.find(key) else { return Ok(0) };
        let Ok(mut current) = timeout_at(give_up, current.lock()).await else {
            return Err(Error::Unavailable { source: Arc::new(NoTurn("a lease for entries that go away")) });
        };
        let now = Instant::now();
        if let Some(current) = &mut *current
            && now < current.until
            && current.n_entries < ENTRIES_MAX
        {
            current.n_entries += 1;
            return Ok(current.id);
        }
        let longer = (expiry.after / LONGER_PART).min(LONGER_MAX);
        let seconds = (expiry.after + longer).as_secs_f64().ceil();
        // A number of seconds that a person gives fits.
        let request = LeaseGrantRequest { ttl: seconds as i64 };
        // A lease whose answer is lost has no entries, and ends by itself.
        let granted = client.read(Lane::Requests, &request, give_up).await.map_err(|failure| undone(&failure))?;
        *current = Some(Current { id: granted.id, n_entries: 1, until: now + longer });
        Ok(granted.id)
    }

    /// Forgets the leases for these keys, which etcd does not know any more, so that the next entries get new ones.
    pub(crate) async fn renew<'a>(&self, keys: impl Iterator<Item = &'a Bytes>) {
        for (_, current) in keys.filter_map(|key| self.find(key)) {
            *current.lock().await = None;
        }
    }

    fn find(&self, key: &Bytes) -> Option<&(Expiry, Mutex<Option<Current>>)> {
        self.0.iter().find(|(expiry, _)| key.starts_with(&expiry.prefix))
    }
}
