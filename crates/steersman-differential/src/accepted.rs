//! The differences that are accepted, each with its reason.
//!
//! A line is `CLASS VERB PLURAL DETAIL # reason`; a `*` stands for any text.

use std::path::Path;

use anyhow::Context as _;

pub(crate) struct Accepted {
    patterns: Vec<String>,
}

// === impl Accepted ===

impl Accepted {
    pub(crate) fn read(path: Option<&Path>) -> anyhow::Result<Accepted> {
        let Some(path) = path else { return Ok(Accepted { patterns: Vec::new() }) };
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut patterns = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (pattern, _) = line.split_once(" # ").with_context(|| format!("a line without a reason: {line}"))?;
            patterns.push(pattern.trim().to_owned());
        }
        Ok(Accepted { patterns })
    }

    pub(crate) fn has(&self, signature: &str) -> bool {
        self.patterns.iter().any(|pattern| matches(pattern, signature))
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = pattern.contains('*').then(|| parts.next_back()).flatten() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(matches("a", "a") && !matches("a", "ab"));
        assert!(matches("a*", "ab") && matches("a*c", "abc") && !matches("a*c", "abd"));
        assert!(matches("*b*d", "abcd") && !matches("*d*b", "abcd"));
    }
}
