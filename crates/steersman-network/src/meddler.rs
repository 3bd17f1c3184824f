//! A double for tests in which somebody else changes a network between two calls of the operator.

use parking_lot::Mutex;
use std::sync::Arc;
use steersman_neutron::{
    Cloud, Network, NetworkCreate, NetworkFilter, NetworkId, NetworkUpdate, Operation, Reply, RequestId, Revision,
    Simulated, Subnet, SubnetCreate, SubnetFilter, SubnetId, SubnetUpdate,
};

/// What somebody else does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meddling {
    Tag(NetworkId, &'static str),
    Describe(NetworkId, &'static str),
}

/// A cloud whose networks somebody else changes just before a call.
#[derive(Clone, Debug)]
pub(crate) struct Meddler {
    inner: Simulated,
    next: Arc<Mutex<Vec<(Operation, Meddling)>>>,
}

impl Meddler {
    pub(crate) fn new(inner: Simulated) -> Meddler {
        Meddler { inner, next: Arc::default() }
    }

    /// Somebody else does this just before the next such call.
    pub(crate) fn before(&self, operation: Operation, meddling: Meddling) {
        self.next.lock().push((operation, meddling));
    }

    async fn meddle(&self, operation: Operation) {
        let meddling = {
            let mut next = self.next.lock();
            let Some(position) = next.iter().position(|(before, _)| *before == operation) else { return };
            next.remove(position).1
        };
        let request = RequestId::random();
        match meddling {
            Meddling::Tag(id, tag) => self.inner.add_network_tag(request, id, tag).await.unwrap(),
            Meddling::Describe(id, text) => {
                let change = NetworkUpdate { description: Some(text.to_owned()), ..NetworkUpdate::default() };
                self.inner.update_network(request, id, &change, None).await.unwrap();
            }
        }
    }
}

impl Cloud for Meddler {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn project_id(&self, request: RequestId) -> Reply<'_, Option<String>> {
        self.inner.project_id(request)
    }

    fn find_networks<'a>(&'a self, request: RequestId, filter: &'a NetworkFilter) -> Reply<'a, Vec<Network>> {
        self.inner.find_networks(request, filter)
    }

    fn read_network(&self, request: RequestId, id: NetworkId) -> Reply<'_, Network> {
        self.inner.read_network(request, id)
    }

    fn create_network<'a>(&'a self, request: RequestId, network: &'a NetworkCreate) -> Reply<'a, Network> {
        self.inner.create_network(request, network)
    }

    fn update_network<'a>(
        &'a self,
        request: RequestId,
        id: NetworkId,
        change: &'a NetworkUpdate,
        expected: Option<Revision>,
    ) -> Reply<'a, Network> {
        self.inner.update_network(request, id, change, expected)
    }

    fn delete_network(&self, request: RequestId, id: NetworkId, expected: Option<Revision>) -> Reply<'_, ()> {
        Box::pin(async move {
            self.meddle(Operation::DeleteNetwork).await;
            self.inner.delete_network(request, id, expected).await
        })
    }

    fn add_network_tag<'a>(&'a self, request: RequestId, id: NetworkId, tag: &'a str) -> Reply<'a, ()> {
        Box::pin(async move {
            self.meddle(Operation::AddNetworkTag).await;
            self.inner.add_network_tag(request, id, tag).await
        })
    }

    fn remove_network_tag<'a>(&'a self, request: RequestId, id: NetworkId, tag: &'a str) -> Reply<'a, ()> {
        self.inner.remove_network_tag(request, id, tag)
    }

    fn find_subnets<'a>(&'a self, request: RequestId, filter: &'a SubnetFilter) -> Reply<'a, Vec<Subnet>> {
        self.inner.find_subnets(request, filter)
    }

    fn read_subnet(&self, request: RequestId, id: SubnetId) -> Reply<'_, Subnet> {
        self.inner.read_subnet(request, id)
    }

    fn create_subnet<'a>(&'a self, request: RequestId, subnet: &'a SubnetCreate) -> Reply<'a, Subnet> {
        self.inner.create_subnet(request, subnet)
    }

    fn update_subnet<'a>(
        &'a self,
        request: RequestId,
        id: SubnetId,
        change: &'a SubnetUpdate,
        expected: Option<Revision>,
    ) -> Reply<'a, Subnet> {
        self.inner.update_subnet(request, id, change, expected)
    }

    fn delete_subnet(&self, request: RequestId, id: SubnetId, expected: Option<Revision>) -> Reply<'_, ()> {
        self.inner.delete_subnet(request, id, expected)
    }
}
