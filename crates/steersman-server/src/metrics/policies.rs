//! Counters of admission policies, under upstream's names.

use crate::metrics::histogram::Histogram;
use crate::metrics::text::{Text, Type};
use hashbrown::{Equivalent, HashMap};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The most combinations of labels. Further ones are not counted: policies come and go, and their counters stay.
const SERIES_MAX: usize = 20_000;
/// The upper bounds of the buckets in seconds.
const BOUNDS: &[f64] = &[0.000_000_5, 0.001, 0.01, 0.1, 1.0];

/// The counts of one server.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    mutating: Series,
    validating: Series,
}

/// The labels of an evaluation.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Figures<'a> {
    pub(crate) policy: &'a str,
    pub(crate) binding: &'a str,
    /// `allow`, `audit`, `deny` or `warn`.
    pub(crate) action: &'static str,
    pub(crate) outcome: Outcome,
}

/// The outcome of an evaluation.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Outcome {
    Error,
    Judged,
    OutOfBudget,
}

#[derive(Debug, Default)]
struct Series(Mutex<HashMap<Owned, Arc<Histogram>>>);

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Owned {
    policy: Box<str>,
    binding: Box<str>,
    action: &'static str,
    outcome: Outcome,
}

impl Outcome {
    fn error_type(self) -> &'static str {
        match self {
            Outcome::Error => "invalid_error",
            Outcome::Judged => "no_error",
            Outcome::OutOfBudget => "out_of_budget_error",
        }
    }
}

impl Policies {
    /// Counts an evaluation of a validating policy.
    pub(crate) fn validated(&self, figures: &Figures<'_>, took: Duration) {
        self.validating.count(figures, took);
    }

    /// Counts an evaluation of a mutating policy.
    pub(crate) fn mutated(&self, figures: &Figures<'_>, took: Duration) {
        self.mutating.count(figures, took);
    }

    pub(super) fn write(&self, text: &mut Text) {
        let names = [
            "apiserver_mutating_admission_policy_check_total",
            "apiserver_mutating_admission_policy_check_duration_seconds",
        ];
        self.mutating.write(text, names);
        let names = [
            "apiserver_validating_admission_policy_check_total",
            "apiserver_validating_admission_policy_check_duration_seconds",
        ];
        self.validating.write(text, names);
    }
}

impl Series {
    fn count(&self, figures: &Figures<'_>, took: Duration) {
        let mut series = self.0.lock();
        if !series.contains_key(figures) {
            if series.len() >= SERIES_MAX {
                return;
            }
            series.insert(figures.owned(), Arc::new(Histogram::new(BOUNDS)));
        }
        if let Some(durations) = series.get(figures) {
            durations.observe(took);
        }
    }

    fn write(&self, text: &mut Text, [total, duration]: [&str; 2]) {
        let mut all: Vec<(Owned, Arc<Histogram>)> =
            self.0.lock().iter().map(|(figures, durations)| (figures.clone(), durations.clone())).collect();
        if all.is_empty() {
            return;
        }
        all.sort_by(|(a, _), (b, _)| a.order().cmp(&b.order()));
        text.family(
            total,
            Type::Counter,
            "Evaluations of admission policies by policy, binding and what came of them.",
        );
        for (figures, durations) in &all {
            text.value(total, &figures.pairs(), durations.count());
        }
        text.family(duration, Type::Histogram, "Seconds that evaluations of admission policies took.");
        for (figures, durations) in &all {
            durations.write(text, duration, &figures.pairs());
        }
    }
}

impl Figures<'_> {
    fn owned(&self) -> Owned {
        Owned { policy: self.policy.into(), binding: self.binding.into(), action: self.action, outcome: self.outcome }
    }
}

impl Equivalent<Owned> for Figures<'_> {
    fn equivalent(&self, key: &Owned) -> bool {
        *self == key.borrowed()
    }
}

impl Owned {
    fn borrowed(&self) -> Figures<'_> {
        Figures { policy: &self.policy, binding: &self.binding, action: self.action, outcome: self.outcome }
    }

    fn order(&self) -> (&str, &str, &str, &str) {
        (&self.policy, &self.binding, self.action, self.outcome.error_type())
    }

    fn pairs(&self) -> [(&str, &str); 4] {
        [
            ("enforcement_action", self.action),
            ("error_type", self.outcome.error_type()),
            ("policy", &self.policy),
            ("policy_binding", &self.binding),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluations_are_counted_by_policy_binding_and_outcome() {
        let policies = Policies::default();
        let figures = Figures { policy: "p", binding: "b", action: "deny", outcome: Outcome::Judged };
        policies.validated(&figures, Duration::from_micros(100));
        policies.validated(&figures, Duration::from_secs(2));
        let mut text = Text::default();
        policies.write(&mut text);
        let text = text.into_string();
        let labels = r#"enforcement_action="deny",error_type="no_error",policy="p",policy_binding="b""#;
        let name = "apiserver_validating_admission_policy_check";
        for line in [
            format!("{name}_total{{{labels}}} 2"),
            format!("{name}_duration_seconds_bucket{{{labels},le=\"0.001\"}} 1"),
            format!("{name}_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 2"),
        ] {
            assert!(text.contains(&line), "{line} is not in {text}");
        }
        assert!(!text.contains("mutating"));
    }
}
