//! Allocates cluster IPs and node ports.
//!
//! Addresses come from the ServiceCIDR objects that are ready; until the first of them is registered, from the ranges
//! of the options.
//!
//! A write reserves first, then stores, and commits its [`Reservation`] once it is stored; a dropped reservation
//! releases what it took. So concurrent writers never get the same address or port, and a failed write leaves nothing
//! allocated. The state is in memory: at start every stored Service is registered with [`Allocator::observe`].

mod families;
mod range;

use ipnet::IpNet;
use parking_lot::Mutex;
use rand::Rng;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use steersman_kinds::builtin::network::service::{kind, needs_address, needs_health_port, needs_node_ports};
use steersman_kinds::builtin::rules::field::Field;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, set_at, str_at};
use steersman_machinery::{Revision, Value};

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

/// Allocates addresses and ports.
#[derive(Debug)]
pub(crate) struct Allocator {
    ranges: Ranges,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    taken: HashMap<Item, Holder>,
    /// The ServiceCIDRs by name. No address is allocated from others.
    service_cidrs: BTreeMap<Box<str>, ServiceCidr>,
}

/// The allocator's view of a ServiceCIDR.
#[derive(Debug)]
struct ServiceCidr {
    ranges: Vec<IpNet>,
    is_ready: bool,
    /// Concurrent writers may register their objects out of order, so an older revision is ignored.
    revision: Revision,
}

/// The items that a write has reserved and not stored yet.
#[derive(Debug)]
#[must_use = "what was taken is given back when this is dropped"]
pub(crate) struct Reservation<'a> {
    allocator: &'a Allocator,
    /// Reserved for this write: released if it fails.
    fresh: Vec<Item>,
    /// Allocated before and no longer needed: released when the Service is stored.
    stale: Vec<Item>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Item {
    Address(IpAddr),
    NodePort(u16),
}

/// The user of an item. The allocator remembers it, so that the deletion of an IPAddress need not look through all Services.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Holder {
    /// An IPAddress that no Service uses.
    Object,
    /// A Service, stored or about to be.
    Service,
}

