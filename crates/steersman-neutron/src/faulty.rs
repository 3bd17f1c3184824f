//! A cloud that fails on demand, for tests of code that uses a cloud.
//!
//! It wraps any backend and is one itself, so the code under test runs against the same trait as in production. A test
//! asks for each fault, and can have its own code run just before a call; without either, every call passes through.

use std::collections::VecDeque;
use std::fmt;
use std::future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::answer::Answer;
use crate::cloud::{Cloud, Reply, RequestId};
use crate::error::{Call, Cause, Error, Operation};
use crate::types::id::{NetworkId, Revision, SubnetId};
use crate::types::network::{Network, NetworkCreate, NetworkFilter, NetworkUpdate};
use crate::types::subnet::{Subnet, SubnetCreate, SubnetFilter, SubnetUpdate};

/// The most faults that can wait, and the most pieces of work; asking for more is a bug in the test and panics.
const PENDING_MAX: usize = 1024;

/// The effect of a fault on a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The server refuses with this status and this error name; the request is not carried out.
    Answer(u16, &'static str),
    /// The request is lost on its way: not carried out, no answer.
    DropRequest,
    /// The request is not carried out, and no answer ever comes; the call ends when its future is dropped.
    Hang,
    /// The request is carried out, but its answer is lost.
    LoseAnswer,
    /// The request is carried out, but its answer cannot be read.
    Malformed,
    /// No connection is made: the request is certainly not carried out.
    Refuse,
    /// The server answers that it is unavailable; the request is not carried out.
    Unavailable,
}

/// A cloud with faults on demand. Clones share them.
///
/// ```
/// use std::sync::Arc;
/// use steersman_neutron::{Cloud, Fault, Faulty, NetworkCreate, NetworkFilter, Operation, RequestId, Simulated};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), steersman_neutron::Error> {
/// let cloud = Faulty::new(Arc::new(Simulated::in_memory()));
/// cloud.next(Operation::CreateNetwork, Fault::LoseAnswer);
/// let request = RequestId::random();
/// let error = cloud.create_network(request, &NetworkCreate::default()).await.unwrap_err();
/// assert!(error.is_uncertain() && cloud.is_spent());
/// assert_eq!(cloud.find_networks(request, &NetworkFilter::all()).await?.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Faulty {
    inner: Arc<dyn Cloud>,
    before: Arc<Mutex<VecDeque<(Operation, Work)>>>,
    pending: Arc<Mutex<VecDeque<(Operation, Fault)>>>,
    outage: Arc<Mutex<Option<Fault>>>,
    n_calls: Arc<AtomicU64>,
}

/// Code that runs before a call.
struct Work(Pin<Box<dyn Future<Output = ()> + Send>>);

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work(..)")
    }
}

impl Faulty {
    /// A cloud that behaves as `inner` until a fault is asked for.
    pub fn new(inner: Arc<dyn Cloud>) -> Self {
        Self { inner, before: Arc::default(), pending: Arc::default(), outage: Arc::default(), n_calls: Arc::default() }
    }

    /// Runs `work` to its end just before the next call of this kind, which waits for it: to simulate another client
    /// between two calls of the code under test. It runs before a fault of the same call. Several for the same kind run
    /// before one call each, in the order in which they were added.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use steersman_neutron::{Cloud, Faulty, NetworkCreate, NetworkFilter, Operation, RequestId, Simulated};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), steersman_neutron::Error> {
    /// let (inner, request) = (Simulated::in_memory(), RequestId::random());
    /// let cloud = Faulty::new(Arc::new(inner.clone()));
    /// cloud.before(Operation::FindNetworks, async move {
    ///     drop(inner.create_network(request, &NetworkCreate::default()).await);
    /// });
    /// assert_eq!(cloud.find_networks(request, &NetworkFilter::all()).await?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If 1024 pieces of work wait already.
    pub fn before(&self, operation: Operation, work: impl Future<Output = ()> + Send + 'static) {
        let mut before = self.before.lock();
        assert!(before.len() < PENDING_MAX, "{PENDING_MAX} wait already");
        before.push_back((operation, Work(Box::pin(work))));
    }

    /// Makes the next call of this kind fail in this way. Several for the same kind happen in the order asked for.
    ///
    /// # Panics
    ///
    /// If 1024 faults wait already.
    pub fn next(&self, operation: Operation, fault: Fault) {
        let mut pending = self.pending.lock();
        assert!(pending.len() < PENDING_MAX, "{PENDING_MAX} faults wait already");
        pending.push_back((operation, fault));
    }

    /// Makes every call fail in this way from now on, until another outage or `None` is set; asking for the project
    /// does not fail. Faults set with [`Faulty::next`] come first.
    pub fn set_outage(&self, outage: Option<Fault>) {
        *self.outage.lock() = outage;
    }

    /// The number of calls made so far, failed ones included; asking for the project does not count.
    pub fn n_calls(&self) -> u64 {
        self.n_calls.load(Ordering::Relaxed)
    }

    /// Whether every fault has happened, and all work was begun.
    pub fn is_spent(&self) -> bool {
        self.pending.lock().is_empty() && self.before.lock().is_empty()
    }

    /// Drops every fault that has not happened, and all work that was not begun.
    pub fn clear(&self) {
        self.pending.lock().clear();
        self.before.lock().clear();
    }

