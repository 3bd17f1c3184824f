//! Prints figures as a table.

use std::fmt::Write;

use crate::bench::runtime::figures::{Judged, Verdict};
use crate::bench::runtime::{Column, Options, Part};

const TITLE_WIDTH: usize = 34;
const CELL_WIDTH: usize = 22;

/// Resident memory after a forced collection, for programs with a garbage collector; shown in parentheses beside the
/// resident memory.
const RESIDENT: &str = "resident_mb";
const COLLECTED: &str = "resident_collected_mb";

pub(crate) fn render(part: &Part) -> String {
    let mut out = String::new();
    let mut line = |title: &str, cells: &mut dyn Iterator<Item = String>| {
        let cells: String = cells.map(|cell| format!("  {cell:>CELL_WIDTH$}")).collect();
        // Writing to a String does not fail.
        let _ = writeln!(out, "{title:<TITLE_WIDTH$}{}", cells.trim_end());
    };
    let ends = ["against best peer", "target"].map(str::to_owned);
    line(part.name, &mut part.columns.iter().map(|column| column.program.to_owned()).chain(ends));
    for row in &part.rows {
        let ratio = joined(row, |verdict| Some(format!("{}x", number(verdict.ratio?))));
        let met = joined(row, |verdict| Some(if verdict.met? { "met" } else { "MISSED" }.to_owned()));
        let target = row.verdicts.iter().find_map(|verdict| verdict.target);
        let target = target.map_or_else(|| "-".to_owned(), |target| format!("{} {met}", number(target)));
        let title = format!("{} [{}]", row.title, row.unit);
        line(&title, &mut part.columns.iter().map(|column| cell(column, row)).chain([ratio, target]));
    }
    for column in &part.columns {
        if let Some(why) = &column.missing {
            let _ = writeln!(out, "!!! no figures of {}: {why}", column.program);
        }
    }
    out.push('\n');
    out
}

fn cell(column: &Column, row: &Judged) -> String {
    let Some(value) = column.median(row.figure) else { return "-".to_owned() };
    match column.median(COLLECTED) {
        Some(collected) if row.figure == RESIDENT => format!("{} ({})", number(value), number(collected)),
        _ => number(value),
    }
}

/// The texts for each of our columns, joined.
fn joined(row: &Judged, say: impl Fn(&Verdict) -> Option<String>) -> String {
    let words: Vec<String> = row.verdicts.iter().filter_map(say).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(" / ") }
}

/// A number with its significant digits.
fn number(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub(crate) fn print_notes(options: &Options) {
    let runs = options.runs;
    println!(
        "Medians of {runs} runs, programs in turn. What is said of ours is said of each column of ours, in their order."
    );
    println!(
        "Peaks are VmHWM, begun anew before the relist through /proc/self/clear_refs. In brackets: after a forced"
    );
    println!("collection. A column of kube-runtime has no index: its lookups are scans of the store.");
    println!(
        "{}",
        match options.strip {
            true => "steersman drops managedFields before decoding; here the peers drop them after decoding.",
            false => "steersman drops managedFields by default, the peers keep them; --strip makes them drop them too.",
        }
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::runtime::figures::{QUEUE, Samples};

    #[test]
    fn numbers_are_grouped() {
        let numbers = [0.4444, 45.6, 210_000.0, 1_234_567.8].map(number);
        assert_eq!(numbers, ["0.44", "46", "210,000", "1,234,568"]);
    }

    #[test]
    fn a_column_without_figures_says_why() {
        let figures = [("queue_cycles_per_s".to_owned(), Samples::of(vec![3e6]))].into();
        let columns = vec![
            Column { program: "steersman", figures, missing: None },
            Column { program: "client-go", figures: [].into(), missing: Some("there is no go on PATH".to_owned()) },
        ];
        let text = render(&Part::new("queue", columns, QUEUE));
        assert!(text.contains("3,000,000"), "{text}");
        assert!(text.contains("2,000,000 met"), "{text}");
        assert!(text.contains("no figures of client-go: there is no go on PATH"), "{text}");
    }
}
