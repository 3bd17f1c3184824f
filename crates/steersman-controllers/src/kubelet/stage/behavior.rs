//! The behavior of a Pod's containers, in which no program runs: taken from the annotations
//! `simulate.steersman.dev/...` of the Pod, and from the Stages that select it ([`stage`](crate::kubelet::stage)).
//!
//! | annotation | field of a Stage | value | meaning |
//! |---|---|---|---|
//! | `delay` | `pullDelay` | duration | how long pulling an image takes; usually no time |
//! | `ready-delay` | `readyDelay` | duration | how long a container takes to be ready, beyond what its probes say |
//! | `never-ready` | `neverReady` | `true` | no container becomes ready; its readiness probe fails |
//! | `succeed-after` | `succeedAfter` | duration | the containers end with exit code 0 |
//! | `fail-after` | `failAfter` | duration | the containers end with `exit-code`, or 1 |
//! | `exit-code` | `exitCode` | 0 to 255 | see `fail-after` and `crash-loop` |
//! | `crash-loop` | `crashLoop` | `true` | the containers end with `exit-code`, or 1, as soon as they have begun |
//! | `liveness-fails-after` | `livenessFailsAfter` | duration | the liveness probe, if there is one, fails from then on |
//! | `stop-delay` | `stopDelay` | duration | how long a container takes to end when it is asked to; usually no time |
//! | `image-missing` | `imageMissing` | `true` | no image can be pulled; the same holds of images whose tag is `missing`, `non-existent` or `404` |
//! | `cpu-usage` | `usage.cpu` | quantity | what each container uses of CPU while it runs |
//! | `memory-usage` | `usage.memory` | quantity | what each container uses of memory while it runs |
//!
//! A duration is written as in Go (`1m30s`), or as a range (`1s..3s`) from which each container gets its own. A value
//! that cannot be read counts as absent and is reported by an Event. Annotations come first; the Stages, in order, fill
//! in what is still unset.

use crate::kubelet::node::resources;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use steersman_machinery::duration::parse_unsigned;

/// The prefix of all annotations.
pub(crate) const PREFIX: &str = "simulate.steersman.dev/";

/// The behavior of the containers of a Pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Behaviors {
    general: Behavior,
    /// Containers, by name, whose behavior differs from `general`.
    containers: BTreeMap<String, Behavior>,
}

/// The behavior of a container.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Behavior {
    pub(crate) pull_delay: Option<Range>,
    pub(crate) ready_delay: Option<Range>,
    pub(crate) is_never_ready: bool,
    pub(crate) ends: Option<End>,
    pub(crate) liveness_fails_after: Option<Range>,
    pub(crate) stop_delay: Option<Range>,
    pub(crate) is_image_missing: bool,
    /// The CPU usage, in thousandths of a CPU.
    pub(crate) cpu_usage: Option<u64>,
    /// The memory usage, in bytes.
    pub(crate) memory_usage: Option<u64>,
}

/// The behavior of a container according to one source: the annotations of its Pod, or a Stage. Fields that are absent
/// are left to the next source.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Layer {
    pub(crate) pull_delay: Option<Range>,
    pub(crate) ready_delay: Option<Range>,
    pub(crate) never_ready: Option<bool>,
    /// `Some(false)`: no later source makes the container end.
    pub(crate) crash_loop: Option<bool>,
    pub(crate) fail_after: Option<Range>,
    pub(crate) succeed_after: Option<Range>,
    pub(crate) exit_code: Option<u8>,
    pub(crate) liveness_fails_after: Option<Range>,
    pub(crate) stop_delay: Option<Range>,
    pub(crate) image_missing: Option<bool>,
    pub(crate) cpu_usage: Option<u64>,
    pub(crate) memory_usage: Option<u64>,
}

/// The behavior that a Stage sets for all containers, and for single containers, which takes precedence.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Layers {
    pub(crate) general: Layer,
    pub(crate) containers: BTreeMap<String, Layer>,
}

/// When and with which exit code containers end by themselves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct End {
    pub(crate) after: Range,
    pub(crate) exit_code: i32,
}

/// A fixed duration, or a range from which one is picked.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Range {
    pub(crate) least: Duration,
    pub(crate) most: Duration,
}

/// The end of a container according to one source.
#[derive(Clone, Copy, Debug)]
enum Way {
    Fails(Range),
    GoesOn,
    Succeeds(Range),
}

// === impl Behaviors ===