    async fn pass<T>(&self, call: Call, inner: Reply<'_, T>) -> Result<T, Error> {
        // The credentials' project is known without a request, once a token was issued, so this is not counted.
        self.n_calls.fetch_add(u64::from(call.operation != Operation::Authenticate), Ordering::Relaxed);
        let work = take(&self.before, call.operation);
        if let Some(Work(work)) = work {
            work.await;
        }
        let outage = self.outage.lock().filter(|_| call.operation != Operation::Authenticate);
        match take(&self.pending, call.operation).or(outage) {
            None => inner.await,
            Some(Fault::Answer(status, kind)) => {
                Err(call.answered(Answer::refusal(status, kind, "A fault was asked for.")))
            }
            Some(Fault::Malformed) => {
                inner.await?;
                Err(call.unanswered(Cause::Malformed("the answer is not Neutron's (a fault was asked for)".to_owned())))
            }
            Some(Fault::DropRequest) => Err(call.unanswered(Cause::Injected)),
            Some(Fault::Hang) => future::pending().await,
            Some(Fault::LoseAnswer) => {
                inner.await?;
                Err(call.unanswered(Cause::Injected))
            }
            Some(Fault::Refuse) => Err(call.unsent(Cause::Injected)),
            Some(Fault::Unavailable) => {
                Err(call.answered(Answer::refusal(503, "ServiceUnavailable", "A fault was asked for.")))
            }
        }
    }
}

/// The first entry that waits for a call of this kind.
fn take<T>(waiting: &Mutex<VecDeque<(Operation, T)>>, operation: Operation) -> Option<T> {
    let mut waiting = waiting.lock();
    let position = waiting.iter().position(|(wanted, _)| *wanted == operation)?;
    waiting.remove(position).map(|(_, it)| it)
}

impl Cloud for Faulty {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn is_simulated(&self) -> bool {
        self.inner.is_simulated()
    }

    fn project_id(&self, request: RequestId) -> Reply<'_, Option<String>> {
        Box::pin(self.pass(Call::bare(Operation::Authenticate, request), self.inner.project_id(request)))
    }

    fn find_networks<'a>(&'a self, request: RequestId, filter: &'a NetworkFilter) -> Reply<'a, Vec<Network>> {
        let call = Call::bare(Operation::FindNetworks, request);
        Box::pin(self.pass(call, self.inner.find_networks(request, filter)))
    }

    fn read_network(&self, request: RequestId, id: NetworkId) -> Reply<'_, Network> {
        let call = Call::on(Operation::ReadNetwork, id, request);
        Box::pin(self.pass(call, self.inner.read_network(request, id)))
    }

    fn create_network<'a>(&'a self, request: RequestId, network: &'a NetworkCreate) -> Reply<'a, Network> {
        let call = Call::create_network(network, request);
        Box::pin(self.pass(call, self.inner.create_network(request, network)))
    }

    fn update_network<'a>(
        &'a self,
        request: RequestId,
        id: NetworkId,
        change: &'a NetworkUpdate,
        expected: Option<Revision>,
    ) -> Reply<'a, Network> {
        let call = Call::on(Operation::UpdateNetwork, id, request);
        Box::pin(self.pass(call, self.inner.update_network(request, id, change, expected)))
    }

    fn delete_network(&self, request: RequestId, id: NetworkId, expected: Option<Revision>) -> Reply<'_, ()> {
        let call = Call::on(Operation::DeleteNetwork, id, request);
        Box::pin(self.pass(call, self.inner.delete_network(request, id, expected)))
    }

    fn add_network_tag<'a>(&'a self, request: RequestId, id: NetworkId, tag: &'a str) -> Reply<'a, ()> {
        let call = Call::on(Operation::AddNetworkTag, id, request);
        Box::pin(self.pass(call, self.inner.add_network_tag(request, id, tag)))
    }

    fn remove_network_tag<'a>(&'a self, request: RequestId, id: NetworkId, tag: &'a str) -> Reply<'a, ()> {
        let call = Call::on(Operation::RemoveNetworkTag, id, request);
        Box::pin(self.pass(call, self.inner.remove_network_tag(request, id, tag)))
    }

    fn find_subnets<'a>(&'a self, request: RequestId, filter: &'a SubnetFilter) -> Reply<'a, Vec<Subnet>> {
        let call = Call::bare(Operation::FindSubnets, request);
        Box::pin(self.pass(call, self.inner.find_subnets(request, filter)))
    }

    fn read_subnet(&self, request: RequestId, id: SubnetId) -> Reply<'_, Subnet> {
        let call = Call::on(Operation::ReadSubnet, id, request);
        Box::pin(self.pass(call, self.inner.read_subnet(request, id)))
    }

    fn create_subnet<'a>(&'a self, request: RequestId, subnet: &'a SubnetCreate) -> Reply<'a, Subnet> {
        let call = Call::on(Operation::CreateSubnet, subnet.cidr, request);
        Box::pin(self.pass(call, self.inner.create_subnet(request, subnet)))
    }

    fn update_subnet<'a>(
        &'a self,
        request: RequestId,
        id: SubnetId,
        change: &'a SubnetUpdate,
        expected: Option<Revision>,
    ) -> Reply<'a, Subnet> {
        let call = Call::on(Operation::UpdateSubnet, id, request);
        Box::pin(self.pass(call, self.inner.update_subnet(request, id, change, expected)))
    }

    fn delete_subnet(&self, request: RequestId, id: SubnetId, expected: Option<Revision>) -> Reply<'_, ()> {
        let call = Call::on(Operation::DeleteSubnet, id, request);
        Box::pin(self.pass(call, self.inner.delete_subnet(request, id, expected)))
    }
}
