//! [`Cloud`]: the calls of every backend. Each backend has a module of its own.

use std::fmt;
use std::pin::Pin;

use uuid::Uuid;

use crate::error::Error;
use crate::types::id::{NetworkId, Revision, SubnetId};
use crate::types::network::{Network, NetworkCreate, NetworkFilter, NetworkUpdate};
use crate::types::subnet::{Subnet, SubnetCreate, SubnetFilter, SubnetUpdate};

/// The answer to a call, once awaited.
///
/// Every reply ends: the real client has a limit on connecting and on the whole exchange.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Networks and subnets of one project in one Neutron, real or simulated.
///
/// Each call takes the id of the work it belongs to (see [`RequestId`]) first. `expected` on an update or delete makes it
/// conditional: if the resource's revision is another, nothing is changed and the call ends in
/// [`Class::PreconditionFailed`](crate::Class::PreconditionFailed).
///
/// A resource of another project looks absent, and so does one that the credentials may not read: do not take one "not
/// found" for proof that somebody deleted it.
///
/// # Cancel safety
///
/// Dropping the reply to a create, update or delete leaves open whether it happened.
pub trait Cloud: fmt::Debug + Send + Sync {
    /// The name of this backend for people: the URL of a real one, "simulated (...)" for the other.
    fn name(&self) -> &str;

    /// Whether networks here exist only in this process and its files.
    fn is_simulated(&self) -> bool;

    /// The project that the credentials belong to; `None` where the backend does not know it (a Neutron without
    /// sign-in).
    fn project_id(&self, request: RequestId) -> Reply<'_, Option<String>>;

    /// Finds every network that matches, oldest first, equally old ones by id.
    fn find_networks<'a>(&'a self, request: RequestId, filter: &'a NetworkFilter) -> Reply<'a, Vec<Network>>;

    /// Reads one network.
    fn read_network(&self, request: RequestId, id: NetworkId) -> Reply<'_, Network>;

    /// Creates a network. Calling twice creates two: search for your marker first, and again if the error is uncertain.
    fn create_network<'a>(&'a self, request: RequestId, network: &'a NetworkCreate) -> Reply<'a, Network>;

    /// Changes the set fields of a network and returns the whole network.
    fn update_network<'a>(
        &'a self,
        request: RequestId,
        id: NetworkId,
        change: &'a NetworkUpdate,
        expected: Option<Revision>,
    ) -> Reply<'a, Network>;

    /// Deletes a network **and, silently, its subnets**. Refused with
    /// [`Class::InUse`](crate::Class::InUse) while it has ports.
    fn delete_network(&self, request: RequestId, id: NetworkId, expected: Option<Revision>) -> Reply<'_, ()>;

    /// Adds a tag to a network, which may have it already. Tags cannot be part of the create.
    ///
    /// A tag may have only ASCII letters, digits, `-`, `.`, `_`, `~` and `:`; another one is not sent. If the network
    /// does not exist, Neutron 29 answers [`Class::ServerError`](crate::Class::ServerError), so check whether it
    /// exists.
    fn add_network_tag<'a>(&'a self, request: RequestId, id: NetworkId, tag: &'a str) -> Reply<'a, ()>;

    /// Removes a tag from a network; [`Class::NotFound`](crate::Class::NotFound) if it does not have it.
    fn remove_network_tag<'a>(&'a self, request: RequestId, id: NetworkId, tag: &'a str) -> Reply<'a, ()>;

    /// Finds every subnet that matches, oldest first, equally old ones by id.
    fn find_subnets<'a>(&'a self, request: RequestId, filter: &'a SubnetFilter) -> Reply<'a, Vec<Subnet>>;

    /// Reads one subnet.
    fn read_subnet(&self, request: RequestId, id: SubnetId) -> Reply<'_, Subnet>;

    /// Creates a subnet. Within one network the CIDR is its natural key: a second create of the same is answered with
    /// [`Class::Overlap`](crate::Class::Overlap), a missing network with [`Class::NotFound`](crate::Class::NotFound).
    fn create_subnet<'a>(&'a self, request: RequestId, subnet: &'a SubnetCreate) -> Reply<'a, Subnet>;

    /// Changes the set fields of a subnet and returns the whole subnet.
    fn update_subnet<'a>(
        &'a self,
        request: RequestId,
        id: SubnetId,
        change: &'a SubnetUpdate,
        expected: Option<Revision>,
    ) -> Reply<'a, Subnet>;

    /// Deletes a subnet. Refused with [`Class::InUse`](crate::Class::InUse) while a port has one of its addresses.
    fn delete_subnet(&self, request: RequestId, id: SubnetId, expected: Option<Revision>) -> Reply<'_, ()>;
}

/// The id that ties calls to the work that they belong to; draw one per reconcile.
///
/// Sent as `X-Openstack-Request-Id`, so that it is in the log of Neutron, and kept in errors. Prints as `req-` and a
/// UUID, the only form that Neutron accepts.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(Uuid);

impl RequestId {
    /// A new id.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl From<Uuid> for RequestId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "req-{}", self.0.hyphenated())
    }
}
