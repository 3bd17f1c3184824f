//! A cloud inside the process that follows Neutron's rules.
//!
//! It is for people without a cloud at hand, and for tests that need a fast one. It has Neutron's networks and subnets:
//! ids, revision numbers, conditional changes, normalized CIDRs, chosen gateways and pools, overlap and gateway
//! refusals under Neutron's names; names need not be unique, as in Neutron. It has no ports, routers, quotas below a
//! hundred thousand, tenants or roles.
//!
//! The logic is in `state` (pure), the disk in `file` (blocking); this module is the async shell around both.

mod file;
mod rules;
mod state;

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::answer::Answer;
use crate::cloud::{Cloud, Reply, RequestId};
use crate::error::{Call, Cause, Detail, Error, Operation};
use crate::simulated::file::File;
use crate::simulated::state::State;
use crate::types::id::{NetworkId, Revision, SubnetId};
use crate::types::network::{Network, NetworkCreate, NetworkFilter, NetworkStatus, NetworkUpdate};
use crate::types::subnet::{Subnet, SubnetCreate, SubnetFilter, SubnetUpdate};

pub use crate::simulated::file::OpenError;

/// A cloud inside the process.
///
/// Clones share the cloud. With a directory, a change is answered only when it is on disk, and is not visible to others
/// before; changes that arrive together are written together.
#[derive(Clone, Debug)]
pub struct Simulated {
    name: Arc<str>,
    store: Store,
}

#[derive(Clone, Debug)]
enum Store {
    Disk(Arc<Disk>),
    Memory(Arc<Mutex<State>>),
}

#[derive(Debug)]
struct Disk {
    file: File,
    /// The accepted state; ahead of `durable` while a write is under way. Locked before `durable`, never for long.
    accepted: Mutex<Numbered>,
    /// The state in the file, which is the one that readers see.
    durable: Mutex<Arc<Numbered>>,
    /// Held while the file is written.
    writing: Arc<tokio::sync::Mutex<()>>,
    /// Set when a write failed: from then on nothing is accepted, since the content of the file is unknown.
    broken: Mutex<Option<Detail>>,
}

/// A state, and the number of changes since it was opened.
#[derive(Debug)]
struct Numbered {
    state: State,
    n_changes: u64,
}

impl Simulated {
    /// An empty cloud that ends with the process.
    pub fn in_memory() -> Self {
        Self { name: Arc::from("simulated (in memory)"), store: Store::Memory(Arc::default()) }
    }

    /// The cloud kept in a directory, which is made if it is missing. Blocks for some milliseconds.
    ///
    /// It survives a crash of the process and of the machine, and only one process may have it open.
    ///
    /// # Errors
    ///
    /// Another process has it open, or the file cannot be used; nothing is changed on disk then.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let (file, state) = File::open(dir)?;
        let name = format!("simulated ({})", file.path().display());
        let disk = Disk {
            file,
            accepted: Mutex::new(Numbered { state: state.clone(), n_changes: 0 }),
            durable: Mutex::new(Arc::new(Numbered { state, n_changes: 0 })),
            writing: Arc::default(),
            broken: Mutex::new(None),
        };
        Ok(Self { name: Arc::from(name), store: Store::Disk(Arc::new(disk)) })
    }

    /// Gives a network a status, as a plugin of Neutron would; does nothing if the network does not exist.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub async fn set_network_status(&self, id: NetworkId, status: NetworkStatus) -> Result<(), Error> {
        let call = Call::on(Operation::UpdateNetwork, id, RequestId::random());
        self.change(call, move |state| {
            state.set_network_status(id, status);
            Ok(())
        })
        .await
    }

    fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        match &self.store {
            Store::Disk(disk) => {
                let durable = disk.durable.lock().clone();
                look(&durable.state)
            }
            Store::Memory(state) => look(&state.lock()),
        }
    }

    async fn change<T>(&self, call: Call, apply: impl FnOnce(&mut State) -> Result<T, Answer>) -> Result<T, Error> {
        let disk = match &self.store {
            Store::Disk(disk) => disk,
            Store::Memory(state) => {
                let outcome = apply(&mut state.lock());
                return outcome.map_err(|answer| call.answered(answer));
            }
        };
        if let Some(detail) = disk.broken.lock().clone() {
            return Err(call.unsent(Cause::Storage(detail)));
        }
        let (outcome, n_changes) = {
            let mut accepted = disk.accepted.lock();
            let outcome = apply(&mut accepted.state);
            if outcome.is_ok() {
                accepted.n_changes += 1;
            }
            (outcome, accepted.n_changes)
        };
        // A refusal may rest on a change that is not durable yet, so it waits for that one too.
        match disk.make_durable(n_changes).await {
            Ok(()) => outcome.map_err(|answer| call.answered(answer)),
            Err(detail) => Err(call.unanswered(Cause::Storage(detail))),
        }
    }
}

