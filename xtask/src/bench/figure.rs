//! A measured figure with its target, and the output of figures.

use anyhow::Context;
use serde::Serialize;

/// A measured figure with its target.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    name: &'static str,
    unit: &'static str,
    min: f64,
    median: f64,
    max: f64,
    /// Infinite where there is none.
    target: f64,
    /// Whether the median is within the target.
    met: bool,
}

/// The form in which a benchmark prints its figures.
#[derive(clap::Args)]
pub(crate) struct Output {
    /// Print one line of JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl Figure {
    pub(crate) fn new(name: &'static str, unit: &'static str, target: f64, mut samples: Vec<f64>) -> Figure {
        samples.sort_by(f64::total_cmp);
        let (min, max) = (samples.first().copied().unwrap_or(f64::NAN), samples.last().copied().unwrap_or(f64::NAN));
        let median = samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN);
        Figure { name, unit, min, median, max, target, met: median <= target }
    }
}

impl Output {
    pub(crate) fn print(&self, figures: &[Figure]) -> anyhow::Result<()> {
        if self.json {
            println!("{}", serde_json::to_string(figures).context("cannot write the figures as JSON")?);
            return Ok(());
        }
        println!("{:<44} {:>8} {:>8} {:>8}  {:>8}", "", "min", "median", "max", "target");
        for figure in figures {
            let Figure { name, unit, min, median, max, target, met } = figure;
            let verdict = match met {
                _ if target.is_infinite() => "",
                true => "met",
                false => "MISSED",
            };
            let [min, median, max] = [min, median, max].map(|value| text(*value));
            let target = if target.is_infinite() { "-".to_owned() } else { target.to_string() };
            println!("{name:<44} {min:>8} {median:>8} {max:>8}  {target:>8} {unit}  {verdict}");
        }
        Ok(())
    }
}

/// A figure as text, with more digits if it is small.
fn text(value: f64) -> String {
    if value.abs() < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_orders_samples_and_judges_the_median() {
        let figure = Figure::new("x", "ms", 2.0, vec![9.0, 1.0, 2.0]);
        assert_eq!((figure.min, figure.median, figure.max, figure.met), (1.0, 2.0, 9.0, true));
    }

    #[test]
    fn small_figures_are_not_rounded_to_nothing() {
        assert_eq!([0.04, 9.99, 265.06].map(text), ["0.04", "9.99", "265.1"]);
    }
}
