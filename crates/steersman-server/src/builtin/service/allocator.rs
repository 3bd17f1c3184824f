//! Allocates cluster IPs and node ports.
//!
//! A write reserves first, then stores, and commits its [`Reservation`] once it is stored; a dropped reservation releases what it
//! took. So two concurrent writers never get the same, and a failed write leaves nothing allocated. The state is in memory: at
//! start every stored Service is registered with [`Allocator::observe`].

use crate::builtin::place::Place;
use crate::builtin::service::{needs_address, needs_health_port, needs_node_ports};
use ipnet::Ipv4Net;
use parking_lot::Mutex;
use rand::Rng;
use serde_json::json;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::value::{at, set_at, str_at};

/// Gives out addresses of one range and ports of another.
#[derive(Debug)]
pub struct Allocator {
    range: Ipv4Net,
    node_ports: RangeInclusive<u16>,
    taken: Mutex<HashSet<Item>>,
}

/// What a write has reserved, until it is stored.
#[derive(Debug)]
#[must_use = "what was taken is given back when this is dropped"]
pub struct Reservation<'a> {
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

impl Item {
    fn address(self) -> Option<IpAddr> {
        match self {
            Item::Address(address) => Some(address),
            Item::NodePort(_) => None,
        }
    }
}

/// How many draws at random before the range is searched from its start.
const DRAWS_MAX: usize = 64;

// === impl Allocator ===

impl Default for Allocator {
    /// `10.96.0.0/16` and, as upstream has it, 30000 to 32767.
    fn default() -> Allocator {
        Allocator::new(Ipv4Net::new_assert(Ipv4Addr::new(10, 96, 0, 0), 16), 30_000..=32_767)
    }
}

impl Allocator {
    /// An allocator with nothing allocated.
    pub fn new(range: Ipv4Net, node_ports: RangeInclusive<u16>) -> Allocator {
        Allocator { range: range.trunc(), node_ports, taken: Mutex::default() }
    }

    /// Registers the addresses and ports of a stored Service.
    pub fn observe(&self, service: &Value) {
        self.taken.lock().extend(items(service));
    }

    /// Releases the addresses and ports of a deleted Service.
    pub fn release(&self, service: &Value) {
        self.give_back(&items(service));
    }

