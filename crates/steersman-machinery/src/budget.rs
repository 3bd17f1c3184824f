//! The budget of a request: how much memory its objects may take, and how much may be computed for it.
//!
//! The code that begins a request makes a [`Budget`] and passes it to everything that decodes, changes or checks
//! objects for the request. Each cost is charged before it is incurred, so that a small body cannot become a large tree
//! or a long computation. Between two await points only a charge can end a computation: every charge also checks the
//! [`Interrupt`], which is set when the request times out or its client disconnects.
//!
//! Nothing here reads a clock. A refused charge stays refused, so that code that cannot return an error may stop and
//! let its caller ask [`Budget::check`].

use crate::value::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts how much a request builds and computes, and refuses more than its limits.
///
/// Two amounts measure the tree that is being built, its bytes and its items, and are reset by each
/// [`Budget::begin_tree`], since a request builds few trees at a time and drops them again. The third, the steps, is
/// for the whole request.
///
/// The counters are updated without a lock or an atomic read-modify-write instruction, because a charge must cost no
/// more than an addition. Tasks that charge one budget at the same time may therefore lose each other's charges; a
/// request computes in one place at a time.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    bytes: AtomicU64,
    items: AtomicU64,
    steps: AtomicU64,
    /// For a part, the steps of the whole when the part began; they are among the part's own.
    inherited_steps: u64,
    interrupt: Interrupt,
}

/// The most that a request may build and compute.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The maximum memory of one tree, as [`cost`] estimates it.
    pub bytes_max: u64,
    /// The maximum number of values and fields of one tree.
    pub items_max: u64,
    /// The maximum number of steps of the whole request. A step is a value that is visited, a comparison, or
    /// [`STEP_BYTES`] that are read or moved: a few nanoseconds.
    pub steps_max: u64,
}

/// The number of bytes that are read or moved in one step.
pub const STEP_BYTES: usize = 64;

/// Ends the computations of a request. All clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

/// The amount that a limit bounds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Amount {
    /// The memory of one tree.
    Bytes,
    /// The values and fields of one tree.
    Items,
    /// The steps of computation.
    Steps,
}

/// Why a computation ends early.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// A limit is reached. A retry cannot help.
    #[error("the request needs more than {limit} {amount}")]
    Exceeded {
        /// The amount that is exceeded.
        amount: Amount,
        /// The limit.
        limit: u64,
    },
    /// The request was canceled: it timed out, or its client disconnected.
    #[error("the request was given up before it was done")]
    Interrupted,
}

/// The approximate memory of values on a 64-bit machine, including the overhead of the allocator: within a tenth of
/// measurements of lists, maps, Pods and objects of one to fourteen fields.
pub mod cost {
    use super::{Map, Value};

    /// A value in its place: in a list, or as the value of a field.
    pub const VALUE: usize = size_of::<Value>();
    /// A node of a map, which has room for eleven fields even if it has one.
    const NODE: usize = 640;
    /// The number of fields for which a node has room.
    const NODE_FIELDS: usize = 11;
    /// The cost of the twelfth field: the node is split in two, with a third above them.
    const SPLIT: usize = 1376;
    /// The cost of each further field: its share of nodes that are about half full.
    const FIELD: usize = 105;
    /// The overhead of the allocator for one allocation.
    const ALLOCATION: usize = 16;

    /// The characters of a string.
    pub fn text(length: usize) -> usize {
        if length == 0 { 0 } else { length + ALLOCATION }
    }

    /// A field that is added to an object: its name, and the nodes that it needs.
    pub fn field(name: &str, n_fields_before: usize) -> usize {
        let nodes = match n_fields_before {
            0 => NODE,
            1..NODE_FIELDS => 0,
            NODE_FIELDS => SPLIT,
            _ => FIELD,
        };
        nodes + text(name.len())
    }

    /// The items and bytes of a value, without its own place.
    pub fn of(value: &Value) -> (usize, usize) {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => (1, 0),
            Value::String(string) => (1, text(string.len())),
            Value::Array(list) => {
                let inside = list.iter().map(of).fold((1, 0), add);
                (inside.0, inside.1 + list.len() * VALUE)
            }
            Value::Object(fields) => of_map(fields),
        }
    }

    /// The items and bytes of an object.
    pub fn of_map(fields: &Map) -> (usize, usize) {
        let each = fields.iter().enumerate().map(|(place, (name, value))| {
            let (items, bytes) = of(value);
            (items, bytes + field(name, place))
        });
        each.fold((1, 0), add)
    }

    fn add(a: (usize, usize), b: (usize, usize)) -> (usize, usize) {
        (a.0 + b.0, a.1 + b.1)
    }
}

// === impl Budget ===

impl Budget {
    /// A budget to which nothing has been charged.
    pub fn new(limits: Limits, interrupt: Interrupt) -> Budget {
        let (bytes, items, steps) = Default::default();
        Budget { limits, bytes, items, steps, inherited_steps: 0, interrupt }
    }

    /// A budget without limits, for work that no client controls. It can be interrupted.
    pub fn unlimited() -> Budget {
        Budget::new(Limits::NONE, Interrupt::default())
    }

