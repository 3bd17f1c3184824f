//! Proposes cluster IPs and node ports.
//!
//! Addresses come from the ServiceCIDR objects that are ready; until the first of them is registered, from the ranges
//! of the options.
//!
//! A write reserves first, so that concurrent writers of this server propose different values, and holds its
//! [`Reservation`] until its outcome is known. What is stored is known from IPAddresses and the bitmap of node ports, which
//! [`follower`](crate::write::registry::service_addresses::follower) follows, and may lag behind other servers: the
//! transaction that writes the Service decides.

mod families;
mod range;

use ipnet::IpNet;
use parking_lot::Mutex;
use rand::Rng;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use steersman_kinds::builtin::network::service::{kind, needs_address, needs_health_port, needs_node_ports};
use steersman_kinds::builtin::rules::field::Field;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, set_at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Revision, Value};

use crate::write::registry::service_addresses::follower::{Followers, Part};
use crate::write::registry::service_addresses::node_ports::NodePorts;

pub(crate) use crate::write::registry::service_addresses::allocator::range::Family;

/// The name of the ServiceCIDR of the ranges that the server is started with.
pub(crate) const DEFAULT_RANGES: &str = "kubernetes";

/// The ranges from which addresses and ports of Services are allocated.
#[derive(Clone, Debug)]
pub struct Ranges {
    /// One range of addresses, or one for each family. The first has the default family of Services.
    pub addresses: Vec<IpNet>,
    pub node_ports: RangeInclusive<u16>,
}

impl Ranges {
    /// The address of the Service `kubernetes`, at which programs in Pods reach the server: the first of the first range.
    pub fn server_address(&self) -> Option<IpAddr> {
        self.addresses.first().map(|first| range::address(first, *range::offsets(first).start()))
    }
}

/// Allocates addresses and ports.
#[derive(Debug)]
pub(crate) struct Allocator {
    pub(crate) followers: Followers,
    ranges: Ranges,
    state: Mutex<State>,
    /// Held from the read of the node ports until they are written, so that writers of this server do not overtake each
    /// other.
    pub(crate) writing_node_ports: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// The addresses of all IPAddresses.
    addresses: HashSet<IpAddr>,
    /// The addresses of Services, and the Services by these. A client may have deleted the IPAddress of one.
    services: HashMap<ObjectKey, Vec<IpAddr>>,
    owners: HashMap<IpAddr, ObjectKey>,
    /// The node ports of all Services.
    node_ports: NodePorts,
    /// The items of writes under way.
    reserved: HashSet<Item>,
    /// The ServiceCIDRs by name. No address is allocated from others.
    service_cidrs: BTreeMap<Box<str>, ServiceCidr>,
}

/// The allocator's view of a ServiceCIDR.
#[derive(Debug)]
struct ServiceCidr {
    ranges: Vec<IpNet>,
    is_ready: bool,
}

/// The items that a write gains and loses. No other write of this server gains the same ones before it is dropped.
#[derive(Debug)]
#[must_use = "other writes may gain the same items once this is dropped"]
pub(crate) struct Reservation<'a> {
    allocator: &'a Allocator,
    fresh: Vec<Item>,
    /// Allocated before and no longer needed.
    stale: Vec<Item>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Item {
    Address(IpAddr),
    NodePort(u16),
}

impl Item {
    fn address(self) -> Option<IpAddr> {
        match self {
            Item::Address(address) => Some(address),
            Item::NodePort(_) => None,
        }
    }

    fn node_port(self) -> Option<u16> {
        match self {
            Item::Address(_) => None,
            Item::NodePort(port) => Some(port),
        }
    }
}

/// The maximum number of random draws before the range is searched from its start.
const DRAWS_MAX: usize = 64;

// === impl Ranges ===

impl Default for Ranges {
    /// `10.96.0.0/16`, and upstream's node ports 30000 to 32767.
    fn default() -> Ranges {
        let addresses = IpNet::new_assert(Ipv4Addr::new(10, 96, 0, 0).into(), 16);
        Ranges { addresses: vec![addresses], node_ports: 30_000..=32_767 }
    }
}

// === impl Allocator ===

impl Default for Allocator {
    fn default() -> Allocator {
        Allocator::new(Ranges::default())
    }
}

