//! `/healthz`, `/livez` and `/readyz`: whether the server lives, and whether it takes requests.

use crate::answer::Answer;
use crate::query::Query;
use crate::state::State;
use std::fmt::Write as _;

/// One thing that must be well.
struct Check {
    name: &'static str,
    is_well: fn(&State) -> bool,
}

const PING: Check = Check { name: "ping", is_well: |_| true };
const STORE: Check = Check { name: "store", is_well: |state| state.store.health().is_ok() };
const SHUTDOWN: Check = Check { name: "shutdown", is_well: |state| !state.is_withdrawn() };

/// Answers for one of the roots, or for a single check of it.
pub(crate) fn answer(state: &State, root: &str, check: &[&str], query: &Query) -> Answer {
    let checks: &[Check] = if root == "readyz" { &[PING, STORE, SHUTDOWN] } else { &[PING, STORE] };
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
    for Check { name, is_well: holds } in checks {
        let line = if excluded.contains(name) {
            format!("[+]{name} excluded: ok\n")
        } else if holds(state) {
            format!("[+]{name} ok\n")
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

fn ok() -> Answer {
    Answer::text(200, "ok")
}
