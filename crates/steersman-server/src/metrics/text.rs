//! Prometheus' text format, version 0.0.4, which scrapers of Kubernetes read: help, type, then a line for each value.
//!
//! Written here because the client library that the controllers use only writes OpenMetrics, in which a counter's
//! family has a name other than that of its values.

use std::fmt::{Display, Write as _};

/// A text that families are appended to.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

/// The type of a family.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Type {
    Counter,
    Gauge,
    Histogram,
}

impl Text {
    /// Begins a family; its values must follow at once.
    pub(crate) fn family(&mut self, name: &str, kind: Type, help: &str) {
        let kind = match kind {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        };
        // Writes to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Appends a value. Labels are written in the given order.
    pub(crate) fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            for char in text.chars() {
                match char {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    other => self.0.push(other),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::default();
        text.family("a_total", Type::Counter, "What it counts.");
        text.value("a_total", &[("path", "a\"b\\c\nd"), ("b", "")], 1);
        text.value("b", &[], 0.5);
        assert_eq!(
            text.into_string(),
            "# HELP a_total What it counts.\n# TYPE a_total counter\na_total{path=\"a\\\"b\\\\c\\nd\",b=\"\"} 1\nb 0.5\n"
        );
    }
}