impl Allocator {
    /// An allocator with nothing allocated.
    pub(crate) fn new(ranges: Ranges) -> Allocator {
        let ranges = Ranges { addresses: ranges.addresses.iter().map(IpNet::trunc).collect(), ..ranges };
        let started_with = ServiceCidr { ranges: ranges.addresses.clone(), is_ready: true };
        let state = State {
            addresses: HashSet::new(),
            services: HashMap::new(),
            owners: HashMap::new(),
            node_ports: NodePorts::new(),
            reserved: HashSet::new(),
            service_cidrs: BTreeMap::from([(DEFAULT_RANGES.into(), started_with)]),
        };
        Allocator {
            followers: Followers::default(),
            ranges,
            state: Mutex::new(state),
            writing_node_ports: tokio::sync::Mutex::default(),
        }
    }

    /// Registers a stored ServiceCIDR. Addresses are allocated from it if it is ready and not being deleted.
    pub(crate) fn observe_range(&self, service_cidr: &Value) {
        let name = str_at(service_cidr, &["metadata", "name"]).unwrap_or_default();
        let ranges = at(service_cidr, &["spec", "cidrs"]).and_then(Value::as_array).into_iter().flatten();
        let ranges = ranges.filter_map(|text| text.as_str()?.parse().ok()).collect();
        // The server makes its own ServiceCIDR ready, and needs an address from it at the same time.
        let is_ready = says_ready(service_cidr).unwrap_or(name == DEFAULT_RANGES);
        let is_ready = is_ready && at(service_cidr, &["metadata", "deletionTimestamp"]).is_none();
        self.state.lock().service_cidrs.insert(name.into(), ServiceCidr { ranges, is_ready });
    }

    /// Removes a deleted ServiceCIDR: no more addresses are allocated from its ranges.
    pub(crate) fn forget_range(&self, name: &str) {
        self.state.lock().service_cidrs.remove(name);
    }

    /// Removes all ServiceCIDRs but those of these names, and the ranges that the server is started with as long as none
    /// is stored.
    pub(crate) fn keep_ranges(&self, names: &HashSet<&str>) {
        self.state.lock().service_cidrs.retain(|name, _| names.is_empty() || names.contains(&**name));
    }

    /// Registers the address of an IPAddress.
    pub(crate) fn add_address(&self, address: IpAddr) {
        self.state.lock().addresses.insert(address);
    }

    /// Frees the address of a deleted IPAddress.
    pub(crate) fn remove_address(&self, address: IpAddr) {
        self.state.lock().addresses.remove(&address);
    }

    /// Registers the addresses of all IPAddresses, in place of all others.
    pub(crate) fn replace_addresses(&self, addresses: HashSet<IpAddr>) {
        self.state.lock().addresses = addresses;
    }

    /// Registers the addresses of a stored Service, in place of those that it had.
    pub(crate) fn replace_service(&self, key: &ObjectKey, service: &Value) {
        let addresses = addresses(service);
        let mut state = self.state.lock();
        state.remove_service(key);
        if !addresses.is_empty() {
            state.owners.extend(addresses.iter().map(|address| (*address, key.clone())));
            state.services.insert(key.clone(), addresses);
        }
    }

    /// Frees the addresses of a deleted Service.
    pub(crate) fn remove_service(&self, key: &ObjectKey) {
        self.state.lock().remove_service(key);
    }

    /// Removes all Services.
    pub(crate) fn remove_services(&self) {
        let mut state = self.state.lock();
        state.services.clear();
        state.owners.clear();
    }

    /// Registers the node ports of all Services.
    pub(crate) fn replace_node_ports(&self, ports: NodePorts) {
        self.state.lock().node_ports = ports;
    }

    /// Waits until a write at a revision is known, if it was one of a resource that the allocator follows. False if it never
    /// will be.
    pub(crate) async fn wait_for(&self, resource: &GroupResource, revision: Revision) -> bool {
        match Part::of(resource) {
            Some(part) => self.followers.progress(part).wait_for(revision).await,
            None => true,
        }
    }

