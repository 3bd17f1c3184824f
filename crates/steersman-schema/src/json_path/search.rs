//! Finds the first value at a path: depth first, and no further than needed.

use crate::json_path::{Step, place};
use steersman_machinery::Value;

/// Visits allowed for each path before the values are counted.
const FREE_VISITS: usize = 256;

/// The average number of visits per value that the searches may use together. One `..` visits each value twice, and a filter once
/// more; more visits come from nested searches, whose visits would multiply.
const VISITS_PER_VALUE: usize = 16;

/// The remaining visits of searches through one value, including those of their filters.
#[derive(Debug)]
pub struct Visits<'v> {
    left: usize,
    /// The value that is counted for the limit once the free visits are used up.
    uncounted: Option<&'v Value>,
}

impl<'v> Visits<'v> {
    /// The visits of all searches through a value.
    pub fn of(value: &'v Value) -> Visits<'v> {
        Visits { left: 0, uncounted: Some(value) }
    }

    pub(crate) fn begin_path(&mut self) {
        self.left = self.left.saturating_add(FREE_VISITS);
    }

    fn take(&mut self) -> Option<()> {
        if self.left == 0
            && let Some(value) = self.uncounted.take()
        {
            self.left = count(value).saturating_mul(VISITS_PER_VALUE);
        }
        self.left = self.left.checked_sub(1)?;
        Some(())
    }
}

/// The first value at the end of the steps.
pub(crate) fn first<'v>(steps: &[Step], here: &'v Value, visits: &mut Visits<'_>) -> Option<&'v Value> {
    visits.take()?;
    let Some((step, rest)) = steps.split_first() else { return Some(here) };
    through(step, rest, here, visits)
}

/// The first value at the end of this step and the rest.
fn through<'v>(step: &Step, rest: &[Step], here: &'v Value, visits: &mut Visits<'_>) -> Option<&'v Value> {
    match step {
        Step::Descendants => descend(rest, here, visits),
        Step::Field(name) => first(rest, here.as_object()?.get(name.as_ref())?, visits),
        Step::Filter(filter) => here
            .as_array()?
            .iter()
            .find_map(|item| if filter.matches(item, visits) { first(rest, item, visits) } else { None }),
        Step::Index(index) => {
            let items = here.as_array()?;
            first(rest, items.get(place(*index, items.len())?)?, visits)
        }
        Step::Slice { start, end, step } => {
            let items = here.as_array()?;
            let bound = |bound: i64| if bound < 0 { place(bound, items.len()) } else { usize::try_from(bound).ok() };
            let start = bound(*start).unwrap_or_default();
            let end = end.map_or(Some(items.len()), bound).unwrap_or_default().min(items.len());
            items.get(start..end)?.iter().step_by(*step).find_map(|item| first(rest, item, visits))
        }
        Step::Union(steps) => steps.iter().find_map(|step| {
            visits.take()?;
            through(step, rest, here, visits)
        }),
        Step::Wildcard => children(here).find_map(|child| first(rest, child, visits)),
    }
}

fn descend<'v>(rest: &[Step], here: &'v Value, visits: &mut Visits<'_>) -> Option<&'v Value> {
    if !here.is_array() && !here.is_object() {
        return None;
    }
    first(rest, here, visits).or_else(|| {
        children(here).find_map(|child| {
            visits.take()?;
            descend(rest, child, visits)
        })
    })
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::empty()),
    }
}

fn count(value: &Value) -> usize {
    children(value).map(count).sum::<usize>() + 1
}
