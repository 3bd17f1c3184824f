//! The liveness and readiness of a process of controllers, and the port that serves them.
//!
//! Two lists of named checks, as Kubernetes' own components have them: `/healthz` (restart me if it fails) and `/readyz`
//! (send me work only if it succeeds). A check looks at state and returns; it does no IO. `endpoints` serves them.

mod endpoints;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::RwLock;

#[cfg(feature = "webhook")]
pub(crate) use crate::control::health::endpoints::answer;
pub use crate::control::health::endpoints::{BindError, Endpoints};

/// The checks of a process. Clones share them. A list without checks passes.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<RwLock<Checks>>,
}

#[derive(Default)]
struct Checks {
    live: Vec<Check>,
    ready: Vec<Check>,
}

/// One of the two lists.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Probe {
    Live,
    Ready,
}

#[derive(Clone)]
struct Check {
    name: String,
    run: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

/// The result of one check.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) result: Result<(), String>,
}

// === impl Health ===

impl Health {
    /// A list without checks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check to `/healthz`, or replaces the one of this name. It must fail when the process should be restarted.
    /// A check that panics fails.
    pub fn live<E: fmt::Display>(&self, name: &str, check: impl Fn() -> Result<(), E> + Send + Sync + 'static) {
        self.set(Probe::Live, name, check);
    }

    /// Adds a check to `/readyz`, or replaces the one of this name. It must fail while the process should get no work.
    /// A check that panics fails.
    pub fn ready<E: fmt::Display>(&self, name: &str, check: impl Fn() -> Result<(), E> + Send + Sync + 'static) {
        self.set(Probe::Ready, name, check);
    }

    /// Whether all checks of `/healthz` pass.
    pub fn is_live(&self) -> bool {
        self.run(Probe::Live, &[]).iter().all(|outcome| outcome.result.is_ok())
    }

    /// Whether all checks of `/readyz` pass.
    pub fn is_ready(&self) -> bool {
        self.run(Probe::Ready, &[]).iter().all(|outcome| outcome.result.is_ok())
    }

    fn set<E: fmt::Display>(
        &self,
        probe: Probe,
        name: &str,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) {
        let run = Arc::new(move || {
            let checked = catch_unwind(AssertUnwindSafe(|| check().map_err(|error| error.to_string())));
            checked.unwrap_or_else(|_| Err("the check panicked".to_owned()))
        });
        let check = Check { name: name.to_owned(), run };
        let mut checks = self.checks.write();
        let checks = checks.of_mut(probe);
        checks.retain(|known| known.name != name);
        checks.push(check);
    }

    /// Runs the checks of `probe` whose names are not `excluded`, in the order in which they were added.
    pub(crate) fn run(&self, probe: Probe, excluded: &[String]) -> Vec<Outcome> {
        let outcome = |check: Check| Outcome { result: (check.run)(), name: check.name };
        self.list(probe).into_iter().filter(|check| !excluded.contains(&check.name)).map(outcome).collect()
    }

    /// Runs one check; `None` if no check has this name.
    pub(crate) fn run_one(&self, probe: Probe, name: &str) -> Option<Result<(), String>> {
        self.list(probe).into_iter().find(|check| check.name == name).map(|check| (check.run)())
    }

    pub(crate) fn has(&self, probe: Probe, name: &str) -> bool {
        self.list(probe).iter().any(|check| check.name == name)
    }

    /// Returns a copy, so that a check may add checks.
    fn list(&self, probe: Probe) -> Vec<Check> {
        let checks = self.checks.read();
        match probe {
            Probe::Live => checks.live.clone(),
            Probe::Ready => checks.ready.clone(),
        }
    }
}

impl Checks {
    fn of_mut(&mut self, probe: Probe) -> &mut Vec<Check> {
        match probe {
            Probe::Live => &mut self.live,
            Probe::Ready => &mut self.ready,
        }
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |probe| self.list(probe).into_iter().map(|check| check.name).collect::<Vec<_>>();
        f.debug_struct("Health").field("live", &names(Probe::Live)).field("ready", &names(Probe::Ready)).finish()
    }
}
