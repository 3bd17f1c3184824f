//! Control planes whose clock follows tokio's: under `start_paused`, an hour passes at once when no task can run.

use jiff::{SignedDuration, Timestamp};
use std::cell::Cell;
use std::time::Duration;
use steersman_testkit::{ControlPlane, Loops, Options};
use tokio::time::Instant;

/// The time at which a test begins: half a minute past midnight, a Sunday.
pub(crate) const BEGIN: &str = "2026-03-01T00:00:30Z";

thread_local! {
    // Tests with a paused clock have a thread of their own.
    static BEGUN: Cell<Option<Instant>> = const { Cell::new(None) };
}

fn now() -> Timestamp {
    let begin: Timestamp = BEGIN.parse().unwrap();
    let elapsed = BEGUN.get().map(|begun| begun.elapsed()).unwrap_or_default();
    begin + SignedDuration::try_from(elapsed).unwrap()
}

/// A control plane that starts at [`BEGIN`], with a timeout of a day.
pub(crate) async fn plane(loops: Loops) -> ControlPlane {
    BEGUN.set(Some(Instant::now()));
    let options = Options { clock: now, loops, patience: Duration::from_secs(86_400), ..Options::default() };
    ControlPlane::try_start(options).await.unwrap()
}