    /// Fills in the addresses and ports that a prepared Service still needs and takes those that it names.
    /// `old` is the Service as it is stored, if it is.
    ///
    /// # Errors
    /// The faults, for a 422, when something it names is taken or out of range, or nothing is left.
    pub fn reserve(&self, new: &mut Value, old: Option<&Value>) -> Result<Reservation<'_>, Vec<Error>> {
        let held = old.map(items).unwrap_or_default();
        let mut reservation = Reservation { allocator: self, fresh: Vec::new(), stale: Vec::new() };
        let mut faults = Vec::new();
        let mut taken = self.taken.lock();
        Request { allocator: self, taken: &mut taken, held: &held, fresh: &mut reservation.fresh }
            .fill(new, &mut faults);
        // A failed reservation gives back on drop, for which it takes the lock itself.
        drop(taken);
        if !faults.is_empty() {
            return Err(faults);
        }
        let kept = items(new);
        reservation.stale = held.into_iter().filter(|item| !kept.contains(item)).collect();
        Ok(reservation)
    }

    /// Fills in what [`Allocator::reserve`] would, for a dry run: nothing is taken, so nobody else is ever refused for it.
    ///
    /// # Errors
    /// The faults that a reservation would have.
    pub fn preview(&self, new: &mut Value, old: Option<&Value>) -> Result<(), Vec<Error>> {
        let held = old.map(items).unwrap_or_default();
        let (mut fresh, mut faults) = (Vec::new(), Vec::new());
        let mut taken = self.taken.lock();
        Request { allocator: self, taken: &mut taken, held: &held, fresh: &mut fresh }.fill(new, &mut faults);
        for item in fresh {
            taken.remove(&item);
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// Registers an address that something other than a Service has.
    pub fn take_address(&self, address: IpAddr) {
        self.taken.lock().insert(Item::Address(address));
    }

    /// Releases an address that nothing has any more.
    pub fn release_address(&self, address: IpAddr) {
        self.give_back(&[Item::Address(address)]);
    }

    /// The range that addresses are given out of.
    pub fn range(&self) -> Ipv4Net {
        self.range
    }

    fn give_back(&self, items: &[Item]) {
        let mut taken = self.taken.lock();
        for item in items {
            taken.remove(item);
        }
    }

    fn address_in_range(&self, address: Ipv4Addr) -> bool {
        self.range.contains(&address) && address != self.range.network() && address != self.range.broadcast()
    }
}

// === impl Reservation ===

impl Reservation<'_> {
    /// The addresses that the Service has got, and those that it has no longer.
    pub fn addresses(&self) -> (Vec<IpAddr>, Vec<IpAddr>) {
        let addresses = |items: &[Item]| items.iter().filter_map(|item| item.address()).collect();
        (addresses(&self.fresh), addresses(&self.stale))
    }

    /// To be called when the Service is stored: keeps what was reserved, and releases what it no longer needs.
    pub fn commit(mut self) {
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

/// What is being given to one Service, under the lock.
struct Request<'a> {
    allocator: &'a Allocator,
    taken: &'a mut HashSet<Item>,
    held: &'a [Item],
    fresh: &'a mut Vec<Item>,
}

impl Request<'_> {
    /// Gives a Service everything that it needs or names.
    fn fill(mut self, service: &mut Value, faults: &mut Vec<Error>) {
        self.families(service, faults);
        self.address(service, faults);
        self.ports(service, faults);
    }

    /// Takes an item; false if somebody else has it.
    fn take(&mut self, item: Item) -> bool {
        if self.held.contains(&item) || self.fresh.contains(&item) {
            return true;
        }
        let is_free = self.taken.insert(item);
        if is_free {
            self.fresh.push(item);
        }
        is_free
    }

    /// Takes a free item. At random first, so that a released item is not reused at once, and above the part of the range
    /// that is reserved for items requested by value.
    fn draw(&mut self, first: u32, last: u32, reserved: u32, item: impl Fn(u32) -> Item) -> Option<Item> {
        let lowest = first.saturating_add(reserved).min(last);
        let mut random = rand::rng();
        let drawn = (0..DRAWS_MAX).map(|_| random.random_range(lowest..=last)).collect::<Vec<u32>>();
        let mut free = drawn.into_iter().chain(lowest..=last).chain(first..lowest).map(item);
        let item = free.find(|item| !self.taken.contains(item))?;
        self.take(item).then_some(item)
    }

    /// The one family there is, and what the Service makes of it.
    fn families(&mut self, service: &mut Value, faults: &mut Vec<Error>) {
        let spec = service["spec"].clone();
        let place = Place::root(service).field("spec");
        if str_at(service, &["spec", "type"]) == Some("ExternalName") {
            return;
        }
        let is_headless_and_bare = str_at(&spec, &["clusterIP"]) == Some("None") && at(&spec, &["selector"]).is_none();
        let (policy, families) = (place.field("ipFamilyPolicy"), place.field("ipFamilies"));
        if is_headless_and_bare {
            // Its endpoints are somebody else's, in whatever family.
            let wanted = if policy.is_absent() { "RequireDualStack" } else { policy.text() }.to_owned();
            let all = if wanted == "SingleStack" { json!(["IPv4"]) } else { json!(["IPv4", "IPv6"]) };
            let all = if families.is_empty() { all } else { families.value.clone() };
            set_at(service, &["spec", "ipFamilies"], all);
            set_at(service, &["spec", "ipFamilyPolicy"], Value::from(wanted));
            return;
        }
        if policy.text() == "RequireDualStack" {
            faults.push(policy.invalid("this cluster is not configured for dual-stack services"));
        }
        for family in families.items().filter(|family| family.text() != "IPv4") {
            faults.push(family.invalid("not configured on this cluster"));
        }
        let policy = if policy.is_absent() { Value::from("SingleStack") } else { policy.value.clone() };
        set_at(service, &["spec", "ipFamilies"], json!(["IPv4"]));
        set_at(service, &["spec", "ipFamilyPolicy"], policy);
    }

    fn address(&mut self, service: &mut Value, faults: &mut Vec<Error>) {
        if !needs_address(service) {
            return;
        }
        let place = Place::root(service).at(&["spec", "clusterIPs"]);
        let range = self.allocator.range;
        let text = str_at(service, &["spec", "clusterIP"]).unwrap_or_default().to_owned();
        if text.is_empty() {
            let (first, last) = (u32::from(range.network()) + 1, u32::from(range.broadcast()).saturating_sub(1));
            let drawn = self.draw(first, last.max(first), static_addresses(range), |bits| {
                Item::Address(Ipv4Addr::from(bits).into())
            });
            let Some(Item::Address(address)) = drawn else {
                faults.push(Error::internal(&place.path, "failed to allocate a serviceIP: range is full"));
                return;
            };
            set_at(service, &["spec", "clusterIP"], Value::from(address.to_string()));
            set_at(service, &["spec", "clusterIPs"], json!([address.to_string()]));
            return;
        }
        // What is no address at all the rules have found.
        let Ok(address) = text.parse::<IpAddr>() else { return };
        let is_held = self.held.contains(&Item::Address(address));
        let is_in_range = matches!(address, IpAddr::V4(address) if self.allocator.address_in_range(address));
        if !is_held && !is_in_range {
            let why = format!(
                "failed to allocate IP {address}: the provided IP ({address}) is not in the valid range. The range of valid IPs is {range}"
            );
            faults.push(place.invalid(why));
        } else if !self.take(Item::Address(address)) {
            faults.push(place.invalid(format!("failed to allocate IP {address}: provided IP is already allocated")));
        }
    }

    fn ports(&mut self, service: &mut Value, faults: &mut Vec<Error>) {
        if needs_node_ports(service) {
            let count = at(service, &["spec", "ports"]).and_then(Value::as_array).map_or(0, Vec::len);
            // Those that are named first, lest one be drawn that a later port names.
            for is_named_round in [true, false] {
                for index in 0..count {
                    let path = format!("/spec/ports/{index}/nodePort");
                    let is_named = service.pointer(&path).and_then(Value::as_u64).is_some_and(|port| port != 0);
                    if is_named == is_named_round {
                        self.port(service, index, faults);
                    }
                }
            }
        }
        let path = ["spec", "healthCheckNodePort"];
        if needs_health_port(service) {
            let place = Place::root(service).at(&path);
            match self.node_port(&place, faults) {
                Some(number) => set_at(service, &path, Value::from(number)),
                None => false,
            };
        }
    }

    fn port(&mut self, service: &mut Value, index: usize, faults: &mut Vec<Error>) {
        let ports = Place::root(service).at(&["spec", "ports"]);
        let Some(port) = ports.items().nth(index) else { return };
        // The same port for two protocols is one port of the nodes.
        let twin = ports.items().take(index).find(|other| {
            other.field("port").value == port.field("port").value
                && other.field("protocol").value != port.field("protocol").value
        });
        let place = port.field("nodePort");
        let is_named = place.number().is_some_and(|number| number != 0);
        let shared = twin.and_then(|twin| twin.field("nodePort").number()).filter(|_| !is_named);
        let number = match shared.and_then(|number| u16::try_from(number).ok()) {
            Some(number) => Some(number),
            None => self.node_port(&place, faults),
        };
        if let (Some(number), Some(port)) = (number, service.pointer_mut(&format!("/spec/ports/{index}"))) {
            set_at(port, &["nodePort"], Value::from(number));
        }
    }

    /// The port that is named, or one that is free.
    fn node_port(&mut self, place: &Place<'_>, faults: &mut Vec<Error>) -> Option<u16> {
        let range = self.allocator.node_ports.clone();
        let Some(number) = place.number().filter(|number| *number != 0) else {
            let reserved = u32::from(range.end() - range.start()) / 32;
            let item = |bits: u32| Item::NodePort(u16::try_from(bits).unwrap_or(u16::MAX));
            let drawn = self.draw((*range.start()).into(), (*range.end()).into(), reserved, item);
            let Some(Item::NodePort(port)) = drawn else {
                faults.push(Error::internal(&place.path, "failed to allocate a nodePort: range is full"));
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
            faults.push(place.invalid(why));
            return None;
        };
        if !self.take(Item::NodePort(port)) {
            faults.push(place.invalid("provided port is already allocated"));
            return None;
        }
        Some(port)
    }
}

/// The size of the part at the start of a range that is reserved for items requested by value.
fn static_addresses(range: Ipv4Net) -> u32 {
    let size = 1_u64 << (32 - u32::from(range.prefix_len()));
    u32::try_from((size / 16).clamp(16, 256)).unwrap_or(256).min(u32::try_from(size / 2).unwrap_or(u32::MAX))
}

/// The addresses that a Service has.
pub fn addresses(service: &Value) -> Vec<IpAddr> {
    items(service).into_iter().filter_map(Item::address).collect()
}

/// What a Service has.
fn items(service: &Value) -> Vec<Item> {
    let list = |path: &[&str]| at(service, path).and_then(Value::as_array).into_iter().flatten();
    let addresses = list(&["spec", "clusterIPs"]).filter_map(|text| text.as_str()?.parse().ok()).map(Item::Address);
    let ports = list(&["spec", "ports"]).filter_map(|port| port.get("nodePort"));
    let ports = ports.chain(at(service, &["spec", "healthCheckNodePort"]));
    let ports = ports.filter_map(Value::as_u64).filter(|port| *port != 0);
    let ports = ports.filter_map(|port| u16::try_from(port).ok()).map(Item::NodePort);
    addresses.chain(ports).collect()
}

#[cfg(test)]
mod tests;