    /// A new budget with the same limits. Both share the interrupt.
    #[must_use]
    pub fn renewed(&self) -> Budget {
        Budget::new(self.limits, self.interrupt.clone())
    }

    /// A part of what is left of this budget, for a computation that is begun anew within all of it if the part is too small. What was charged
    /// so far counts as charged to the part.
    #[must_use]
    pub fn part(&self, limits: Limits) -> Budget {
        let within = |used: u64, part: u64, whole: u64| used.saturating_add(part).min(whole);
        let limits = Limits {
            bytes_max: within(self.bytes(), limits.bytes_max, self.limits.bytes_max),
            items_max: within(self.items(), limits.items_max, self.limits.items_max),
            steps_max: within(self.steps(), limits.steps_max, self.limits.steps_max),
        };
        Budget {
            bytes: AtomicU64::new(self.bytes()),
            items: AtomicU64::new(self.items()),
            steps: AtomicU64::new(self.steps()),
            inherited_steps: self.steps(),
            ..Budget::new(limits, self.interrupt.clone())
        }
    }

    /// Counts what was charged to a part of this budget as charged to this one, besides what this one was charged in the meantime. No counter
    /// goes down: where the part has begun another tree, the larger of the two trees counts.
    pub fn take_over(&self, part: Budget) {
        self.bytes.fetch_max(part.bytes(), Ordering::Relaxed);
        self.items.fetch_max(part.items(), Ordering::Relaxed);
        let added = part.steps().saturating_sub(part.inherited_steps);
        self.steps.store(self.steps().saturating_add(added), Ordering::Relaxed);
    }

    /// Whether a charge was refused because a limit is reached.
    pub fn is_exceeded(&self) -> bool {
        let Limits { bytes_max, items_max, steps_max } = self.limits;
        bytes_max < self.bytes() || items_max < self.items() || steps_max < self.steps()
    }

    /// The interrupt of the request.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// The steps so far.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// The bytes of the tree so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Begins another tree: its bytes and items are counted from zero. A limit that was exceeded remains so.
    pub fn begin_tree(&self) {
        let has_room = self.bytes() <= self.limits.bytes_max && self.items() <= self.limits.items_max;
        if has_room {
            self.bytes.store(0, Ordering::Relaxed);
            self.items.store(0, Ordering::Relaxed);
        }
    }

    /// Charges a value that is put into the tree, by the memory that it takes there.
    ///
    /// # Errors
    /// When a limit is exceeded, or the request was canceled.
    pub fn build(&self, bytes: usize) -> Result<(), Error> {
        self.build_all(1, bytes)
    }

    /// Charges many values at once.
    ///
    /// # Errors
    /// When a limit is exceeded, or the request was canceled.
    pub fn build_all(&self, items: usize, bytes: usize) -> Result<(), Error> {
        let items = add(&self.items, items);
        let bytes = add(&self.bytes, bytes);
        if self.limits.bytes_max < bytes {
            return Err(Error::Exceeded { amount: Amount::Bytes, limit: self.limits.bytes_max });
        }
        if self.limits.items_max < items {
            return Err(Error::Exceeded { amount: Amount::Items, limit: self.limits.items_max });
        }
        self.heed()
    }

    /// Charges a copy of a value that is put into the tree.
    ///
    /// # Errors
    /// When a limit is exceeded, or the request was canceled.
    pub fn copy(&self, value: &Value) -> Result<(), Error> {
        let (items, bytes) = cost::of(value);
        self.build_all(items, bytes)
    }

    /// Charges steps.
    ///
    /// # Errors
    /// When the limit is exceeded, or the request was canceled.
    pub fn work(&self, steps: usize) -> Result<(), Error> {
        if self.limits.steps_max < add(&self.steps, steps) {
            return Err(Error::Exceeded { amount: Amount::Steps, limit: self.limits.steps_max });
        }
        self.heed()
    }

    /// Charges bytes that are read or moved.
    ///
    /// # Errors
    /// When the limit is exceeded, or the request was canceled.
    pub fn work_on_bytes(&self, bytes: usize) -> Result<(), Error> {
        self.work(bytes / STEP_BYTES + 1)
    }

    /// Checks that no charge was refused and the request was not canceled.
    ///
    /// # Errors
    /// When a charge was refused, or the request was canceled.
    pub fn check(&self) -> Result<(), Error> {
        self.work(0)?;
        self.build_all(0, 0)
    }

    fn items(&self) -> u64 {
        self.items.load(Ordering::Relaxed)
    }

