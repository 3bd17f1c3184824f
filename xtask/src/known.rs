//! The list of walk steps that are known to fail: read, compared with a run, rewritten.
//!
//! One step per line: `folder/file.walk: title of the step  # why it differs`. The list is exact in both directions: a step
//! outside it must pass, a step on it must fail, so that it never outlives its reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Stands before the reason of a step. Titles are free text; none holds two spaces and a hash.
const REASON_MARK: &str = "  # ";
/// What `--update-known` writes where nobody has given a reason.
const NO_REASON: &str = "nobody has looked at this yet";

const HEADER: &str = "\
# Steps of the walks that are known to fail, one per line: file: step  # reason
# cargo xtask walks fails when one of them passes, and when any other step fails.
# cargo xtask walks --update-known rewrites the list and keeps the reasons.
";

/// A step of a walk: its file, relative to the walks' directory, and its title.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct StepId {
    pub(crate) file: String,
    pub(crate) title: String,
}

impl fmt::Display for StepId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.file, self.title)
    }
}

/// The known failures with their reasons.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Known {
    steps: BTreeMap<StepId, String>,
}

/// What one file of walks did.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) file: String,
    pub(crate) passed: usize,
    pub(crate) failed: BTreeSet<String>,
}

/// Where a run and the list disagree.
#[derive(Debug, Default)]
pub(crate) struct Surprises {
    /// Failed without being listed.
    pub(crate) failed: Vec<StepId>,
    /// Listed, but did not fail.
    pub(crate) passed: Vec<StepId>,
}

impl Known {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Known> {
        let mut steps = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let number = index + 1;
            let Some((step, reason)) = line.split_once(REASON_MARK) else {
                anyhow::bail!("line {number} gives no reason after \"{REASON_MARK}\": {line}");
            };
            let Some((file, title)) = step.split_once(".walk: ") else {
                anyhow::bail!("line {number} does not begin with \"file.walk: step\": {line}");
            };
            let id = StepId { file: format!("{file}.walk"), title: title.trim().to_owned() };
            if steps.insert(id, reason.trim().to_owned()).is_some() {
                anyhow::bail!("line {number} lists a step a second time: {line}");
            }
        }
        Ok(Known { steps })
    }

    pub(crate) fn render(&self) -> String {
        let mut text = HEADER.to_owned();
        for (id, reason) in &self.steps {
            text += &format!("{id}{REASON_MARK}{reason}\n");
        }
        text
    }

    pub(crate) fn contains(&self, file: &str, title: &str) -> bool {
        self.steps.contains_key(&StepId { file: file.to_owned(), title: title.to_owned() })
    }

    /// Compares a run with the list. Files that did not run are left alone.
    pub(crate) fn compare(&self, outcomes: &[Outcome]) -> Surprises {
        let failed = failures(outcomes);
        let ran: BTreeSet<&str> = outcomes.iter().map(|outcome| outcome.file.as_str()).collect();
        Surprises {
            failed: failed.iter().filter(|id| !self.steps.contains_key(*id)).cloned().collect(),
            passed: self
                .steps
                .keys()
                .filter(|id| ran.contains(id.file.as_str()) && !failed.contains(*id))
                .cloned()
                .collect(),
        }
    }

    /// Makes the list say what a run showed, keeping the reasons of what still fails.
    pub(crate) fn update(&mut self, outcomes: &[Outcome]) {
        let surprises = self.compare(outcomes);
        for id in &surprises.passed {
            self.steps.remove(id);
        }
        for id in surprises.failed {
            self.steps.insert(id, NO_REASON.to_owned());
        }
    }
}

fn failures(outcomes: &[Outcome]) -> BTreeSet<StepId> {
    outcomes
        .iter()
        .flat_map(|outcome| outcome.failed.iter().map(|title| (&outcome.file, title)))
        .map(|(file, title)| StepId { file: file.clone(), title: title.clone() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# remark\n\na/b.walk: one: more  # Go says so\na/b.walk: two  # later\n";

    fn outcome(file: &str, failed: &[&str]) -> Outcome {
        Outcome { file: file.to_owned(), passed: 1, failed: failed.iter().map(|title| (*title).to_owned()).collect() }
    }

    fn shown(ids: &[StepId]) -> Vec<String> {
        ids.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn parse_then_render_keeps_steps_and_reasons() {
        let known = Known::parse(LIST).unwrap();
        assert_eq!(known.render(), format!("{HEADER}a/b.walk: one: more  # Go says so\na/b.walk: two  # later\n"));
        assert_eq!(Known::parse(&known.render()).unwrap(), known);
    }

    #[test]
    fn lines_without_reason_or_file_and_doubles_are_refused() {
        for (text, part) in [
            ("a.walk: one\n", "line 1 gives no reason"),
            ("\none  # why\n", "line 2 does not begin with"),
            ("a.walk: one  # why\na.walk: one  # why\n", "line 2 lists a step a second time"),
        ] {
            let error = Known::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn unlisted_failure_and_listed_pass_are_surprises() {
        let known = Known::parse(LIST).unwrap();
        let surprises = known.compare(&[outcome("a/b.walk", &["two", "three"]), outcome("c.walk", &[])]);
        assert_eq!(shown(&surprises.failed), ["a/b.walk: three"]);
        assert_eq!(shown(&surprises.passed), ["a/b.walk: one: more"]);
    }

    #[test]
    fn files_that_did_not_run_do_not_surprise() {
        let surprises = Known::parse(LIST).unwrap().compare(&[outcome("c.walk", &[])]);
        assert!(surprises.failed.is_empty() && surprises.passed.is_empty());
    }

    #[test]
    fn update_makes_the_run_expected_and_keeps_reasons() {
        let mut known = Known::parse(LIST).unwrap();
        let run = [outcome("a/b.walk", &["two", "three"])];
        known.update(&run);
        assert_eq!(known.render(), format!("{HEADER}a/b.walk: three  # {NO_REASON}\na/b.walk: two  # later\n"));
        let surprises = known.compare(&run);
        assert!(surprises.failed.is_empty() && surprises.passed.is_empty());
    }
}
