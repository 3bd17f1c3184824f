//! The table of measurements with their targets, and the results of several runs.

use std::collections::BTreeMap;

use serde::Serialize;

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The name for `--only`.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    /// The target of the figure.
    pub(crate) target: Option<f64>,
    /// The target for the server's processor time, in microseconds per request, delivery or row.
    pub(crate) cpu_target_us: Option<f64>,
    /// The target for the growth of the server's memory meanwhile, in MB.
    pub(crate) growth_target_mb: Option<f64>,
}

/// Whether the row of this name is to be measured.
pub(crate) type IsWanted<'a> = dyn Fn(&str) -> bool + Sync + 'a;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Better {
    Less,
    More,
}

/// The result of one run. Values that could not be read are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Sample {
    pub(crate) value: f64,
    pub(crate) server_cpu_us: Option<f64>,
    pub(crate) client_cpu_us: Option<f64>,
    pub(crate) growth_mb: Option<f64>,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    /// Whether it was stopped early, so that the value is a bound.
    pub(crate) is_cut: bool,
}

/// The samples of every row, by the name of the row.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) samples: BTreeMap<&'static str, Vec<Sample>>,
}

const fn more(name: &'static str, title: &'static str, target: f64, cpu_target_us: f64) -> Row {
    Row {
        name,
        title,
        unit: "/s",
        better: Better::More,
        target: Some(target),
        cpu_target_us: Some(cpu_target_us),
        growth_target_mb: None,
    }
}

const fn less(name: &'static str, title: &'static str, unit: &'static str, target: f64) -> Row {
    Row { name, title, unit, better: Better::Less, target: Some(target), cpu_target_us: None, growth_target_mb: None }
}

/// A row that is shown for comparison with another.
const fn beside(name: &'static str, title: &'static str) -> Row {
    Row { name, title, unit: "/s", better: Better::More, target: None, cpu_target_us: None, growth_target_mb: None }
}

const fn growing(row: Row, growth_target_mb: f64) -> Row {
    Row { growth_target_mb: Some(growth_target_mb), ..row }
}

/// The rows, in the order of the table.
pub(crate) const ROWS: &[Row] = &[
    more("create", "durable creates, 64 workers", 8_000.0, 110.0),
    more("patch", "merge patches, 32 workers", 8_000.0, 130.0),
    more("apply", "server-side applies, 32 workers", 6_000.0, 200.0),
    more("get", "GETs, 32 workers", 25_000.0, 30.0),
    beside("admission-none", "durable creates, 64 workers, nobody asked"),
    beside("admission-policy", "  with an admission policy of two expressions"),
    beside("admission-policies", "  with ten of them"),
    beside("admission-webhook", "  with a validating webhook on loopback"),
    less("list", "list of 23,000 objects", "s", 0.03),
    growing(less("list-table", "  as Table", "s", 0.15), 20.0),
    growing(less("list-yaml", "  as YAML", "s", 0.15), 20.0),
    growing(less("list-pretty", "  as pretty JSON", "s", 0.15), 20.0),
    less("table-row", "  a row of the Table, server CPU", "us", 6.0),
    more("fanout", "deliveries to 1,000 watchers, 16 events under way", 150_000.0, 6.0),
    more("fanout-single", "  the same, one event under way", 150_000.0, 6.0),
    less("selective", "an event, each of 400 watchers it does not concern", "us CPU", 1.0),
    less("metadata", "an event, each of 400 metadata-only watchers", "us CPU", 6.0),
    less("flood", "a GET by another user during a flood by one, p99", "ms", 50.0),
    less("flood-namespace", "  the end of a namespace meanwhile", "s", 5.0),
    less("definitions", "200 definitions of 18 KB, one after another", "s", 3.0),
    less("definitions-1000", "1,000 definitions of 18 KB", "s", 20.0),
    less("delete-collection", "DELETE of a collection of 23,000", "s", 3.0),
    less("memory-idle", "resident memory, idle", "MB", 25.0),
    less("memory-23000", "resident memory with 23,000 objects", "MB", 70.0),
    less("memory-100000", "resident memory with 100,000 objects", "MB", 120.0),
    less("idle-http1", "memory of an idle watcher, HTTP/1.1", "KB", 25.0),
    less("idle-http2", "memory of an idle watcher, HTTP/2", "KB", 4.0),
    less("open", "open after kill -9, 100,000 objects", "s", 0.2),
    less("open-1000000", "open after kill -9, 1,000,000 objects", "s", 3.0),
];

impl Results {
    pub(crate) fn add(&mut self, name: &'static str, sample: Sample) {
        debug_assert!(ROWS.iter().any(|row| row.name == name), "no row {name}");
        self.samples.entry(name).or_default().push(sample);
    }

    /// The median of one of the figures of a row.
    pub(crate) fn median(&self, name: &str, figure: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        median(self.samples.get(name)?.iter().filter_map(figure).collect())
    }
}

/// The median; of an even number of values the upper one in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

impl Better {
    pub(crate) fn is_met(self, value: f64, target: f64) -> bool {
        match self {
            Better::Less => value <= target,
            Better::More => value >= target,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_what_was_read() {
        let mut results = Results::default();
        for (value, growth_mb) in [(3.0, Some(5.0)), (1.0, None), (2.0, None)] {
            results.add("list", Sample { value, growth_mb, ..Sample::default() });
        }
        assert_eq!(results.median("list", |sample| Some(sample.value)), Some(2.0));
        assert_eq!(results.median("list", |sample| sample.growth_mb), Some(5.0));
        assert_eq!(results.median("get", |sample| Some(sample.value)), None);
    }

    #[test]
    fn names_of_rows_differ() {
        let names: std::collections::BTreeSet<&str> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
    }
}
