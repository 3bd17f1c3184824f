//! The figures of an attack, as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::attack::Results;

/// Below this the reads of others do not suffer.
pub const READ_P99_MS: f64 = 50.0;
/// The most memory that an attack may take beyond that of the idle server.
pub const GROWN_MB: f64 = 300.0;

/// The median, the 99th percentile and the longest, in milliseconds.
pub fn percentiles(times: &[Duration]) -> [f64; 3] {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = |share: f64| {
        let index = ((times.len() as f64 * share).ceil() as usize).clamp(1, times.len().max(1)) - 1;
        times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    [at(0.5), at(0.99), at(1.0)]
}

/// A line with the reads and the memory of an attack.
pub fn line(name: &str, results: &Results) -> String {
    let [p50, p99, max] = percentiles(&results.reads);
    format!(
        "{name:<34} {:>6} reads {p50:>8.1} {p99:>8.1} {max:>8.0} ms {:>8.0} MB",
        results.reads.len(),
        results.grown_mb()
    )
}

/// For each kind of attack: how many requests, what they were answered, the slowest.
pub fn families(results: &Results) -> String {
    let mut families: BTreeMap<&str, (BTreeMap<String, usize>, Duration)> = BTreeMap::new();
    for (request, outcome) in &results.hostile {
        let (answers, slowest) = families.entry(request.family).or_default();
        let answer = match &outcome.answer {
            Ok(answer) => answer.status.to_string(),
            Err(_) => "none".to_owned(),
        };
        *answers.entry(answer).or_default() += 1;
        *slowest = (*slowest).max(outcome.took);
    }
    let mut text = String::new();
    for (family, (answers, slowest)) in families {
        let answers: Vec<String> = answers.iter().map(|(answer, n)| format!("{answer} x{n}")).collect();
        let _ = writeln!(text, "{family:<34} {:>8.1} s   {}", slowest.as_secs_f64(), answers.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentiles(&times), [100.0, 198.0, 200.0]);
        assert_eq!(percentiles(&[]), [0.0; 3]);
    }
}
