//! `/healthz`, `/livez` and `/readyz`: whether the server is alive, and whether it accepts requests.
//!
//! Damaged stored entries do not fail a check, since everything else is served and no restart would help. They are
//! listed beside `storage-integrity`: by resource and revision, not by name, because the check is public.

use crate::http::answer::Answer;
use crate::shared::request::query::Query;
use crate::state::State;
use std::fmt::Write as _;
use steersman_storage::Unreadable;

/// A single health check.
struct Check {
    name: &'static str,
    is_well: fn(&State) -> bool,
    /// A remark beside a successful check.
    note: fn(&State) -> Option<String>,
}

const PING: Check = Check { name: "ping", is_well: |_| true, note: |_| None };
const STORE: Check = Check { name: "store", is_well: |state| state.store.health().is_ok(), note: |_| None };
/// A store that is away for a while takes no requests, and a restart of the server does not bring it back.
const READY_STORE: Check = Check { is_well: |state| state.store.readiness().is_ok(), ..STORE };
/// As upstream, it is there when there are such services, or may be after a change of the configuration. Not among the checks of `/livez`: a restart does not bring a key management service
/// back, and what is decrypted already would be gone.
const KEY_SERVICES: Check = Check { name: "kms-providers", is_well: are_well, note: |_| None };
const INTEGRITY: Check = Check { name: "storage-integrity", is_well: |_| true, note: damage };
const SHUTDOWN: Check = Check { name: "shutdown", is_well: |state| !state.is_withdrawn(), note: |_| None };

/// The most damaged entries that are listed.
const NAMED_MAX: usize = 20;

/// Answers a request for one of the roots, or for a single check of it.
pub(crate) fn answer(state: &State, root: &str, check: &[&str], query: &Query) -> Answer {
    let has_key_services = state.metrics.encryption().is_some_and(|encryption| encryption.health().is_some());
    let checks: &[Check] = match root {
        "readyz" if has_key_services => &[PING, READY_STORE, KEY_SERVICES, INTEGRITY, SHUTDOWN],
        "readyz" => &[PING, READY_STORE, INTEGRITY, SHUTDOWN],
        "healthz" if has_key_services => &[PING, STORE, KEY_SERVICES],
        _ => &[PING, STORE],
    };
    match check {
        [] => all(state, root, checks, query),
        [name] => match checks.iter().find(|check| check.name == *name) {
            Some(check) if (check.is_well)(state) => ok(),
            Some(check) => {
                Answer::text(500, format!("internal server error: {} failed: see the server's log\n", check.name))
            }
            None => Answer::no_such_page(),
        },
        _ => Answer::no_such_page(),
    }
}

fn all(state: &State, root: &str, checks: &[Check], query: &Query) -> Answer {
    let excluded: Vec<&str> = query.all("exclude").collect();
    let (mut text, mut is_well) = (String::new(), true);
    for Check { name, is_well: holds, note } in checks {
        let line = if excluded.contains(name) {
            format!("[+]{name} excluded: ok\n")
        } else if holds(state) {
            let note = note(state).map(|note| format!(": {note}")).unwrap_or_default();
            format!("[+]{name} ok{note}\n")
        } else {
            is_well = false;
            format!("[-]{name} failed: reason withheld\n")
        };
        text.push_str(&line);
    }
    for unknown in excluded.iter().filter(|name| checks.iter().all(|check| check.name != **name)) {
        let _ = writeln!(text, "warn: some health checks cannot be excluded: no matches for {unknown:?}");
    }
    if !is_well {
        let _ = writeln!(text, "{root} check failed");
        return Answer::text(500, text);
    }
    if query.first("verbose").is_none() {
        return ok();
    }
    let _ = writeln!(text, "{root} check passed");
    Answer::text(200, text)
}

/// Whether the key management services are well.
fn are_well(state: &State) -> bool {
    match state.metrics.encryption().and_then(|encryption| encryption.health()) {
        Some(Err(fault)) => {
            tracing::warn!("the check kms-providers fails: {fault}");
            false
        }
        Some(Ok(())) | None => true,
    }
}

/// The stored entries that cannot be read.
fn damage(state: &State) -> Option<String> {
    let unreadable = state.store.unreadable();
    let named = unreadable.iter().take(NAMED_MAX).map(|Unreadable { object, revision }| match object {
        Some((resource, _)) => format!("{resource} at revision {revision}"),
        None => format!("an unknown resource at revision {revision}"),
    });
    let named: Vec<String> = named.collect();
    let more = unreadable.len() - named.len();
    let others = if 0 < more { format!(", and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| {
        format!(
            "{} damaged entries, which the log and `steersman store check` name: {}{others}",
            unreadable.len(),
            named.join(", ")
        )
    })
}

fn ok() -> Answer {
    Answer::text(200, "ok")
}