impl Disk {
    /// Returns when the file holds at least `n_changes` changes.
    ///
    /// # Cancel safety
    ///
    /// A write under way is finished. If this is cancelled while it waits for its turn, the change is written with the
    /// next one.
    async fn make_durable(self: &Arc<Self>, n_changes: u64) -> Result<(), Detail> {
        if n_changes <= self.durable.lock().n_changes {
            return Ok(());
        }
        let turn = self.writing.clone().lock_owned().await;
        if n_changes <= self.durable.lock().n_changes {
            return Ok(());
        }
        if let Some(detail) = self.broken.lock().clone() {
            return Err(detail);
        }
        let disk = self.clone();
        let written = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            disk.write()
        });
        match written.await {
            Ok(outcome) => outcome,
            Err(error) => Err(Detail::new(error)),
        }
    }

    fn write(&self) -> Result<(), Detail> {
        let next = {
            let accepted = self.accepted.lock();
            Arc::new(Numbered { state: accepted.state.clone(), n_changes: accepted.n_changes })
        };
        match self.file.replace(&next.state) {
            Ok(()) => {
                *self.durable.lock() = next;
                Ok(())
            }
            Err(error) => {
                let detail = Detail::new(error);
                *self.broken.lock() = Some(detail.clone());
                Err(detail)
            }
        }
    }
}

impl Cloud for Simulated {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn project_id(&self, _request: RequestId) -> Reply<'_, Option<String>> {
        Box::pin(async { Ok(Some(state::PROJECT.to_owned())) })
    }

    fn find_networks<'a>(&'a self, _request: RequestId, filter: &'a NetworkFilter) -> Reply<'a, Vec<Network>> {
        Box::pin(async { Ok(self.read(|state| state.find_networks(filter))) })
    }

    fn read_network(&self, request: RequestId, id: NetworkId) -> Reply<'_, Network> {
        let call = Call::on(Operation::ReadNetwork, id, request);
        Box::pin(async move { self.read(|state| state.read_network(id)).map_err(|answer| call.answered(answer)) })
    }

    fn create_network<'a>(&'a self, request: RequestId, network: &'a NetworkCreate) -> Reply<'a, Network> {
        let call = Call::create_network(network, request);
        let (id, now) = (NetworkId::random(), Timestamp::now());
        Box::pin(self.change(call, move |state| state.create_network(id, now, network)))
    }

    fn update_network<'a>(
        &'a self,
        request: RequestId,
        id: NetworkId,
        change: &'a NetworkUpdate,
        expected: Option<Revision>,
    ) -> Reply<'a, Network> {
        let call = Call::on(Operation::UpdateNetwork, id, request);
        let now = Timestamp::now();
        Box::pin(self.change(call, move |state| state.update_network(id, now, change, expected)))
    }

    fn delete_network(&self, request: RequestId, id: NetworkId, expected: Option<Revision>) -> Reply<'_, ()> {
        let call = Call::on(Operation::DeleteNetwork, id, request);
        Box::pin(self.change(call, move |state| state.delete_network(id, expected)))
    }

    fn add_network_tag<'a>(&'a self, request: RequestId, id: NetworkId, tag: &'a str) -> Reply<'a, ()> {
        let call = Call::on(Operation::AddNetworkTag, id, request);
        let now = Timestamp::now();
        Box::pin(self.change(call, move |state| state.add_network_tag(id, now, tag)))
    }

    fn remove_network_tag<'a>(&'a self, request: RequestId, id: NetworkId, tag: &'a str) -> Reply<'a, ()> {
        let call = Call::on(Operation::RemoveNetworkTag, id, request);
        let now = Timestamp::now();
        Box::pin(self.change(call, move |state| state.remove_network_tag(id, now, tag)))
    }

    fn find_subnets<'a>(&'a self, _request: RequestId, filter: &'a SubnetFilter) -> Reply<'a, Vec<Subnet>> {
        Box::pin(async { Ok(self.read(|state| state.find_subnets(filter))) })
    }

    fn read_subnet(&self, request: RequestId, id: SubnetId) -> Reply<'_, Subnet> {
        let call = Call::on(Operation::ReadSubnet, id, request);
        Box::pin(async move { self.read(|state| state.read_subnet(id)).map_err(|answer| call.answered(answer)) })
    }

    fn create_subnet<'a>(&'a self, request: RequestId, subnet: &'a SubnetCreate) -> Reply<'a, Subnet> {
        let call = Call::on(Operation::CreateSubnet, subnet.cidr, request);
        let (id, now) = (SubnetId::random(), Timestamp::now());
        Box::pin(self.change(call, move |state| state.create_subnet(id, now, subnet)))
    }

    fn update_subnet<'a>(
        &'a self,
        request: RequestId,
        id: SubnetId,
        change: &'a SubnetUpdate,
        expected: Option<Revision>,
    ) -> Reply<'a, Subnet> {
        let call = Call::on(Operation::UpdateSubnet, id, request);
        let now = Timestamp::now();
        Box::pin(self.change(call, move |state| state.update_subnet(id, now, change, expected)))
    }

    fn delete_subnet(&self, request: RequestId, id: SubnetId, expected: Option<Revision>) -> Reply<'_, ()> {
        let call = Call::on(Operation::DeleteSubnet, id, request);
        let now = Timestamp::now();
        Box::pin(self.change(call, move |state| state.delete_subnet(id, now, expected)))
    }
}
