//! A refusal by authorization, read from its text:
//!
//! ```text
//! pods "p" is forbidden: User "u" cannot get resource "pods/log" in API group "" in the namespace "n"
//! forbidden: User "u" cannot get path "/metrics"
//! ```

use serde_json::Value;

/// A refused request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Denial {
    pub(super) user: String,
    pub(super) verb: String,
    pub(super) what: What,
}

/// The subject of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum What {
    Path(String),
    Resource {
        group: String,
        /// The resource with its subresource, such as `pods/log`.
        resource: String,
        namespace: Option<String>,
        name: Option<String>,
    },
}

impl Denial {
    /// Finds a refusal in a line of the access log, or in a line of other text.
    pub(super) fn find(line: &str) -> Option<Denial> {
        let line = line.trim();
        match serde_json::from_str(line) {
            Ok(Value::Object(entry)) => Denial::read(entry.get("denied").or_else(|| entry.get("message"))?.as_str()?),
            Ok(_) | Err(_) => Denial::read(line),
        }
    }

    /// The refusal of the same request for whatever object.
    pub(super) fn without_name(mut self) -> Denial {
        if let What::Resource { name, .. } = &mut self.what {
            *name = None;
        }
        self
    }

    fn read(text: &str) -> Option<Denial> {
        let at = text.find("User \"")?;
        let (before, rest) = text.split_at(at);
        let (user, rest) = quoted(rest.strip_prefix("User ")?)?;
        let rest = rest.strip_prefix(" cannot ")?;
        let (verb, rest) = rest.split_once(' ')?;
        let verb = verb.to_owned();
        if let Some(rest) = rest.strip_prefix("path ") {
            let (path, _) = quoted(rest)?;
            return Some(Denial { user, verb, what: What::Path(path) });
        }
        let (resource, rest) = quoted(rest.strip_prefix("resource ")?)?;
        let (group, rest) = quoted(rest.strip_prefix(" in API group ")?)?;
        let namespace = match rest.strip_prefix(" in the namespace ") {
            Some(rest) => Some(quoted(rest)?.0),
            None => {
                rest.strip_prefix(" at the cluster scope")?;
                None
            }
        };
        let name = name_before(before);
        Some(Denial { user, verb, what: What::Resource { group, resource, namespace, name } })
    }
}

/// The name in `pods "p" is forbidden: `.
fn name_before(text: &str) -> Option<String> {
    let text = text.strip_suffix(" is forbidden: ")?;
    let inner = text.strip_suffix('"')?;
    // Names of objects contain no quotes.
    let (_, name) = inner.rsplit_once('"')?;
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// A text in quotes, and the rest after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut chars = text.strip_prefix('"')?.char_indices();
    let mut inner = String::new();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return text.get(at + 2..).map(|rest| (inner, rest)),
            '\\' => inner.push(chars.next()?.1),
            _ => inner.push(char),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, want: Option<&str>) {
        let denial = Denial::find(line).map(|Denial { user, verb, what }| match what {
            What::Path(path) => format!("{user} {verb} {path}"),
            What::Resource { group, resource, namespace, name } => {
                let text = |option: Option<String>| option.unwrap_or_else(|| "-".to_owned());
                format!("{user} {verb} {group}/{resource} {} {}", text(namespace), text(name))
            }
        });
        assert_eq!(denial.as_deref(), want);
    }

    #[test]
    fn a_refusal_is_found_in_the_log_and_in_what_people_paste() {
        let text = r#"pods "p" is forbidden: User "alice" cannot get resource "pods/log" in API group "" in the namespace "n""#;
        check(text, Some("alice get /pods/log n p"));
        check(
            &format!("Error from server (Forbidden): {text}: RBAC: role.x \"r\" not found"),
            Some("alice get /pods/log n p"),
        );
        let line = serde_json::json!({"time": "t", "status": 403, "denied": text}).to_string();
        check(&line, Some("alice get /pods/log n p"));
        let status = serde_json::json!({"kind": "Status", "code": 403, "message": text}).to_string();
        check(&status, Some("alice get /pods/log n p"));
        check(
            r#"deployments.apps is forbidden: User "system:serviceaccount:a:b" cannot list resource "deployments" in API group "apps" at the cluster scope"#,
            Some("system:serviceaccount:a:b list apps/deployments - -"),
        );
        check(r#"forbidden: User "a\"b" cannot get path "/metrics""#, Some("a\"b get /metrics"));
    }

    #[test]
    fn other_lines_and_other_refusals_are_left_alone() {
        check("", None);
        check(r#"{"time": "t", "status": 403}"#, None);
        check(r#"pods "p" is forbidden: exceeded quota: q"#, None);
        check(
            r#"roles "r" is forbidden: user "u" (groups=[]) is attempting to grant RBAC permissions not currently held:"#,
            None,
        );
        check(r#"pods is forbidden: User "alice" cannot"#, None);
        check(r#"User "alice"#, None);
    }
}