impl Item {
    fn address(self) -> Option<IpAddr> {
        match self {
            Item::Address(address) => Some(address),
            Item::NodePort(_) => None,
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
        let started_with =
            ServiceCidr { ranges: ranges.addresses.clone(), is_ready: true, revision: Revision::default() };
        let service_cidrs = BTreeMap::from([(DEFAULT_RANGES.into(), started_with)]);
        Allocator { ranges, state: Mutex::new(State { taken: HashMap::new(), service_cidrs }) }
    }

    /// Registers a stored ServiceCIDR. Addresses are allocated from it if it is ready and not being deleted.
    pub(crate) fn observe_range(&self, service_cidr: &Value, revision: Revision) {
        let name = str_at(service_cidr, &["metadata", "name"]).unwrap_or_default();
        let ranges = at(service_cidr, &["spec", "cidrs"]).and_then(Value::as_array).into_iter().flatten();
        let ranges = ranges.filter_map(|text| text.as_str()?.parse().ok()).collect();
        // The server makes its own ServiceCIDR ready, and needs an address from it at the same time.
        let is_ready = says_ready(service_cidr).unwrap_or(name == DEFAULT_RANGES);
        let is_ready = is_ready && at(service_cidr, &["metadata", "deletionTimestamp"]).is_none();
        let mut state = self.state.lock();
        if state.service_cidrs.get(name).is_none_or(|known| known.revision <= revision) {
            state.service_cidrs.insert(name.into(), ServiceCidr { ranges, is_ready, revision });
        }
    }

    /// Removes a deleted ServiceCIDR: no more addresses are allocated from its ranges.
    pub(crate) fn forget_range(&self, name: &str) {
        self.state.lock().service_cidrs.remove(name);
    }

    /// Registers the addresses and ports of a stored Service.
    pub(crate) fn observe(&self, service: &Value) {
        self.state.lock().taken.extend(items(service).into_iter().map(|item| (item, Holder::Service)));
    }

    /// Releases the addresses and ports of a deleted Service.
    pub(crate) fn release(&self, service: &Value) {
        self.give_back(&items(service));
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
            state.taken.remove(&item);
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// Registers the address of an IPAddress. If a Service has it, it stays the Service's.
    pub(crate) fn take_address(&self, address: IpAddr) {
        self.state.lock().taken.entry(Item::Address(address)).or_insert(Holder::Object);
    }

    /// Releases the address of a deleted IPAddress, unless a Service has it.
    pub(crate) fn release_address(&self, address: IpAddr) {
        let mut state = self.state.lock();
        if state.taken.get(&Item::Address(address)) == Some(&Holder::Object) {
            state.taken.remove(&Item::Address(address));
        }
    }

    /// The address ranges that the server is started with.
    pub(crate) fn ranges(&self) -> &[IpNet] {
        &self.ranges.addresses
    }

    /// The first address of the first range.
    pub(crate) fn first_address(&self) -> Option<IpAddr> {
        self.ranges.addresses.first().map(|first| range::address(first, *range::offsets(first).start()))
    }

    fn give_back(&self, items: &[Item]) {
        let mut state = self.state.lock();
        for item in items {
            state.taken.remove(item);
        }
    }
}

// === impl State ===

impl State {
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
    /// The addresses that the Service gained, and those that it lost.
    pub(crate) fn addresses(&self) -> (Vec<IpAddr>, Vec<IpAddr>) {
        let addresses = |items: &[Item]| items.iter().filter_map(|item| item.address()).collect();
        (addresses(&self.fresh), addresses(&self.stale))
    }

    /// Keeps what was reserved and releases what is no longer needed. Call it when the Service is stored.
    pub(crate) fn commit(mut self) {
        self.fresh.clear();
        self.allocator.give_back(&std::mem::take(&mut self.stale));
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.fresh.is_empty() {
            self.allocator.give_back(&self.fresh);
        }
    }
}

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
        families::settle(&configured, service, self.old, faults);
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
        let Entry::Vacant(free) = self.state.taken.entry(item) else { return false };
        free.insert(Holder::Service);
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
        let item = free.find(|item| !self.state.taken.contains_key(item))?;
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
        let shared = twin.filter(|_| !is_named);
        let number = match shared.and_then(|number| u16::try_from(number).ok()) {
            Some(number) => Some(number),
            None => self.node_port(&field, faults),
        };
        if let (Some(number), Some(port)) = (number, service.pointer_mut(&format!("/spec/ports/{index}"))) {
            set_at(port, &["nodePort"], Value::from(number));
        }
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
            faults.push(field.invalid("provided port is already allocated"));
            return None;
        }
        Some(port)
    }
}

pub(crate) fn addresses(service: &Value) -> Vec<IpAddr> {
    items(service).into_iter().filter_map(Item::address).collect()
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

/// For each port of a service, the first port before it with the same number and another protocol: the two share one
/// node port.
fn twins(service: &Value) -> Vec<Option<usize>> {
    let ports = at(service, &["spec", "ports"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let protocol = |index: usize| str_at(&ports[index], &["protocol"]);
    // By port number: the first index, and the first index with another protocol than that one's.
    let mut firsts: HashMap<Option<i64>, (usize, Option<usize>)> = HashMap::new();
    let mut twins = Vec::with_capacity(ports.len());
    for (index, port) in ports.iter().enumerate() {
        let number = port.get("port").and_then(Value::as_i64);
        let (first, other) = firsts.entry(number).or_insert((index, None));
        let is_like_first = protocol(*first) == protocol(index);
        twins.push(if is_like_first { *other } else { Some(*first) });
        if !is_like_first && other.is_none() {
            *other = Some(index);
        }
    }
    twins
}

#[cfg(test)]
mod tests;
