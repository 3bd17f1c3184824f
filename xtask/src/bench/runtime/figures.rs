//! The measured figures, which direction is better for each, and the targets of ours.

use serde::Serialize;

use crate::bench::runtime::Column;

/// A row of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) title: &'static str,
    /// The name of the figure in the programs' output.
    figure: &'static str,
    unit: &'static str,
    better: Better,
    target: Target,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Better {
    Less,
    More,
    /// The figure is shown for information.
    Neither,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    At(f64),
    /// A multiple of another figure of the same program.
    Of(f64, &'static str),
    None,
}

/// The values of several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Samples {
    min: f64,
    pub(crate) median: f64,
    max: f64,
}

/// A row with the verdict on each of our columns.
#[derive(Debug, Serialize)]
pub(crate) struct Judged {
    #[serde(skip)]
    pub(crate) title: &'static str,
    pub(crate) figure: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) verdicts: Vec<Verdict>,
}

/// How a figure of ours compares with the peers and the target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    program: &'static str,
    /// The ratio to the best peer, greater than 1 if ours is better.
    pub(crate) ratio: Option<f64>,
    pub(crate) target: Option<f64>,
    /// Whether the target is met.
    pub(crate) met: Option<bool>,
}

/// The target for the peak memory of a full relist, as a multiple of the resident memory.
const OF_RESIDENT: f64 = 1.15;

/// An index lookup may take twice as long as a hash map lookup.
const OF_HASH_MAP: f64 = 0.5;

pub(crate) const QUEUE: &[Row] = &[
    Row::more("add, get, done on one thread", "queue_cycles_per_s", Target::At(2_000_000.0)),
    // The target is no slowdown: eight producers together are no slower than one thread that does everything.
    Row::more("adds by 8 producers, 1 consumer", "queue_adds_per_s", Target::Of(1.0, "queue_cycles_per_s")),
];

/// The rows about an informer, with the targets for sync, resident memory, both peaks and updates.
pub(crate) fn informer([synced, resident, peak_list, peak_relist, updates]: [f64; 5]) -> Vec<Row> {
    vec![
        Row::less("synced", "synced_s", "s", Target::At(synced)),
        Row::less("processor time until then", "synced_cpu_s", "s", Target::None),
        Row::less("resident after sync", "resident_mb", "MB", Target::At(resident)),
        Row::less("peak while listing", "peak_list_mb", "MB", Target::At(peak_list)),
        Row::less("peak while relisting", "peak_relist_mb", "MB", Target::At(peak_relist)),
        Row::less("  where all has changed", "peak_full_relist_mb", "MB", Target::Of(OF_RESIDENT, "resident_mb")),
        Row::more("updates", "updates_per_s", Target::At(updates)),
        Row::less("  processor time of each", "update_cpu_us", "us", Target::None),
        Row {
            better: Better::Neither,
            unit: "%",
            ..Row::more("  each told of", "updates_heard_percent", Target::None)
        },
        Row::more("objects by index", "lookups_per_s", Target::Of(OF_HASH_MAP, "hash_map_lookups_per_s")),
        Row { better: Better::Neither, ..Row::more("objects in a HashMap", "hash_map_lookups_per_s", Target::None) },
        Row::more("keys by index", "key_lookups_per_s", Target::None),
    ]
}

// === impl Row ===

impl Row {
    const fn less(title: &'static str, figure: &'static str, unit: &'static str, target: Target) -> Row {
        Row { title, figure, unit, better: Better::Less, target }
    }

    const fn more(title: &'static str, figure: &'static str, target: Target) -> Row {
        Row { title, figure, unit: "/s", better: Better::More, target }
    }

    /// Compares each column of ours with the best of the others and with the target.
    pub(crate) fn judge(&self, columns: &[Column]) -> Judged {
        let peers = columns.iter().filter(|column| !column.is_ours()).filter_map(|column| column.median(self.figure));
        let best_peer = match self.better {
            Better::Less => peers.min_by(f64::total_cmp),
            Better::More => peers.max_by(f64::total_cmp),
            Better::Neither => None,
        };
        let verdict = |column: &Column| {
            let value = column.median(self.figure)?;
            let ratio = best_peer.map(|peer| if self.better == Better::Less { peer / value } else { value / peer });
            let target = match self.target {
                Target::At(target) => Some(target),
                Target::Of(times, figure) => column.median(figure).map(|value| times * value),
                Target::None => None,
            };
            let met = target.map(|target| if self.better == Better::Less { value <= target } else { value >= target });
            Some(Verdict { program: column.program, ratio, target, met })
        };
        let verdicts = columns.iter().filter(|column| column.is_ours()).filter_map(verdict).collect();
        Judged { title: self.title, figure: self.figure, unit: self.unit, verdicts }
    }
}

// === impl Samples ===

impl Samples {
    /// The samples of at least one value.
    pub(crate) fn of(mut values: Vec<f64>) -> Samples {
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Samples { min: at(0), median: at(values.len() / 2), max: at(values.len().saturating_sub(1)) }
    }
}

// === impl Column ===

impl Column {
    fn is_ours(&self) -> bool {
        self.program.starts_with("steersman")
    }

    pub(crate) fn median(&self, figure: &str) -> Option<f64> {
        self.figures.get(figure).map(|samples| samples.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(program: &'static str, figures: &[(&str, f64)]) -> Column {
        let figures = figures.iter().map(|(figure, value)| ((*figure).to_owned(), Samples::of(vec![*value]))).collect();
        Column { program, figures, missing: None }
    }

    #[track_caller]
    fn check(row: Row, columns: &[Column], expected: &[(f64, f64, bool)]) {
        let verdicts = row.judge(columns).verdicts;
        let found: Vec<_> = verdicts.iter().map(|verdict| (verdict.ratio, verdict.target, verdict.met)).collect();
        let expected: Vec<_> =
            expected.iter().map(|(ratio, target, met)| (Some(*ratio), Some(*target), Some(*met))).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn samples_are_ordered() {
        assert_eq!(Samples::of(vec![9.0, 1.0, 2.0]), Samples { min: 1.0, median: 2.0, max: 9.0 });
    }

    #[test]
    fn each_of_ours_is_compared_with_the_best_peer() {
        let columns = [
            column("steersman", &[("a", 4.0)]),
            column("steersman compact", &[("a", 2.0)]),
            column("x", &[("a", 8.0)]),
            column("y", &[("a", 6.0)]),
            column("z", &[]),
        ];
        check(Row::less("", "a", "", Target::At(3.0)), &columns, &[(1.5, 3.0, false), (3.0, 3.0, true)]);
        check(Row::more("", "a", Target::At(4.0)), &columns, &[(0.5, 4.0, true), (0.25, 4.0, false)]);
        check(Row::less("", "b", "", Target::At(1.0)), &columns, &[]);
    }

    #[test]
    fn a_target_may_be_another_figure_of_the_same_program() {
        let columns = [column("steersman", &[("a", 6.0), ("b", 10.0)]), column("x", &[("a", 3.0), ("b", 100.0)])];
        check(Row::more("", "a", Target::Of(0.5, "b")), &columns, &[(2.0, 5.0, true)]);
    }
}
