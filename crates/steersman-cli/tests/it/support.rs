//! Helpers of the end-to-end tests: processes, the tools that they use, waits with a deadline.

pub(crate) mod curl;
pub(crate) mod kubectl;
pub(crate) mod neutron;
pub(crate) mod plane;
pub(crate) mod process;
pub(crate) mod proxy;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

/// The time limit of every wait; a debug build beside other tests on a busy machine is slow, and no test waits longer
/// than necessary.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two attempts of [`eventually`].
const PAUSE: Duration = Duration::from_millis(50);

/// The root of the workspace, with the manifests.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Repeats a question until it has an answer, where no notification exists.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}: not within {} s", PATIENCE.as_secs());
        std::thread::park_timeout(PAUSE);
    }
}

/// Reports a real component that this machine does not have; in continuous integration this is a failure.
pub(crate) fn missing(what: &str) {
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "0" && value != "false");
    assert!(!ci, "{what} is missing, and CI is set");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let words = format!("!!! SKIPPED {test}: {what} is missing (cargo xtask test sets it up)\n");
    // Not `eprintln!`, whose output is hidden if the test passes; in one write, because tests run concurrently.
    std::io::stderr().write_all(words.as_bytes()).unwrap();
}

/// The path of a program on PATH.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|candidate| candidate.is_file())
}
