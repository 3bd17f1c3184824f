//! A cloud that calls a function after every call: for metrics, whose library this crate does not choose.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cloud::{Cloud, Reply, RequestId};
use crate::error::{Error, Operation};
use crate::types::id::{NetworkId, Revision, SubnetId};
use crate::types::network::{Network, NetworkCreate, NetworkFilter, NetworkUpdate};
use crate::types::subnet::{Subnet, SubnetCreate, SubnetFilter, SubnetUpdate};

/// Gets each call: its kind, its outcome, and how long it took. Called on the task that made the call, so it must not
/// block.
pub type Observer = dyn Fn(Operation, Result<(), &Error>, Duration) + Send + Sync;

/// A cloud whose calls are measured. A search of several pages is one call. A call that is dropped is not reported.
#[derive(Clone)]
pub struct Measured {
    inner: Arc<dyn Cloud>,
    observer: Arc<Observer>,
}

impl Measured {
    /// A cloud that behaves as `inner` and calls `observer` after every call.
    pub fn new(inner: Arc<dyn Cloud>, observer: Arc<Observer>) -> Self {
        Self { inner, observer }
    }

    async fn measure<T>(&self, operation: Operation, reply: Reply<'_, T>) -> Result<T, Error> {
        let begun = Instant::now();
        let outcome = reply.await;
        (self.observer)(operation, outcome.as_ref().map(|_| ()), begun.elapsed());
        outcome
    }
}

impl fmt::Debug for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Measured").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Cloud for Measured {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn is_simulated(&self) -> bool {
        self.inner.is_simulated()
    }

    fn project_id(&self, request: RequestId) -> Reply<'_, Option<String>> {
        self.inner.project_id(request)
    }

    fn find_networks<'a>(&'a self, request: RequestId, filter: &'a NetworkFilter) -> Reply<'a, Vec<Network>> {
        Box::pin(self.measure(Operation::FindNetworks, self.inner.find_networks(request, filter)))
    }

    fn read_network(&self, request: RequestId, id: NetworkId) -> Reply<'_, Network> {
        Box::pin(self.measure(Operation::ReadNetwork, self.inner.read_network(request, id)))
    }

    fn create_network<'a>(&'a self, request: RequestId, network: &'a NetworkCreate) -> Reply<'a, Network> {
        Box::pin(self.measure(Operation::CreateNetwork, self.inner.create_network(request, network)))
    }

    fn update_network<'a>(
        &'a self,
        request: RequestId,
        id: NetworkId,
        change: &'a NetworkUpdate,
        expected: Option<Revision>,
    ) -> Reply<'a, Network> {
        Box::pin(self.measure(Operation::UpdateNetwork, self.inner.update_network(request, id, change, expected)))
    }

    fn delete_network(&self, request: RequestId, id: NetworkId, expected: Option<Revision>) -> Reply<'_, ()> {
        Box::pin(self.measure(Operation::DeleteNetwork, self.inner.delete_network(request, id, expected)))
    }

    fn add_network_tag<'a>(&'a self, request: RequestId, id: NetworkId, tag: &'a str) -> Reply<'a, ()> {
        Box::pin(self.measure(Operation::AddNetworkTag, self.inner.add_network_tag(request, id, tag)))
    }

    fn remove_network_tag<'a>(&'a self, request: RequestId, id: NetworkId, tag: &'a str) -> Reply<'a, ()> {
        Box::pin(self.measure(Operation::RemoveNetworkTag, self.inner.remove_network_tag(request, id, tag)))
    }

    fn find_subnets<'a>(&'a self, request: RequestId, filter: &'a SubnetFilter) -> Reply<'a, Vec<Subnet>> {
        Box::pin(self.measure(Operation::FindSubnets, self.inner.find_subnets(request, filter)))
    }

    fn read_subnet(&self, request: RequestId, id: SubnetId) -> Reply<'_, Subnet> {
        Box::pin(self.measure(Operation::ReadSubnet, self.inner.read_subnet(request, id)))
    }

    fn create_subnet<'a>(&'a self, request: RequestId, subnet: &'a SubnetCreate) -> Reply<'a, Subnet> {
        Box::pin(self.measure(Operation::CreateSubnet, self.inner.create_subnet(request, subnet)))
    }

    fn update_subnet<'a>(
        &'a self,
        request: RequestId,
        id: SubnetId,
        change: &'a SubnetUpdate,
        expected: Option<Revision>,
    ) -> Reply<'a, Subnet> {
        Box::pin(self.measure(Operation::UpdateSubnet, self.inner.update_subnet(request, id, change, expected)))
    }

    fn delete_subnet(&self, request: RequestId, id: SubnetId, expected: Option<Revision>) -> Reply<'_, ()> {
        Box::pin(self.measure(Operation::DeleteSubnet, self.inner.delete_subnet(request, id, expected)))
    }
}