impl Behaviors {
    /// Merges the annotations and then the Stages, in this order: the first source that sets a field wins.
    pub(crate) fn of(annotations: &Layer, stages: &[&Layers]) -> Behaviors {
        let names: BTreeSet<&String> = stages.iter().flat_map(|stage| stage.containers.keys()).collect();
        let of_container = |name: &String| {
            let own = |stage: &&Layers| stage.containers.get(name).cloned();
            let layers = stages.iter().flat_map(|stage| own(stage).into_iter().chain([stage.general.clone()]));
            (name.clone(), Behavior::of(&[annotations.clone()].into_iter().chain(layers).collect::<Vec<_>>()))
        };
        let general = [annotations].into_iter().chain(stages.iter().map(|stage| &stage.general)).cloned();
        Behaviors {
            general: Behavior::of(&general.collect::<Vec<_>>()),
            containers: names.into_iter().map(of_container).collect(),
        }
    }

    /// The behavior of a container.
    pub(crate) fn container(&self, name: &str) -> &Behavior {
        self.containers.get(name).unwrap_or(&self.general)
    }
}

// === impl Behavior ===

impl Behavior {
    /// Merges the sources: the first one that sets a field wins.
    fn of(layers: &[Layer]) -> Behavior {
        fn first<T>(layers: &[Layer], of: impl Fn(&Layer) -> Option<T>) -> Option<T> {
            layers.iter().find_map(of)
        }
        let exit_code = first(layers, |one| one.exit_code);
        let ends = match first(layers, Layer::way) {
            None | Some(Way::GoesOn) => None,
            Some(Way::Fails(after)) => Some(End { after, exit_code: exit_code.map_or(1, i32::from) }),
            Some(Way::Succeeds(after)) => Some(End { after, exit_code: 0 }),
        };
        Behavior {
            pull_delay: first(layers, |one| one.pull_delay),
            ready_delay: first(layers, |one| one.ready_delay),
            is_never_ready: first(layers, |one| one.never_ready).unwrap_or_default(),
            ends,
            liveness_fails_after: first(layers, |one| one.liveness_fails_after),
            stop_delay: first(layers, |one| one.stop_delay),
            is_image_missing: first(layers, |one| one.image_missing).unwrap_or_default(),
            cpu_usage: first(layers, |one| one.cpu_usage),
            memory_usage: first(layers, |one| one.memory_usage),
        }
    }
}

/// The valid values of annotations, for messages.
const DURATION: &str = "a duration such as 500ms or 1m30s, or a range such as 1s..3s";
const EXIT_CODE: &str = "a number from 0 to 255";
const FLAG: &str = "true or false";
const USAGE: &str = "a quantity of at least 0, such as 250m or 64Mi";

// === impl Layer ===

impl Layer {
    /// The behavior in the annotations of a Pod, and a message for each annotation that cannot be read.
    pub(crate) fn of(pod: &Pod) -> (Layer, Vec<String>) {
        let mut layer = Layer::default();
        let mut faults = Vec::new();
        let given = pod.metadata.annotations.iter().flatten();
        for (key, value) in given.filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value.trim()))) {
            let (is_read, wanted) = match key {
                "delay" => (set(&mut layer.pull_delay, Range::parse(value)), DURATION),
                "ready-delay" => (set(&mut layer.ready_delay, Range::parse(value)), DURATION),
                "never-ready" => (set(&mut layer.never_ready, flag(value)), FLAG),
                "succeed-after" => (set(&mut layer.succeed_after, Range::parse(value)), DURATION),
                "fail-after" => (set(&mut layer.fail_after, Range::parse(value)), DURATION),
                "exit-code" => (set(&mut layer.exit_code, value.parse().ok()), EXIT_CODE),
                "crash-loop" => (set(&mut layer.crash_loop, flag(value)), FLAG),
                "liveness-fails-after" => (set(&mut layer.liveness_fails_after, Range::parse(value)), DURATION),
                "stop-delay" => (set(&mut layer.stop_delay, Range::parse(value)), DURATION),
                "image-missing" => (set(&mut layer.image_missing, flag(value)), FLAG),
                "cpu-usage" => (set(&mut layer.cpu_usage, resources::parse("cpu", value)), USAGE),
                "memory-usage" => (set(&mut layer.memory_usage, resources::parse("memory", value)), USAGE),
                _ => {
                    faults.push(format!("there is no annotation {PREFIX}{key}, so that {value:?} says nothing"));
                    continue;
                }
            };
            if !is_read {
                faults.push(format!("the annotation {PREFIX}{key} cannot be used: {value:?}: want {wanted}"));
            }
        }
        (layer, faults)
    }

    /// How this source makes the container end. A crash takes precedence over a failure, and a failure over success.
    fn way(&self) -> Option<Way> {
        match (self.crash_loop, self.fail_after, self.succeed_after) {
            (Some(true), ..) => Some(Way::Fails(Range::default())),
            (_, Some(after), _) => Some(Way::Fails(after)),
            (_, None, Some(after)) => Some(Way::Succeeds(after)),
            (Some(false), None, None) => Some(Way::GoesOn),
            (None, None, None) => None,
        }
    }
}

