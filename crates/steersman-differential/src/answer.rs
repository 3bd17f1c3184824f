//! Answers without what must differ between two servers: times, uids, versions, and what is allocated.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::server::{Reply, Request};

/// The beginning of times that a server of today writes: objects of the seeds are older.
const THIS_CENTURY: &str = "20";
const YEAR_OF_SEEDS: &str = "2024-";
/// The beginnings of addresses that Services are given: of the servers' own range, and of the ServiceCIDR in the seeds.
const SERVICE_RANGES: [&str; 2] = ["10.96.", "10.200."];

/// The parts of an answer that are compared.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) reason: String,
    /// The fields that are blamed, in order, without repetitions.
    pub(crate) blamed: Vec<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Value,
    pub(crate) message: String,
}

// === impl Answer ===

impl Answer {
    /// `uid` is that of the object which the request is about.
    pub(crate) fn new(reply: Reply, request: &Request, uid: &str) -> Answer {
        let Reply { status, mut warnings, mut body } = reply;
        let is_refused = status >= 400;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (reason, message) = match is_refused {
            true => (text(&body["reason"]), text(&body["message"])),
            false => Default::default(),
        };
        let causes = body["details"]["causes"].as_array().filter(|_| is_refused);
        let mut blamed: Vec<String> = causes.into_iter().flatten().map(|cause| text(&cause["field"])).collect();
        blamed.sort();
        blamed.dedup();
        warnings.sort();
        clean(&mut body, request, uid);
        Answer { status, reason, blamed, warnings, body, message }
    }

    pub(crate) fn is_accepted(&self) -> bool {
        self.status < 400
    }
}

/// Whether a text is a time that a server has written.
pub(crate) fn is_new_time(text: &str) -> bool {
    let is_time = text.len() >= 20 && text.starts_with(THIS_CENTURY) && text.as_bytes()[10] == b'T';
    is_time && !text.starts_with(YEAR_OF_SEEDS)
}

/// Whether a value has a time that a server has written.
pub(crate) fn has_new_time(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_new_time),
        Value::Object(fields) => fields.values().any(has_new_time),
        Value::String(text) => is_new_time(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn clean(value: &mut Value, request: &Request, uid: &str) {
    match value {
        Value::Object(fields) => {
            let is_generated = fields.contains_key("generateName");
            if is_generated || fields.contains_key("creationTimestamp") || fields.contains_key("resourceVersion") {
                for name in ["uid", "resourceVersion", "creationTimestamp", "selfLink", "continue"] {
                    fields.remove(name);
                }
            }
            if is_generated {
                fields.remove("name");
            }
            if let Some(entries) = fields.get_mut("managedFields").and_then(Value::as_array_mut) {
                for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
                    entry.remove("time");
                }
            }
            // Their texts are each project's own.
            for column in fields.get_mut("columnDefinitions").and_then(Value::as_array_mut).into_iter().flatten() {
                column.as_object_mut().map(|column| column.remove("description"));
            }
            for cell in fields.get_mut("cells").and_then(Value::as_array_mut).into_iter().flatten() {
                clean_cell(cell, request);
            }
            for name in ["nodePort", "healthCheckNodePort"] {
                if let Some(port) = fields.get_mut(name).filter(|port| !request.body.contains(&port.to_string())) {
                    *port = Value::from("<allocated>");
                }
            }
            for value in fields.values_mut() {
                clean(value, request, uid);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| clean(item, request, uid)),
        Value::String(text) => {
            if !uid.is_empty() && text.contains(uid) {
                *text = text.replace(uid, "<uid>");
            }
            if is_new_time(text) && !request.body.contains(text.as_str()) {
                *text = "<now>".to_owned();
            } else if SERVICE_RANGES.iter().any(|range| text.starts_with(range))
                && !request.body.contains(text.as_str())
            {
                *text = "<allocated>".to_owned();
            } else {
                hide_uids(text, request);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Hides the age of an object, and the ports of nodes that a Service was given.
fn clean_cell(cell: &mut Value, request: &Request) {
    let Some(text) = cell.as_str() else { return };
    if is_age(text) {
        *cell = Value::from("<age>");
    } else if text.contains('/') && text.contains(':') {
        // 80:30080/TCP,443:30443/TCP
        let hidden = |port: &str| {
            let (number, rest) = port.split_once(':')?;
            let (node_port, protocol) = rest.split_once('/')?;
            let is_drawn = node_port.parse::<u16>().is_ok() && !request.body.contains(node_port);
            is_drawn.then(|| format!("{number}:<allocated>/{protocol}"))
        };
        let ports = text.split(',').map(|port| hidden(port).unwrap_or_else(|| port.to_owned()));
        *cell = ports.collect::<Vec<String>>().join(",").into();
    }
}

/// Whether a text is a duration as tables show it, such as 5s or 3m10s.
fn is_age(text: &str) -> bool {
    let mut units = text.split(|letter: char| letter.is_ascii_digit()).filter(|unit| !unit.is_empty());
    text.starts_with(|letter: char| letter.is_ascii_digit())
        && !text.ends_with(|letter: char| letter.is_ascii_digit())
        && units.all(|unit| matches!(unit, "s" | "m" | "h" | "d" | "y"))
}

/// Replaces the uids in a text that the client has not sent.
fn hide_uids(text: &mut String, request: &Request) {
    const LENGTH: usize = 36;
    let mut from = 0;
    while let Some(part) = text.get(from..from + LENGTH) {
        if is_uid(part) && !request.body.contains(part) {
            text.replace_range(from..from + LENGTH, "<uid>");
        }
        from += 1;
        while from < text.len() && !text.is_char_boundary(from) {
            from += 1;
        }
    }
}

fn is_uid(text: &str) -> bool {
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    text.bytes().enumerate().all(|(at, byte)| if is_dash(at) { byte == b'-' } else { byte.is_ascii_hexdigit() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_the_client_has_not_sent_are_hidden() {
        let sent = Request { body: r#"{"clusterIP": "10.200.0.9"}"#.to_owned(), ..Request::read("/") };
        let mut addresses = serde_json::json!(["10.96.0.7", "10.200.0.1", "10.200.0.9", "10.0.0.1"]);
        clean(&mut addresses, &sent, "");
        assert_eq!(addresses, serde_json::json!(["<allocated>", "<allocated>", "10.200.0.9", "10.0.0.1"]));
    }

    #[test]
    fn ages_and_ports_of_nodes_are_hidden_in_cells() {
        let sent = Request { body: r#"{"nodePort": 30443}"#.to_owned(), ..Request::read("/") };
        let mut row =
            serde_json::json!({"cells": ["5s", "3m10s", "5", "s", "80:31234/TCP,443:30443/TCP", "80/TCP", "a:b"]});
        clean(&mut row, &sent, "");
        assert_eq!(
            row["cells"],
            serde_json::json!(["<age>", "<age>", "5", "s", "80:<allocated>/TCP,443:30443/TCP", "80/TCP", "a:b"])
        );
    }

    #[test]
    fn uids_are_hidden_wherever_they_stand() {
        let mut text = "uid=721e832b-4523-4219-99d4-46c0feab1ff3,ä".to_owned();
        hide_uids(&mut text, &Request::read("/"));
        assert_eq!(text, "uid=<uid>,ä");
    }
}
