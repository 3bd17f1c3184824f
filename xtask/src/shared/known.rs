//! The list of walk steps that are known to fail: reading it, comparing it with a run, rewriting it.
//!
//! One step per line: `folder/file.walk: title of the step  # why it differs`. The list is exact in both directions: a
//! step outside it must pass, and a step on it must fail, so that no entry becomes obsolete.
//!
//! A line without a title, `folder/file.walk  # why` or `folder/*.walk  # why`, is for walks of features that do not
//! exist yet. They are skipped unless they are asked for. Their failures are expected; a whole file without failures is
//! not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Precedes the reason of a step. Titles are free text, but none contains two spaces and a hash.
const REASON_MARK: &str = "  # ";
/// The reason that `--update-known` writes if nobody has given one.
const NO_REASON: &str = "nobody has looked at this yet";

const HEADER: &str = "\
# Steps of the walks that are known to fail, one per line: file: step  # reason
# A line without a step is a whole file, or a folder's (folder/*.walk), that is replayed when named and with --all only.
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
pub(crate) struct KnownFailures {
    /// Files, or `folder/*.walk`, for features that do not exist yet. None of their steps is in `steps`.
    files: BTreeMap<String, String>,
    steps: BTreeMap<StepId, String>,
}

/// The results of one file of walks.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) file: String,
    pub(crate) passed: usize,
    pub(crate) failed: BTreeSet<String>,
}

/// The differences between a run and the list.
#[derive(Debug, Default)]
pub(crate) struct Surprises {
    /// Steps that failed without being listed.
    pub(crate) failed: Vec<StepId>,
    /// Listed steps that did not fail.
    pub(crate) passed: Vec<StepId>,
    /// Files listed as a whole in which no step failed.
    pub(crate) passed_files: Vec<String>,
}

impl Surprises {
    pub(crate) fn count(&self) -> usize {
        self.failed.len() + self.passed.len() + self.passed_files.len()
    }
}

impl KnownFailures {
    pub(crate) fn parse(text: &str) -> anyhow::Result<KnownFailures> {
        let mut known = KnownFailures::default();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let number = index + 1;
            let Some((step, reason)) = line.split_once(REASON_MARK) else {
                anyhow::bail!("line {number} gives no reason after \"{REASON_MARK}\": {line}");
            };
            let reason = reason.trim().to_owned();
            let before = if let Some((file, title)) = step.split_once(".walk: ") {
                known.steps.insert(StepId { file: format!("{file}.walk"), title: title.trim().to_owned() }, reason)
            } else if step.ends_with(".walk") {
                known.files.insert(step.to_owned(), reason)
            } else {
                anyhow::bail!("line {number} does not begin with \"file.walk: step\" or \"file.walk\": {line}");
            };
            if before.is_some() {
                anyhow::bail!("line {number} lists a step or file a second time: {line}");
            }
        }
        if let Some(id) = known.steps.keys().find(|id| known.is_whole(&id.file)) {
            anyhow::bail!("{id} is listed, and its file as a whole");
        }
        Ok(known)
    }

    pub(crate) fn render(&self) -> String {
        let mut text = HEADER.to_owned();
        for (file, reason) in &self.files {
            text += &format!("{file}{REASON_MARK}{reason}\n");
        }
        for (id, reason) in &self.steps {
            text += &format!("{id}{REASON_MARK}{reason}\n");
        }
        text
    }

    /// Whether `file` is listed as a whole.
    pub(crate) fn is_whole(&self, file: &str) -> bool {
        self.files.keys().any(|listed| match listed.strip_suffix("*.walk") {
            Some(folder) => file.starts_with(folder),
            None => file == listed,
        })
    }

    pub(crate) fn contains(&self, file: &str, title: &str) -> bool {
        self.is_whole(file) || self.steps.contains_key(&StepId { file: file.to_owned(), title: title.to_owned() })
    }

    /// Compares a run with the list. Files that did not run are left alone.
    pub(crate) fn compare(&self, outcomes: &[Outcome]) -> Surprises {
        let failed = failures(outcomes);
        let ran: BTreeSet<&str> = outcomes.iter().map(|outcome| outcome.file.as_str()).collect();
        Surprises {
            failed: failed.iter().filter(|id| !self.contains(&id.file, &id.title)).cloned().collect(),
            passed: self
                .steps
                .keys()
                .filter(|id| ran.contains(id.file.as_str()) && !failed.contains(*id))
                .cloned()
                .collect(),
            passed_files: outcomes
                .iter()
                .filter(|outcome| outcome.failed.is_empty() && self.is_whole(&outcome.file))
                .map(|outcome| outcome.file.clone())
                .collect(),
        }
    }

    /// Updates the list from a run, keeping the reasons of steps that still fail. Lines for whole files are kept:
    /// people decide which features exist.
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
        let known = KnownFailures::parse(LIST).unwrap();
        assert_eq!(known.render(), format!("{HEADER}a/b.walk: one: more  # Go says so\na/b.walk: two  # later\n"));
        assert_eq!(KnownFailures::parse(&known.render()).unwrap(), known);
    }

    #[test]
    fn lines_without_reason_or_file_and_doubles_are_refused() {
        for (text, part) in [
            ("a.walk: one\n", "line 1 gives no reason"),
            ("\none  # why\n", "line 2 does not begin with"),
            ("a.walk: one  # why\na.walk: one  # why\n", "line 2 lists a step or file a second time"),
            ("a.walk  # why\na.walk  # why\n", "line 2 lists a step or file a second time"),
            ("a/*.walk  # why\na/b.walk: one  # why\n", "a/b.walk: one is listed, and its file as a whole"),
        ] {
            let error = KnownFailures::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn unlisted_failure_and_listed_pass_are_surprises() {
        let known = KnownFailures::parse(LIST).unwrap();
        let surprises = known.compare(&[outcome("a/b.walk", &["two", "three"]), outcome("c.walk", &[])]);
        assert_eq!(shown(&surprises.failed), ["a/b.walk: three"]);
        assert_eq!(shown(&surprises.passed), ["a/b.walk: one: more"]);
    }

    #[test]
    fn files_that_did_not_run_do_not_surprise() {
        let surprises = KnownFailures::parse(LIST).unwrap().compare(&[outcome("c.walk", &[])]);
        assert!(surprises.failed.is_empty() && surprises.passed.is_empty());
    }

    #[test]
    fn whole_files_may_fail_in_any_step_but_not_in_none() {
        let text = format!("{HEADER}a/*.walk  # later\nb/c.walk  # later too\n");
        let known = KnownFailures::parse(&text).unwrap();
        assert_eq!(known.render(), text);
        assert!(known.is_whole("a/b.walk") && known.is_whole("b/c.walk") && !known.is_whole("b/d.walk"));
        let run = [outcome("a/b.walk", &["one"]), outcome("a/c.walk", &[]), outcome("b/c.walk", &["one", "two"])];
        let surprises = known.compare(&run);
        assert!(surprises.failed.is_empty() && surprises.passed.is_empty());
        assert_eq!(surprises.passed_files, ["a/c.walk"]);
        assert_eq!(surprises.count(), 1);
    }

    #[test]
    fn update_makes_the_run_expected_and_keeps_reasons() {
        let mut known = KnownFailures::parse(LIST).unwrap();
        let run = [outcome("a/b.walk", &["two", "three"])];
        known.update(&run);
        assert_eq!(known.render(), format!("{HEADER}a/b.walk: three  # {NO_REASON}\na/b.walk: two  # later\n"));
        let surprises = known.compare(&run);
        assert!(surprises.failed.is_empty() && surprises.passed.is_empty());
    }
}