/// Stores a value that was read. Returns `false` if there is none.
fn set<T>(field: &mut Option<T>, read: Option<T>) -> bool {
    *field = read;
    field.is_some()
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
    pub(crate) fn parse(text: &str) -> Option<Range> {
        let (least, most) = match text.split_once("..") {
            Some((least, most)) => (parse_unsigned(least.trim())?, parse_unsigned(most.trim())?),
            None => {
                let exact = parse_unsigned(text)?;
                (exact, exact)
            }
        };
        (least <= most).then_some(Range { least, most })
    }

    /// A duration from the range, the same for the same `seed`.
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

    /// The layer of these annotations.
    fn layer(annotations: &[(&str, &str)]) -> Layer {
        let annotations = annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()));
        let metadata = ObjectMeta { annotations: Some(annotations.collect()), ..ObjectMeta::default() };
        let (layer, faults) = Layer::of(&Pod { metadata, ..Pod::default() });
        assert_eq!(faults, Vec::<String>::new());
        layer
    }

    /// A Stage with the same behavior as these annotations.
    fn stage(annotations: &[(&str, &str)]) -> Layers {
        Layers { general: layer(annotations), containers: BTreeMap::new() }
    }

    fn ends(annotations: &[(&str, &str)], stages: &[&Layers]) -> Option<(u64, i32)> {
        let behaviors = Behaviors::of(&layer(annotations), stages);
        behaviors.container("c").ends.map(|end| (end.after.least.as_secs(), end.exit_code))
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
        let ends = |annotations: &[(&str, &str)]| ends(annotations, &[]);
        assert_eq!(ends(&[]), None);
        assert_eq!(ends(&[("succeed-after", "5s")]), Some((5, 0)));
        assert_eq!(ends(&[("succeed-after", "5s"), ("fail-after", "9s"), ("exit-code", "3")]), Some((9, 3)));
        assert_eq!(ends(&[("fail-after", "9s"), ("crash-loop", "true")]), Some((0, 1)));
    }

    #[test]
    fn what_cannot_be_read_is_said_and_left_out() {
        let annotations =
            [("delay", "soon"), ("exit-code", "256"), ("sing", "true"), ("cpu-usage", "-1"), ("memory-usage", "")];
        let annotations = annotations.map(|(key, value)| (format!("{PREFIX}{key}"), value.to_owned()));
        let metadata = ObjectMeta { annotations: Some(annotations.into()), ..ObjectMeta::default() };
        let (layer, faults) = Layer::of(&Pod { metadata, ..Pod::default() });
        assert_eq!(layer, Layer::default());
        assert_eq!(faults.len(), 5, "{faults:?}");
    }

    #[test]
    fn annotations_count_before_stages_and_earlier_stages_before_later_ones() {
        let (crashes, fails) = (stage(&[("crash-loop", "true"), ("exit-code", "3")]), stage(&[("fail-after", "9s")]));
        for (annotations, stages, want) in [
            (&[][..], &[&crashes, &fails][..], Some((0, 3))),
            // The duration comes from the first Stage; the exit code comes from the only one that sets it.
            (&[], &[&fails, &crashes], Some((9, 3))),
            (&[("fail-after", "7s")], &[&crashes], Some((7, 3))),
            (&[("succeed-after", "7s")], &[&crashes], Some((7, 0))),
            (&[("exit-code", "5")], &[&crashes], Some((0, 5))),
            (&[("crash-loop", "false")], &[&crashes], None),
        ] {
            assert_eq!(ends(annotations, stages), want, "{annotations:?} {stages:?}");
        }
        let never = stage(&[("never-ready", "true"), ("cpu-usage", "1")]);
        let behaviors = Behaviors::of(&layer(&[("never-ready", "false")]), &[&never]);
        assert!(!behaviors.container("c").is_never_ready);
        assert_eq!(behaviors.container("c").cpu_usage, Some(1000));
    }

    #[test]
    fn what_a_stage_says_of_one_container_counts_before_what_it_says_of_all() {
        let own = |name: &str, annotations: &[(&str, &str)]| BTreeMap::from([(name.to_owned(), layer(annotations))]);
        let first = Layers { general: layer(&[("ready-delay", "1s")]), containers: own("a", &[("ready-delay", "2s")]) };
        let second =
            Layers { general: Layer::default(), containers: own("b", &[("ready-delay", "3s"), ("cpu-usage", "2")]) };
        let behaviors = Behaviors::of(&Layer::default(), &[&first, &second]);
        let of = |name: &str| {
            let behavior = behaviors.container(name);
            (behavior.ready_delay.map(|range| range.least.as_secs()), behavior.cpu_usage)
        };
        assert_eq!(of("a"), (Some(2), None));
        assert_eq!(of("b"), (Some(1), Some(2000)), "an earlier Stage counts first");
        assert_eq!(of("c"), (Some(1), None));
    }
}