    fn heed(&self) -> Result<(), Error> {
        if self.interrupt.is_set() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

impl Default for Budget {
    /// A budget with the limits of a request.
    fn default() -> Budget {
        Budget::new(Limits::default(), Interrupt::default())
    }
}

fn add(counter: &AtomicU64, amount: usize) -> u64 {
    let sum = counter.load(Ordering::Relaxed).saturating_add(amount as u64);
    counter.store(sum, Ordering::Relaxed);
    sum
}

// === impl Limits ===

impl Limits {
    const NONE: Limits = Limits { bytes_max: u64::MAX, items_max: u64::MAX, steps_max: u64::MAX };
}

impl Default for Limits {
    /// The limits of a request. Kubernetes objects take six to fourteen times the memory of their JSON, so 2.6 MB of
    /// Pods fit, twice what etcd accepts behind a kube-apiserver. The steps correspond to one or two seconds of
    /// processor time.
    fn default() -> Limits {
        Limits { bytes_max: 36 << 20, items_max: 1_000_000, steps_max: 100_000_000 }
    }
}

// === impl Interrupt ===

impl Interrupt {
    /// Cancels the request: its next charge is refused.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the request was canceled.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Amount ===

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Amount::Bytes => "bytes of memory for one object",
            Amount::Items => "values in one object",
            Amount::Steps => "steps of computation",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn small() -> Budget {
        Budget::new(Limits { bytes_max: 100, items_max: 10, steps_max: 50 }, Interrupt::default())
    }

    #[test]
    fn each_limit_is_refused_one_above_it() {
        let exceeded = |amount, limit| Err(Error::Exceeded { amount, limit });
        assert_eq!((small().build(100), small().build(101)), (Ok(()), exceeded(Amount::Bytes, 100)));
        assert_eq!((small().build_all(10, 0), small().build_all(11, 0)), (Ok(()), exceeded(Amount::Items, 10)));
        assert_eq!((small().work(50), small().work(51)), (Ok(()), exceeded(Amount::Steps, 50)));
    }

    #[test]
    fn refused_charge_stays_refused_when_a_tree_begins() {
        let budget = small();
        budget.build(90).unwrap();
        budget.begin_tree();
        budget.build(90).unwrap();
        assert!(budget.build(90).is_err());
        budget.begin_tree();
        assert_eq!(budget.check(), Err(Error::Exceeded { amount: Amount::Bytes, limit: 100 }));
    }

    #[test]
    fn a_part_ends_early_and_what_it_used_counts_for_the_whole() {
        let whole = Budget::new(Limits { bytes_max: 100, items_max: 10, steps_max: 50 }, Interrupt::default());
        whole.work(20).unwrap();
        let limits = Limits { bytes_max: 100, items_max: 3, steps_max: 10 };
        let part = whole.part(limits);
        part.work(10).unwrap();
        part.build_all(3, 1).unwrap();
        assert!(!part.is_exceeded());
        part.work(1).unwrap_err();
        assert!(part.is_exceeded() && !whole.is_exceeded());
        let part = whole.part(limits);
        part.work(10).unwrap();
        whole.take_over(part);
        assert_eq!(whole.steps(), 30);
        assert!(whole.part(Limits { steps_max: 100, ..limits }).work(21).is_err(), "no part is larger than the whole");
    }

    #[test]
    fn what_the_whole_was_charged_while_a_part_was_in_use_stays_charged() {
        let whole = Budget::unlimited();
        let limits = Limits { bytes_max: 100, items_max: 10, steps_max: 50 };
        whole.work(5).unwrap();
        let part = whole.part(limits);
        whole.work(20).unwrap();
        whole.build_all(9, 90).unwrap();
        part.work(2).unwrap();
        part.begin_tree();
        part.build_all(1, 10).unwrap();
        whole.take_over(part);
        assert_eq!((whole.steps(), whole.items(), whole.bytes()), (27, 9, 90));
    }

    #[test]
    fn an_interrupt_ends_a_part_without_exceeding_it() {
        let whole = small();
        let part = whole.part(Limits { bytes_max: 100, items_max: 10, steps_max: 50 });
        part.work(1).unwrap();
        whole.interrupt().set();
        assert_eq!((part.work(1), part.build(1)), (Err(Error::Interrupted), Err(Error::Interrupted)));
        assert!(!part.is_exceeded());
    }

    #[test]
    fn steps_go_on_counting_over_trees() {
        let budget = small();
        budget.work(30).unwrap();
        budget.begin_tree();
        assert_eq!(budget.steps(), 30);
        assert!(budget.work(30).is_err());
    }

    #[test]
    fn interrupt_refuses_every_charge_also_of_renewed_and_unlimited_budgets() {
        let budget = Budget::unlimited();
        budget.work(usize::MAX).unwrap();
        budget.work(usize::MAX).unwrap();
        let renewed = budget.renewed();
        budget.interrupt().clone().set();
        assert_eq!(budget.check(), Err(Error::Interrupted));
        assert_eq!(renewed.work(0), Err(Error::Interrupted));
        assert_eq!(renewed.build(0), Err(Error::Interrupted));
    }

    #[test]
    fn copy_costs_what_its_parts_cost() {
        let value = json!({"a": "text", "b": [1, {"c": null}]});
        let (items, bytes) = cost::of(&value);
        assert_eq!(items, 6);
        let parts = cost::field("a", 0) + cost::text(4) + cost::field("b", 1) + 2 * cost::VALUE + cost::field("c", 0);
        assert_eq!(bytes, parts);
        assert_eq!(cost::of(&json!([[], {}, ""])), (4, 3 * cost::VALUE));
    }
}
