//! How the containers of a Pod behave that no program runs in: what its annotations `simulate.steersman.dev/...` ask for.
//!
//! | annotation | value | meaning |
//! |---|---|---|
//! | `delay` | duration | how long pulling an image takes; usually no time |
//! | `ready-delay` | duration | how long a container takes to be ready, beyond what its probes say |
//! | `never-ready` | `true` | no container becomes ready; its readiness probe fails |
//! | `succeed-after` | duration | the containers end with exit code 0 |
//! | `fail-after` | duration | the containers end with `exit-code`, or 1 |
//! | `exit-code` | 0 to 255 | see `fail-after` and `crash-loop` |
//! | `crash-loop` | `true` | the containers end with `exit-code`, or 1, as soon as they have begun |
//! | `liveness-fails-after` | duration | the liveness probe, if there is one, fails from then on |
//! | `stop-delay` | duration | how long a container takes to end when it is asked to; usually no time |
//! | `image-missing` | `true` | no image can be pulled; the same holds of images whose tag is `missing` |
//! | `cpu-usage` | quantity | what each container uses of CPU while it runs |
//! | `memory-usage` | quantity | what each container uses of memory while it runs |
//!
//! A duration is written as in Go (`1m30s`), or as a range of them (`1s..3s`), out of which each container takes its own. What cannot be
//! read counts as absent, and an Event says so.

use crate::kubelet::{duration, resources};
use k8s_openapi::api::core::v1::Pod;
use std::time::Duration;

/// What all annotations begin with.
pub(crate) const PREFIX: &str = "simulate.steersman.dev/";

/// The behavior of a Pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Behavior {
    pub(crate) delay: Option<Range>,
    pub(crate) ready_delay: Option<Range>,
    pub(crate) is_never_ready: bool,
    pub(crate) ends: Option<End>,
    pub(crate) liveness_fails_after: Option<Range>,
    pub(crate) stop_delay: Option<Range>,
    pub(crate) is_image_missing: bool,
    /// In thousandths of a CPU.
    pub(crate) cpu_usage: Option<u64>,
    /// In bytes.
    pub(crate) memory_usage: Option<u64>,
}

/// That containers end by themselves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct End {
    pub(crate) after: Range,
    pub(crate) exit_code: i32,
}

/// A duration, or two between which it is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Range {
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

// === impl Behavior ===

impl Behavior {
    /// What the annotations of a Pod ask for, and what of them cannot be read.
    pub(crate) fn of(pod: &Pod) -> (Behavior, Vec<String>) {
        let mut behavior = Behavior::default();
        let mut faults = Vec::new();
        let (mut succeeds, mut fails, mut exit_code, mut crashes) = (None, None, None, false);
        let given = pod.metadata.annotations.iter().flatten();
        for (key, value) in given.filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value.trim()))) {
            let read = match key {
                "delay" => Range::parse(value).map(|range| behavior.delay = Some(range)),
                "ready-delay" => Range::parse(value).map(|range| behavior.ready_delay = Some(range)),
                "never-ready" => flag(value).map(|is_set| behavior.is_never_ready = is_set),
                "succeed-after" => Range::parse(value).map(|range| succeeds = Some(range)),
                "fail-after" => Range::parse(value).map(|range| fails = Some(range)),
                "exit-code" => value.parse::<u8>().ok().map(|code| exit_code = Some(i32::from(code))),
                "crash-loop" => flag(value).map(|is_set| crashes = is_set),
                "liveness-fails-after" => Range::parse(value).map(|range| behavior.liveness_fails_after = Some(range)),
                "stop-delay" => Range::parse(value).map(|range| behavior.stop_delay = Some(range)),
                "image-missing" => flag(value).map(|is_set| behavior.is_image_missing = is_set),
                "cpu-usage" => resources::parse("cpu", value).map(|usage| behavior.cpu_usage = Some(usage)),
                "memory-usage" => resources::parse("memory", value).map(|usage| behavior.memory_usage = Some(usage)),
                _ => None,
            };
            if read.is_none() {
                faults.push(format!("the annotation {PREFIX}{key} cannot be used: {value:?}"));
            }
        }
        let failing = |after| End { after, exit_code: exit_code.unwrap_or(1) };
        behavior.ends = match (crashes, fails, succeeds) {
            (true, ..) => Some(failing(Range::default())),
            (false, Some(after), _) => Some(failing(after)),
            (false, None, Some(after)) => Some(End { after, exit_code: 0 }),
            (false, None, None) => None,
        };
        (behavior, faults)
    }
}

fn flag(value: &str) -> Option<bool> {
    match value {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

// === impl Range ===

impl Range {
    fn parse(text: &str) -> Option<Range> {
        let (least, most) = match text.split_once("..") {
            Some((least, most)) => (duration::parse(least.trim())?, duration::parse(most.trim())?),
            None => {
                let exact = duration::parse(text)?;
                (exact, exact)
            }
        };
        (least <= most).then_some(Range { least, most })
    }

    /// One of its durations, the same for the same `seed`.
    pub(crate) fn pick(self, seed: u64) -> Duration {
        let width = self.most.saturating_sub(self.least);
        // In steps of a 65,536th of the range.
        let share = u32::try_from(seed % 65_536).unwrap_or_default();
        self.least.saturating_add((width / 65_536).saturating_mul(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn pod(annotations: &[(&str, &str)]) -> Pod {
        let annotations = annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()));
        let metadata = ObjectMeta { annotations: Some(annotations.collect()), ..ObjectMeta::default() };
        Pod { metadata, ..Pod::default() }
    }

    #[test]
    fn a_range_gives_the_same_for_the_same_seed_and_stays_within() {
        let range = Range::parse("1s..3s").unwrap();
        assert_eq!(range.pick(7), range.pick(7));
        for seed in (0..u64::MAX / 2).step_by((u64::MAX / 50) as usize) {
            assert!((range.least..=range.most).contains(&range.pick(seed)));
        }
        assert_eq!(Range::parse("3s..1s"), None);
        assert_eq!(Range::parse("soon"), None);
    }

    #[test]
    fn a_crash_is_sooner_than_a_failure_and_a_failure_than_success() {
        let ends = |annotations: &[(&str, &str)]| {
            Behavior::of(&pod(annotations)).0.ends.map(|end| (end.after.least.as_secs(), end.exit_code))
        };
        assert_eq!(ends(&[]), None);
        assert_eq!(ends(&[("succeed-after", "5s")]), Some((5, 0)));
        assert_eq!(ends(&[("succeed-after", "5s"), ("fail-after", "9s"), ("exit-code", "3")]), Some((9, 3)));
        assert_eq!(ends(&[("fail-after", "9s"), ("crash-loop", "true")]), Some((0, 1)));
    }

    #[test]
    fn what_cannot_be_read_is_said_and_left_out() {
        let (behavior, faults) = Behavior::of(&pod(&[("delay", "soon"), ("exit-code", "256"), ("sing", "true")]));
        assert_eq!(behavior, Behavior::default());
        assert_eq!(faults.len(), 3, "{faults:?}");
    }
}
