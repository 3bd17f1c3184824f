//! The state of one container of a simulated Pod, and when it changes next.

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use std::time::Duration;
use tokio::time::Instant;

/// The first and the longest back-off of a container that keeps ending, and of an image that cannot be pulled.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// After this time without a restart the back-off starts over.
const BACK_OFF_RESET: Duration = Duration::from_secs(600);
/// A time further away than any timer needs.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The list of a Pod's spec that a container is in, and how it is treated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// Runs to completion before the next container starts.
    Init,
    /// An init container that keeps running.
    Sidecar,
    Main,
}

/// The state of a container.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) phase: Phase,
    pub(crate) restarts: i32,
    /// The previous termination.
    pub(crate) last: Option<Exit>,
    back_off: BackOff,
    pull_back_off: Duration,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// Waits for its turn.
    Waiting,
    Pulling {
        began: Instant,
        until: Instant,
    },
    /// The image could not be pulled just now.
    PullFailed {
        until: Instant,
    },
    /// The pull failed, and is not tried again before this time.
    PullBackOff {
        until: Instant,
    },
    /// A ConfigMap, a Secret or a key that it refers to does not exist.
    Misconfigured {
        message: String,
        until: Instant,
    },
    Running(Run),
    /// It has terminated, as `last` says, and will restart.
    BackOff {
        wait: Duration,
        until: Instant,
    },
    Exited(Exit),
}

/// A running container.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Run {
    pub(crate) at: Timestamp,
    /// The duration for which it had been running at a moment. The times of its plan are counted from there.
    pub(crate) since: (Instant, Duration),
    /// When its startup probe succeeds.
    pub(crate) is_started_at: Instant,
    /// When its readiness probe succeeds.
    pub(crate) is_ready_at: Option<Instant>,
    pub(crate) ends: Option<(Instant, Cause)>,
}

/// Why a container ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cause {
    /// It exits by itself.
    Exit(i32),
    Liveness,
    /// It restarts with other resources.
    Resize,
}

/// The termination of a container.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Exit {
    pub(crate) code: i32,
    /// When the run began; `None` if the container never ran.
    pub(crate) began: Option<Timestamp>,
    pub(crate) ended: Option<Timestamp>,
    pub(crate) reason: String,
    pub(crate) message: Option<String>,
    pub(crate) id: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct BackOff {
    wait: Duration,
    updated: Option<Instant>,
}

// === impl Role ===

impl Role {
    pub(crate) fn is_restartable_init(container: &core::Container) -> bool {
        container.restart_policy.as_deref() == Some("Always")
    }
}

/// The containers of a Pod with their roles, in the order in which their states are kept.
pub(crate) fn all(pod: &core::Pod) -> impl Iterator<Item = (&core::Container, Role)> {
    let spec = pod.spec.as_ref();
    let init =
        spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default().iter().map(|container| {
            (container, if Role::is_restartable_init(container) { Role::Sidecar } else { Role::Init })
        });
    init.chain(spec.map(|spec| spec.containers.as_slice()).unwrap_or_default().iter().map(|one| (one, Role::Main)))
}

/// Whether a container that exited with this code restarts.
pub(crate) fn restarts(pod: &core::Pod, container: &core::Container, role: Role, code: i32) -> bool {
    if role == Role::Init && code == 0 {
        return false;
    }
    for rule in container.restart_policy_rules.iter().flatten() {
        let Some(codes) = &rule.exit_codes else { continue };
        let is_among = codes.values.iter().flatten().any(|one| *one == code);
        let matches = match codes.operator.as_str() {
            "In" => is_among,
            "NotIn" => !is_among,
            _ => false,
        };
        if matches && matches!(rule.action.as_str(), "Restart" | "RestartAllContainers") {
            return true;
        }
    }
    let own = container.restart_policy.as_deref();
    match own.or_else(|| pod.spec.as_ref()?.restart_policy.as_deref()).unwrap_or("Always") {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    }
}

/// `now` plus a duration, which may be of any length.
pub(crate) fn after(now: Instant, wait: Duration) -> Instant {
    now + wait.min(FAR)
}

// === impl Container ===

impl Container {
    pub(crate) fn new() -> Container {
        Container {
            phase: Phase::Waiting,
            restarts: 0,
            last: None,
            back_off: BackOff::default(),
            pull_back_off: Duration::ZERO,
        }
    }

    /// When it changes by itself next.
    pub(crate) fn wakes(&self, now: Instant) -> Option<Instant> {
        match &self.phase {
            Phase::Waiting | Phase::Exited(_) => None,
            Phase::Pulling { until, .. }
            | Phase::PullFailed { until }
            | Phase::PullBackOff { until }
            | Phase::Misconfigured { until, .. }
            | Phase::BackOff { until, .. } => Some(*until),
            Phase::Running(run) => {
                let probes = [Some(run.is_started_at), run.is_ready_at].into_iter().flatten().filter(|at| *at > now);
                probes.chain(run.ends.map(|(at, _)| at)).min()
            }
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }

    pub(crate) fn is_started(&self, now: Instant) -> bool {
        matches!(&self.phase, Phase::Running(run) if run.is_started_at <= now)
    }

    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        matches!(&self.phase, Phase::Running(run) if run.is_started_at <= now && run.is_ready_at.is_some_and(|at| at <= now))
    }

    pub(crate) fn has_succeeded(&self) -> bool {
        matches!(&self.phase, Phase::Exited(exit) if exit.code == 0)
    }

    /// Whether it runs or has run before.
    pub(crate) fn has_run(&self) -> bool {
        self.last.is_some() || matches!(self.phase, Phase::Running(_) | Phase::Exited(_))
    }

    /// The back-off before its next restart; `None` if it restarts at once.
    pub(crate) fn back_off(&self, now: Instant) -> Option<Duration> {
        let updated = self.back_off.updated?;
        (now.saturating_duration_since(updated) <= BACK_OFF_RESET).then_some(self.back_off.wait)
    }

    /// Counts a restart: the next back-off is longer.
    pub(crate) fn begin_again(&mut self, now: Instant) {
        let wait = match self.back_off(now) {
            Some(wait) => wait.saturating_mul(2).min(BACK_OFF.1),
            None => BACK_OFF.0,
        };
        self.back_off = BackOff { wait, updated: Some(now) };
        self.restarts = self.restarts.saturating_add(1);
    }

    /// The back-off before the image is pulled again, longer each time.
    pub(crate) fn next_pull(&mut self) -> Duration {
        self.pull_back_off = match self.pull_back_off {
            Duration::ZERO => BACK_OFF.0,
            wait => wait.saturating_mul(2).min(BACK_OFF.1),
        };
        self.pull_back_off
    }
}
