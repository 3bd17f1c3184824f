//! Errors, counted by their messages. A figure from a run with errors is worth less, and the table shows them.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The most different errors that are kept; further ones are counted together.
const TEXTS_MAX: usize = 20;
const TEXT_CHARS_MAX: usize = 240;
const MORE: &str = "others";

#[derive(Debug, Default)]
pub(crate) struct Errors {
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Errors {
    pub(crate) fn note(&self, text: impl Into<String>) {
        let text: String = text.into().chars().take(TEXT_CHARS_MAX).collect();
        let mut counts = self.counts.lock();
        let text = if counts.len() < TEXTS_MAX || counts.contains_key(&text) { text } else { MORE.to_owned() };
        *counts.entry(text).or_default() += 1;
    }

    /// Notes an unsuccessful answer.
    pub(crate) fn note_answer(&self, method: &str, status: u16, body: &[u8]) {
        let message = serde_json::from_slice::<serde_json::Value>(body).ok();
        let message = message.as_ref().and_then(|status| status["message"].as_str());
        // Names differ from request to request, so messages are counted without them.
        let message = message.map_or_else(|| String::from_utf8_lossy(body).into_owned(), without_names);
        self.note(format!("{method} was answered {status}: {message}"));
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().clone()
    }
}

/// A message without its quoted parts, so that it is the same for every object.
fn without_names(message: &str) -> String {
    let parts: Vec<&str> = message.split('"').step_by(2).collect();
    parts.join("\"..\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_what_they_say() {
        let errors = Errors::default();
        for name in ["a", "b"] {
            let body = format!(r#"{{"message":"widgets \"{name}\" not found"}}"#);
            errors.note_answer("GET", 404, body.as_bytes());
        }
        assert_eq!(errors.counts(), [("GET was answered 404: widgets \"..\" not found".to_owned(), 2)].into());
    }

    #[test]
    fn different_errors_are_bounded() {
        let errors = Errors::default();
        for n in 0..100 {
            errors.note(format!("number {n}"));
        }
        assert_eq!(errors.counts().get(MORE), Some(&80));
    }
}
