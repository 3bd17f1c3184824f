//! The budget of an evaluation, and how much of it is spent.
//!
//! Costs are upstream's and are reported. Work and depth are our own bounds: some operations cost little by upstream's
//! figures and still take much time or memory with large values.

use crate::error::EvalError;

/// The number of elements and bytes that an evaluation may copy, compare or build besides its cost: about a tenth of a
/// second, and at most a few hundred megabytes for a moment.
const WORK_MAX: u64 = 16 << 20;
/// The maximum work of all evaluations for one object, or of one policy.
const OBJECT_WORK_MAX: u64 = 4 * WORK_MAX;
/// The work of visiting one value, where copying a byte is one.
const VISIT: usize = 16;

/// The maximum nesting of an evaluation, counting variables that are evaluated on the way.
const DEPTH_MAX: u16 = 600;

/// The budget of an evaluation, and how much of it is spent.
#[derive(Debug)]
pub struct Meter {
    spent: u64,
    limit: u64,
    work: u64,
    depth: u16,
}

impl Meter {
    /// A meter with a limit of costs.
    pub fn new(limit: u64) -> Meter {
        Meter { spent: 0, limit, work: WORK_MAX, depth: 0 }
    }

    /// The work available to all evaluations for one object together.
    pub fn object_work() -> u64 {
        OBJECT_WORK_MAX
    }

    /// A meter with a limit of costs, for an evaluation that shares its work with others: `left` is the work that the
    /// others have left, and [`Meter::work_left`] gives the work that this one leaves.
    pub fn sharing(limit: u64, left: u64) -> Meter {
        Meter { spent: 0, limit, work: left.min(WORK_MAX), depth: 0 }
    }

    /// The work left after an evaluation that began with `before`.
    pub fn work_left(&self, before: u64) -> u64 {
        before - (before.min(WORK_MAX) - self.work)
    }

    /// The cost so far.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.spent = self.spent.saturating_add(cost);
        if self.spent > self.limit { Err(EvalError::budget()) } else { Ok(()) }
    }

    /// Refunds a cost that was just charged.
    pub(crate) fn refund(&mut self, cost: u64) {
        self.spent = self.spent.saturating_sub(cost);
    }

    /// Charges the work for this number of elements or bytes, before they are read.
    pub(crate) fn work(&mut self, amount: usize) -> Result<(), EvalError> {
        match self.work.checked_sub(amount as u64) {
            Some(left) => {
                self.work = left;
                Ok(())
            }
            None => {
                self.work = 0;
                Err(EvalError::budget())
            }
        }
    }

    /// Charges the work for a value, before it is read.
    pub(crate) fn visit(&mut self) -> Result<(), EvalError> {
        self.visit_all(1)
    }

    /// Charges the work for several values, before they are read.
    pub(crate) fn visit_all(&mut self, n_values: usize) -> Result<(), EvalError> {
        self.work(n_values.saturating_mul(VISIT))
    }

    pub(crate) fn enter(&mut self) -> Result<(), EvalError> {
        if self.depth >= DEPTH_MAX {
            return Err(EvalError::new("the evaluation is nested too deeply"));
        }
        self.depth += 1;
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Enters an expression that is nested this deep. Returns the depth to restore afterwards with
    /// [`Meter::set_depth`].
    pub(crate) fn enter_by(&mut self, levels: u16) -> Result<u16, EvalError> {
        let before = self.depth;
        let depth = before.saturating_add(levels);
        if depth > DEPTH_MAX {
            return Err(EvalError::new("the evaluation is nested too deeply"));
        }
        self.depth = depth;
        Ok(before)
    }

    pub(crate) fn set_depth(&mut self, depth: u16) {
        self.depth = depth;
    }
}
