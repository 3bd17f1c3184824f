//! The indentation of nested values: texts that would be mostly indentation are written in one line.

/// The indentation of a text may be this many times as long as its JSON, and never longer than the maximum. Short texts may have the free bytes
/// in any case. Objects of Kubernetes' kinds need up to three bytes of indentation for a byte.
const INDENTATION_PER_BYTE: usize = 8;
const INDENTATION_MAX: usize = 8 << 20;
const INDENTATION_FREE: usize = 64 << 10;

/// The indentation that a JSON text may still have. One that is nested so deeply that its indentation would be many times as long as itself is
/// written in one line, which JSON and YAML allow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    left: usize,
}

impl Allowance {
    pub(super) fn of(json: &[u8]) -> Allowance {
        Allowance { left: json.len().saturating_mul(INDENTATION_PER_BYTE).min(INDENTATION_MAX) + INDENTATION_FREE }
    }

    /// Uses so many bytes. `None` if they are more than what is left, which then is nothing.
    pub(super) fn take(&mut self, bytes: usize) -> Option<()> {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(0);
        left.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use crate::http::representation::encoding::tests::streamed;
    use crate::http::representation::encoding::{Encoder, encoder};
    use crate::shared::request::negotiate::{Encoding, Layout};
    use serde_json::Value;

    #[test]
    fn what_is_nested_deeply_is_not_many_times_as_long_when_it_is_indented() {
        let (levels, n) = (60, 20_000);
        let deep = format!("{}{}{}", "[".repeat(levels), vec!["1"; n].join(","), "]".repeat(levels));
        for (encoder, text) in
            [(encoder(Encoding::Json, Layout::Indented), &deep), (encoder(Encoding::Yaml, Layout::Compact), &deep)]
        {
            let mut out = Vec::new();
            encoder.document(text.as_bytes(), &mut out).unwrap();
            assert!(out.len() <= text.len() + 1, "{} bytes of {}", out.len(), text.len());
            assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), serde_json::from_str::<Value>(text).unwrap());
            let list = streamed(encoder, &[serde_json::from_str(text).unwrap()]);
            assert!(list.len() < text.len() + 500, "{} bytes of {}", list.len(), text.len());
            let read: Value = serde_saphyr::from_str(&list).unwrap();
            assert_eq!(read["items"][0], serde_json::from_str::<Value>(text).unwrap());
        }
    }

    /// The lengths of an indented text and of the same text in one line.
    fn both(encoder: &dyn Encoder, text: &str) -> (usize, usize) {
        let mut out = Vec::new();
        encoder.document(text.as_bytes(), &mut out).unwrap();
        let read: Value = serde_saphyr::from_slice(&out).unwrap();
        assert_eq!(read, serde_json::from_str::<Value>(text).unwrap());
        (out.len(), text.len())
    }

    #[test]
    fn few_values_may_be_nested_deeply_and_many_a_little() {
        let deep = format!("{}1{}", "{\"a\":".repeat(60), "}".repeat(60));
        let items = vec!["{\"name\":\"a\",\"value\":\"[[[[[[{{{{{,,,,,,,,,\"}"; 20_000].join(",");
        let wide = format!("{{\"spec\":{{\"a\":[{items}]}}}}");
        for text in [deep, wide] {
            for encoder in [encoder(Encoding::Json, Layout::Indented), encoder(Encoding::Yaml, Layout::Compact)] {
                let (indented, one_line) = both(encoder, &text);
                assert!(one_line + 100 < indented, "{indented} bytes of {one_line}");
            }
        }
    }

    #[test]
    fn lines_and_words_of_a_text_that_is_nested_deeply_are_not_indented_one_by_one() {
        let yaml = encoder(Encoding::Yaml, Layout::Compact);
        for unit in ["a\\n", "a ", "'b "] {
            let text = format!("{}\"{}c\"{}", "{\"a\":".repeat(60), unit.repeat(100_000), "}".repeat(60));
            let (indented, one_line) = both(yaml, &text);
            assert!(indented <= 10 * one_line, "{indented} bytes of {one_line} with {unit:?}");
        }
    }
}
