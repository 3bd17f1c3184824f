//! Reads Prometheus' text format: a line for each value.

use std::borrow::Cow;

/// A value with its labels.
#[derive(Debug, PartialEq)]
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    labels: Vec<(&'a str, Cow<'a, str>)>,
    pub(super) value: f64,
}

impl Sample<'_> {
    /// The value of a label; empty if there is none.
    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(label, _)| *label == name).map_or("", |(_, value)| value)
    }
}

/// The values of a text. Lines of another form are skipped.
pub(super) fn samples(text: &str) -> Vec<Sample<'_>> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            rest = rest.trim_start_matches([',', ' ']);
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((label, value));
            rest = after;
        }
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name, labels, value })
}

/// The text up to the closing quotation mark, and the rest after it.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut end = 0;
    let bytes = text.as_bytes();
    while *bytes.get(end)? != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    let (raw, rest) = (text.get(..end)?, text.get(end + 1..)?);
    if !raw.contains('\\') {
        return Some((Cow::Borrowed(raw), rest));
    }
    let mut value = String::new();
    let mut chars = raw.chars();
    while let Some(char) = chars.next() {
        value.push(match char {
            '\\' => match chars.next()? {
                'n' => '\n',
                other => other,
            },
            other => other,
        });
    }
    Some((Cow::Owned(value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_name_labels_and_a_value() {
        let text = "# TYPE a counter\na{b=\"c\",d=\"e\\\"f\\\\\\n\"} 1.5\ng 2 1700000000\nno value\nh{i=\"j} 3\n";
        let samples = samples(text);
        assert_eq!(samples.len(), 2, "{samples:?}");
        assert_eq!((samples[0].name, samples[0].label("b"), samples[0].value), ("a", "c", 1.5));
        assert_eq!((samples[0].label("d"), samples[0].label("x")), ("e\"f\\\n", ""));
        assert_eq!((samples[1].name, samples[1].value), ("g", 2.0));
    }
}
