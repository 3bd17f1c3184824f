//! Lines of a log that quote a refusal, as `steersman explain-denied` reads them: what was found is found again in its own words.

// The binary is no library: its reader, which needs nothing else of it, is compiled here once more.
#[expect(dead_code, reason = "only the parser is fuzzed")]
#[path = "../../../crates/steersman-cli/src/commands/development/explain_denied/denial.rs"]
mod denial;

use denial::{Denial, What};
use serde_json::json;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for line in text.lines() {
        let Some(denial) = Denial::find(line) else { continue };
        let words = words(&denial);
        assert_eq!(Denial::find(&words).as_ref(), Some(&denial), "{line:?} as {words:?}");
        let entry = json!({"level": "info", "denied": words}).to_string();
        assert_eq!(Denial::find(&entry), Some(denial), "{line:?} in a log");
    }
}

/// The refusal as the server words it.
fn words(denial: &Denial) -> String {
    let Denial { user, verb, what } = denial;
    let user = quoted(user);
    match what {
        What::Path(path) => format!("forbidden: User {user} cannot {verb} path {}", quoted(path)),
        What::Resource { group, resource, namespace, name } => {
            let subject = name.as_ref().map_or(String::new(), |name| format!("things \"{name}\" is "));
            let place = match namespace {
                Some(namespace) => format!("in the namespace {}", quoted(namespace)),
                None => "at the cluster scope".to_owned(),
            };
            let (resource, group) = (quoted(resource), quoted(group));
            format!("{subject}forbidden: User {user} cannot {verb} resource {resource} in API group {group} {place}")
        }
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
