//! What an evaluation has spent, and how much it may.
//!
//! Costs are upstream's and are reported. Work and depth are our own bounds: some operations cost little by upstream's
//! figures and yet take long, or much memory, when they meet large values.

use crate::error::EvalError;

/// How many elements and bytes an evaluation may copy, compare or make beside what its cost says: a tenth of a second, and at
/// most a few hundred megabytes for a moment.
const WORK_MAX: u64 = 16 << 20;
/// The same for all evaluations about one object, or of one policy.
const OBJECT_WORK_MAX: u64 = 4 * WORK_MAX;
/// What it is to look at one value, beside copying a byte.
const VISIT: usize = 16;

/// How deep an evaluation may be nested, counting variables that are evaluated on the way.
const DEPTH_MAX: u16 = 600;

/// The budget of an evaluation, and what is spent of it.
#[derive(Debug)]
pub struct Meter {
    spent: u64,
    limit: u64,
    work: u64,
    depth: u16,
}

impl Meter {
    /// With a limit of costs.
    pub fn new(limit: u64) -> Meter {
        Meter { spent: 0, limit, work: WORK_MAX, depth: 0 }
    }

    /// The work that is left for all evaluations about one object, before the first of them.
    pub fn object_work() -> u64 {
        OBJECT_WORK_MAX
    }

    /// With a limit of costs, for an evaluation that shares its work with others: `left` is what they have left of it, and
    /// [`Meter::work_left`] what this one leaves.
    pub fn sharing(limit: u64, left: u64) -> Meter {
        Meter { spent: 0, limit, work: left.min(WORK_MAX), depth: 0 }
    }

    /// What is left of the work after an evaluation that had so much.
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

    /// Takes back what was charged a moment ago.
    pub(crate) fn refund(&mut self, cost: u64) {
        self.spent = self.spent.saturating_sub(cost);
    }

    /// Before so many elements or bytes are gone through.
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

    /// Before a value is looked at.
    pub(crate) fn visit(&mut self) -> Result<(), EvalError> {
        self.work(VISIT)
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

    /// Before an expression that is nested so deeply. The depth to give back to [`Meter::set_depth`] behind it.
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