    /// The values that the deletion of a Service frees.
    pub(crate) fn freed(&self, service: &Value) -> Reservation<'_> {
        Reservation { allocator: self, fresh: Vec::new(), stale: items(service) }
    }

    /// Allocates the addresses and ports that a prepared Service still needs, and reserves those that it names. `old`
    /// is the stored Service, if there is one.
    ///
    /// # Errors
    /// The validation errors, for a 422, when an item that it names is taken or out of range, or nothing is left.
    pub(crate) fn reserve(&self, new: &mut Value, old: Option<&Value>) -> Result<Reservation<'_>, Vec<Error>> {
        let held = old.map(items).unwrap_or_default();
        let mut reservation = Reservation { allocator: self, fresh: Vec::new(), stale: Vec::new() };
        let mut faults = Vec::new();
        let mut state = self.state.lock();
        Request { ranges: &self.ranges, state: &mut state, old, held: &held, fresh: &mut reservation.fresh }
            .fill(new, &mut faults);
        // Unlocked first: a failed reservation releases its items on drop, which takes the lock.
        drop(state);
        if !faults.is_empty() {
            return Err(faults);
        }
        let kept = items(new);
        reservation.stale = held.into_iter().filter(|item| !kept.contains(item)).collect();
        Ok(reservation)
    }

    /// Fills in what [`Allocator::reserve`] would, for a dry run: nothing is reserved, so no other write fails because
    /// of it.
    ///
    /// # Errors
    /// The validation errors of a reservation.
    pub(crate) fn preview(&self, new: &mut Value, old: Option<&Value>) -> Result<(), Vec<Error>> {
        let held = old.map(items).unwrap_or_default();
        let (mut fresh, mut faults) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        Request { ranges: &self.ranges, state: &mut state, old, held: &held, fresh: &mut fresh }.fill(new, &mut faults);
        for item in fresh {
            state.reserved.remove(&item);
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// The address ranges that the server is started with.
    pub(crate) fn ranges(&self) -> &[IpNet] {
        &self.ranges.addresses
    }

    /// The address of the Service `kubernetes`.
    pub(crate) fn server_address(&self) -> Option<IpAddr> {
        self.ranges.server_address()
    }

    /// The range of node ports.
    pub(crate) fn node_ports(&self) -> &RangeInclusive<u16> {
        &self.ranges.node_ports
    }
}

// === impl State ===

impl State {
    fn remove_service(&mut self, key: &ObjectKey) {
        for address in self.services.remove(key).into_iter().flatten() {
            if self.owners.get(&address) == Some(key) {
                self.owners.remove(&address);
            }
        }
    }

    fn is_taken(&self, item: Item) -> bool {
        let is_stored = match item {
            Item::Address(address) => self.addresses.contains(&address) || self.owners.contains_key(&address),
            Item::NodePort(port) => self.node_ports.contains(&port),
        };
        is_stored || self.reserved.contains(&item)
    }

    /// The ready ranges of a family, those that the server is started with first.
    fn ready_ranges(&self, family: Family) -> Vec<IpNet> {
        let first = self.service_cidrs.get_key_value(DEFAULT_RANGES);
        let others = self.service_cidrs.iter().filter(|(name, _)| &***name != DEFAULT_RANGES);
        let ready = first.into_iter().chain(others).filter(|(_, one)| one.is_ready);
        ready.flat_map(|(_, one)| &one.ranges).filter(|one| Family::of_range(one) == family).copied().collect()
    }
}

/// Whether the `Ready` condition is true, if there is one.
fn says_ready(service_cidr: &Value) -> Option<bool> {
    let conditions = at(service_cidr, &["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    let mut ready = conditions.filter(|condition| str_at(condition, &["type"]) == Some("Ready"));
    ready.next().map(|condition| str_at(condition, &["status"]) == Some("True"))
}

// === impl Reservation ===

impl Reservation<'_> {
    /// The addresses that the Service gains, and those that it loses.
    pub(crate) fn addresses(&self) -> (Vec<IpAddr>, Vec<IpAddr>) {
        let addresses = |items: &[Item]| items.iter().filter_map(|item| item.address()).collect();
        (addresses(&self.fresh), addresses(&self.stale))
    }

    /// The node ports that the Service gains, and those that it loses.
    pub(crate) fn node_ports(&self) -> (Vec<u16>, Vec<u16>) {
        let ports = |items: &[Item]| items.iter().filter_map(|item| item.node_port()).collect();
        (ports(&self.fresh), ports(&self.stale))
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut state = self.allocator.state.lock();
        for item in &self.fresh {
            state.reserved.remove(item);
        }
    }
}

/// The error of a node port that is not free.
const ALLOCATED: &str = "provided port is already allocated";

/// The allocation for one Service, under the lock.
struct Request<'a> {
    ranges: &'a Ranges,
    state: &'a mut State,
    /// The stored Service, if there is one.
    old: Option<&'a Value>,
    held: &'a [Item],
    fresh: &'a mut Vec<Item>,
}

impl Request<'_> {
    /// Allocates everything that a Service needs or names.
    fn fill(mut self, service: &mut Value, faults: &mut Vec<Error>) {
        let configured: Vec<Family> = self.ranges.addresses.iter().map(Family::of_range).collect();
        families::complete_families(&configured, service, self.old, faults);
        if faults.is_empty() {
            self.addresses(service, faults);
            self.ports(service, faults);
        }
    }

    /// Takes an item; false if another Service has it.
    fn take(&mut self, item: Item) -> bool {
        if self.held.contains(&item) || self.fresh.contains(&item) {
            return true;
        }
        if self.state.is_taken(item) {
            return false;
        }
        self.state.reserved.insert(item);
        self.fresh.push(item);
        true
    }

    /// Takes a free item. The search begins at random, so that a released item is not reused at once, and above the
    /// part of the range that is reserved for items requested by value.
    fn draw(&mut self, range: RangeInclusive<u64>, reserved: u64, item: impl Fn(u64) -> Item) -> Option<Item> {
        let (first, last) = range.into_inner();
        let lowest = first.saturating_add(reserved).min(last);
        let mut random = rand::rng();
        let drawn = (0..DRAWS_MAX).map(|_| random.random_range(lowest..=last)).collect::<Vec<u64>>();
        // The sequential search tries at most one item more than are taken.
        let mut free = drawn.into_iter().chain(lowest..=last).chain(first..lowest).map(item);
        let item = free.find(|item| !self.state.is_taken(*item))?;
        self.take(item).then_some(item)
    }

    /// Allocates the addresses of a new Service, or the second one of a Service that gained a second family. Other
    /// Services keep theirs.
    fn addresses(&mut self, service: &mut Value, faults: &mut Vec<Error>) {
        if !needs_address(service) {
            return;
        }
        let families = families::of(service);
        let first = match self.old.filter(|old| kind(old) != "ExternalName") {
            None => 0,
            Some(old) if needs_address(old) && families::of(old).len() == 1 && families.len() == 2 => 1,
            Some(_) => return,
        };
        for (index, family) in families.into_iter().enumerate().skip(first) {
            let field = Field::root(service).at(&["spec", "clusterIPs"]);
            let named = field.items().nth(index).map(|named| named.text().to_owned()).filter(|text| !text.is_empty());
            let Some(address) = self.address(&field, named.as_deref(), family, faults) else { return };
            let mut all: Vec<Value> = field.items().map(|one| one.value.clone()).collect();
            all.truncate(index);
            all.push(Value::from(address));
            all.extend(field.items().skip(index + 1).map(|one| one.value.clone()));
            if index == 0 {
                set_at(service, &["spec", "clusterIP"], all[0].clone());
            }
            set_at(service, &["spec", "clusterIPs"], Value::from(all));
        }
    }

    /// Takes the named address, or a free one.
    fn address(
        &mut self,
        field: &Field<'_>,
        named: Option<&str>,
        family: Family,
        faults: &mut Vec<Error>,
    ) -> Option<String> {
        let ranges = self.state.ready_ranges(family);
        let Some(text) = named else {
            let drawn = ranges.iter().find_map(|one| {
                let item = |offset| Item::Address(range::address(one, offset));
                self.draw(range::offsets(one), range::static_addresses(one), item)?.address()
            });
            if drawn.is_none() {
                faults.push(Error::internal(&field.path, "failed to allocate a serviceIP: range is full"));
            }
            return drawn.map(|address| address.to_string());
        };
        // Validation reports a text that is not an address.
        let address = text.parse::<IpAddr>().ok()?;
        let is_held = self.held.contains(&Item::Address(address));
        if !is_held && !ranges.iter().any(|one| range::contains(one, address)) {
            let why = "the provided network does not match the current range";
            faults.push(field.invalid(format!("failed to allocate IP {text}: {why}")));
        } else if !self.take(Item::Address(address)) {
            faults.push(field.invalid(format!("failed to allocate IP {text}: provided IP is already allocated")));
        } else {
            return Some(text.to_owned());
        }
        None
    }

    fn ports(&mut self, service: &mut Value, faults: &mut Vec<Error>) {
        if needs_node_ports(service) {
            let twins = twins(service);
            // Named ports first, so that no port is drawn that a later entry names.
            for is_named_round in [true, false] {
                for (index, twin) in twins.iter().enumerate() {
                    let path = format!("/spec/ports/{index}/nodePort");
                    let is_named = service.pointer(&path).and_then(Value::as_u64).is_some_and(|port| port != 0);
                    if is_named == is_named_round {
                        self.port(service, index, *twin, faults);
                    }
                }
            }
        }
        let path = ["spec", "healthCheckNodePort"];
        if needs_health_port(service) {
            let field = Field::root(service).at(&path);
            match self.node_port(&field, faults) {
                Some(number) => set_at(service, &path, Value::from(number)),
                None => false,
            };
        }
    }

    fn port(&mut self, service: &mut Value, index: usize, twin: Option<usize>, faults: &mut Vec<Error>) {
        let ports = Field::root(service).at(&["spec", "ports"]);
        let Some(value) = ports.value.get(index) else { return };
        let field = Field { path: ports.path.index(index), value }.field("nodePort");
        let is_named = field.number().is_some_and(|number| number != 0);
        let twin = twin.and_then(|twin| ports.value.get(twin)?.get("nodePort")?.as_i64());
        if is_named && self.old.is_none() && self.is_repeated(&ports, index) {
            faults.push(field.invalid(ALLOCATED));
            return;
        }
        // An update draws a port for each entry that has none.
        let shared = twin.filter(|_| !is_named && self.old.is_none());
        let number = match shared.and_then(|number| u16::try_from(number).ok()) {
            Some(number) => Some(number),
            None => self.node_port(&field, faults),
        };
        if let (Some(number), Some(port)) = (number, service.pointer_mut(&format!("/spec/ports/{index}"))) {
            set_at(port, &["nodePort"], Value::from(number));
        }
    }

    /// Whether the node port that an entry names was taken for another entry of the same new Service. Entries with the same port number
    /// share the node port that the first of them names.
    fn is_repeated(&self, ports: &Field<'_>, index: usize) -> bool {
        let number = |port: &Field<'_>, field: &str| port.field(field).number().filter(|number| *number != 0);
        let Some(entry) = ports.items().nth(index) else { return false };
        let named = number(&entry, "nodePort");
        let is_like = |other: &Field<'_>| number(other, "port") == number(&entry, "port");
        let has_earlier = ports.items().take(index).any(|other| is_like(&other));
        let shared = ports.items().filter(is_like).find_map(|other| number(&other, "nodePort"));
        if has_earlier && shared == named {
            return false;
        }
        let port = named.and_then(|number| u16::try_from(number).ok());
        port.is_some_and(|port| self.fresh.contains(&Item::NodePort(port)))
    }

    /// Takes the named port, or a free one.
    fn node_port(&mut self, field: &Field<'_>, faults: &mut Vec<Error>) -> Option<u16> {
        let range = self.ranges.node_ports.clone();
        let Some(number) = field.number().filter(|number| *number != 0) else {
            let reserved = u64::from(range.end() - range.start()) / 32;
            let item = |number: u64| Item::NodePort(u16::try_from(number).unwrap_or(u16::MAX));
            let drawn = self.draw((*range.start()).into()..=(*range.end()).into(), reserved, item);
            let Some(Item::NodePort(port)) = drawn else {
                faults.push(Error::internal(&field.path, "failed to allocate a nodePort: range is full"));
                return None;
            };
            return Some(port);
        };
        let port = u16::try_from(number).ok();
        let is_held = port.is_some_and(|port| self.held.contains(&Item::NodePort(port)));
        let Some(port) = port.filter(|port| is_held || range.contains(port)) else {
            let why = format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                range.start(),
                range.end()
            );
            faults.push(field.invalid(why));
            return None;
        };
        if !self.take(Item::NodePort(port)) {
            faults.push(field.invalid(ALLOCATED));
            return None;
        }
        Some(port)
    }
}

