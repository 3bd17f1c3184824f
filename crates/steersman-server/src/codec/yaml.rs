//! YAML as Kubernetes reads it: numbers and truth values of YAML 1.1.

use std::borrow::Cow;
use steersman_machinery::Value;

pub(super) fn parse(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let text = end_cut_block(text);
    serde_saphyr::from_str_with_options(&text, options).map_err(|error| {
        let text = error.to_string();
        text.lines().next().unwrap_or("not readable").to_owned()
    })
}

/// Gives a block scalar that ends with the document, and there without a line break, the sign for having none: the parser
/// would read one that is not there.
fn end_cut_block(text: &str) -> Cow<'_, str> {
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let Some((before, last)) = text.rsplit_once('\n').filter(|(_, last)| !last.trim().is_empty()) else {
        return Cow::Borrowed(text);
    };
    let mut end = before.len();
    for line in before.rsplit('\n') {
        if !line.trim().is_empty() && indent(line) < indent(last) {
            let is_block = [": |", "- |", ": >", "- >"].iter().any(|header| line.trim_end().ends_with(header));
            return match is_block {
                true => Cow::Owned(format!("{}-{}", &text[..end - (line.len() - line.trim_end().len())], &text[end..])),
                false => Cow::Borrowed(text),
            };
        }
        end = end.saturating_sub(line.len() + 1);
    }
    Cow::Borrowed(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_block_that_is_cut_has_no_line_break() {
        let read = |text| parse(text).unwrap();
        assert_eq!(read("a:\n  b: |\n    x\n\n    y"), json!({"a": {"b": "x\n\ny"}}));
        assert_eq!(read("a: |\n  x\n"), json!({"a": "x\n"}));
        assert_eq!(read("a: |\n  x\nb: 1"), json!({"a": "x\n", "b": 1}));
        assert_eq!(read("a: 1"), json!({"a": 1}));
    }
}
