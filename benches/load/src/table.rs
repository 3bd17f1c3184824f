//! Prints figures for people, and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::results::{ROWS, Results, Row, Sample};
use crate::stages::scale::Growth;

/// A line for each row that has a figure.
pub(crate) fn render(results: &Results) -> String {
    let mut out = String::new();
    let mut line = |title: &str, cells: [&str; 4]| {
        let [figure, cpu, growth, client] = cells;
        let text = format!("{title:<52} {figure:<34} {cpu:<24} {growth:<22} {client}");
        // Writes to a String do not fail.
        let _ = writeln!(out, "{}", text.trim_end());
    };
    line("", ["measured (target)", "server CPU us each", "growth MB", "client CPU us each"]);
    for row in ROWS {
        let Some(value) = results.median(row.name, |sample| Some(sample.value)) else { continue };
        let is_cut = results.samples.get(row.name).is_some_and(|samples| samples.iter().any(|sample| sample.is_cut));
        let cut = if is_cut { "cut off at " } else { "" };
        let verdict = row.target.map(|target| judge(row.better.is_met(value, target) && !is_cut, target));
        let figure = format!("{cut}{} {}{}", number(value), row.unit, verdict.unwrap_or_default());
        let judged = |figure: fn(&Sample) -> Option<f64>, target: Option<f64>| {
            let Some(value) = results.median(row.name, figure) else { return "-".to_owned() };
            let verdict = target.map(|target| judge(value <= target, target));
            format!("{}{}", number(value), verdict.unwrap_or_default())
        };
        let cpu = judged(|sample| sample.server_cpu_us, row.cpu_target_us);
        let growth = judged(|sample| sample.growth_mb, row.growth_target_mb);
        let client = judged(|sample| sample.client_cpu_us, None);
        line(row.title, [&figure, &cpu, &growth, &client]);
    }
    out
}

fn judge(is_met: bool, target: f64) -> String {
    format!(" ({} {})", number(target), if is_met { "met" } else { "MISSED" })
}

pub(crate) fn render_growth(growth: &Growth) -> String {
    let mut out = format!("{:>22}", growth.title);
    for column in growth.columns {
        // Writes to a String do not fail.
        let _ = write!(out, "  {column:>14}");
    }
    for (n, figures) in &growth.lines {
        let _ = write!(out, "\n{:>22}", number(*n as f64));
        for (figure, column) in figures.iter().zip(growth.columns) {
            let text = figure.map_or_else(|| "-".to_owned(), number);
            let _ = write!(out, "  {text:>width$}", width = column.len().max(14));
        }
    }
    out.push('\n');
    out
}

/// The rows that have figures, with every sample.
pub(crate) fn to_json(results: &Results) -> Value {
    let row = |row: &Row| {
        let samples = results.samples.get(row.name)?;
        let median = |figure: fn(&Sample) -> Option<f64>| results.median(row.name, figure);
        let value = median(|sample| Some(sample.value))?;
        let is_cut = samples.iter().any(|sample| sample.is_cut);
        Some(json!({
            "name": row.name, "title": row.title.trim(), "unit": row.unit, "value": value, "target": row.target,
            "met": row.target.map(|target| row.better.is_met(value, target) && !is_cut),
            "server_cpu_us": median(|sample| sample.server_cpu_us), "server_cpu_us_target": row.cpu_target_us,
            "growth_mb": median(|sample| sample.growth_mb), "growth_mb_target": row.growth_target_mb,
            "client_cpu_us": median(|sample| sample.client_cpu_us),
            "samples": samples,
        }))
    };
    ROWS.iter().filter_map(row).collect()
}

/// A number with as many digits as are significant.
fn number(value: f64) -> String {
    if value.abs() < 0.1 {
        return format!("{value:.3}");
    }
    if value.abs() < 100.0 && value.fract() != 0.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 && digit != '-' && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        let numbers = [0.0321, 0.66, 45.678, 8_000.0, 1_234_567.8, 30.0, -123_456.0].map(number);
        assert_eq!(numbers, ["0.032", "0.66", "45.68", "8,000", "1,234,568", "30", "-123,456"]);
    }

    #[test]
    fn every_figure_stands_beside_its_target() {
        let mut results = Results::default();
        let sample = Sample { value: 9_000.0, server_cpu_us: Some(140.0), ..Sample::default() };
        results.add("patch", sample);
        results.add("list-yaml", Sample { value: 1.5, growth_mb: Some(10.0), is_cut: true, ..Sample::default() });
        let text = render(&results);
        assert!(text.contains("9,000 /s (8,000 met)"), "{text}");
        assert!(text.contains("140 (130 MISSED)"), "{text}");
        assert!(text.contains("cut off at 1.50 s (0.15 MISSED)"), "{text}");
        assert!(text.contains("10 (20 met)"), "{text}");
        assert_eq!(to_json(&results)[0]["met"], true);
    }
}