pub(crate) fn addresses(service: &Value) -> Vec<IpAddr> {
    items(service).into_iter().filter_map(Item::address).collect()
}

pub(crate) fn node_ports(service: &Value) -> Vec<u16> {
    items(service).into_iter().filter_map(Item::node_port).collect()
}

/// The addresses and ports of a Service.
fn items(service: &Value) -> Vec<Item> {
    let list = |path: &[&str]| at(service, path).and_then(Value::as_array).into_iter().flatten();
    let addresses = list(&["spec", "clusterIPs"]).filter_map(|text| text.as_str()?.parse().ok()).map(Item::Address);
    let ports = list(&["spec", "ports"]).filter_map(|port| port.get("nodePort"));
    let ports = ports.chain(at(service, &["spec", "healthCheckNodePort"]));
    let ports = ports.filter_map(Value::as_u64).filter(|port| *port != 0);
    let ports = ports.filter_map(|port| u16::try_from(port).ok()).map(Item::NodePort);
    addresses.chain(ports).collect()
}

/// For each port of a service, the first port before it with the same number: the two share one node port.
fn twins(service: &Value) -> Vec<Option<usize>> {
    let ports = at(service, &["spec", "ports"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut firsts: HashMap<Option<i64>, usize> = HashMap::new();
    let twin = |(index, port): (usize, &Value)| {
        let first = *firsts.entry(port.get("port").and_then(Value::as_i64)).or_insert(index);
        (first < index).then_some(first)
    };
    ports.iter().enumerate().map(twin).collect()
}

#[cfg(test)]
mod tests;
