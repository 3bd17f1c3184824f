//! SPDX licence expressions: whether one can be satisfied from a list of accepted licences.
//!
//! `OR` needs one side, `AND` both; `WITH` belongs to the licence before it. The `/` of old packages means `OR`.

use std::collections::BTreeSet;

/// Whether `expression` can be satisfied with licences of `allowed`.
///
/// # Errors
///
/// If it is not a licence expression.
pub(crate) fn is_satisfied(expression: &str, allowed: &BTreeSet<String>) -> anyhow::Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut parser = Parser { words: spaced.split_whitespace().peekable(), allowed };
    let satisfied = parser.any()?;
    match parser.words.next() {
        None => Ok(satisfied),
        Some(word) => anyhow::bail!("unexpected {word:?} in the licence expression {expression:?}"),
    }
}

struct Parser<'a> {
    words: std::iter::Peekable<std::str::SplitWhitespace<'a>>,
    allowed: &'a BTreeSet<String>,
}

impl Parser<'_> {
    fn any(&mut self) -> anyhow::Result<bool> {
        let mut satisfied = self.all()?;
        while self.words.next_if_eq(&"OR").is_some() {
            satisfied |= self.all()?;
        }
        Ok(satisfied)
    }

    fn all(&mut self) -> anyhow::Result<bool> {
        let mut satisfied = self.one()?;
        while self.words.next_if_eq(&"AND").is_some() {
            satisfied &= self.one()?;
        }
        Ok(satisfied)
    }

    fn one(&mut self) -> anyhow::Result<bool> {
        match self.words.next() {
            Some("(") => {
                let satisfied = self.any()?;
                anyhow::ensure!(self.words.next() == Some(")"), "a parenthesis is not closed");
                Ok(satisfied)
            }
            None | Some(")" | "AND" | "OR" | "WITH") => anyhow::bail!("a licence is missing"),
            Some(licence) => {
                let mut name = licence.to_owned();
                if self.words.next_if_eq(&"WITH").is_some() {
                    let Some(exception) = self.words.next() else { anyhow::bail!("no exception after WITH") };
                    name += &format!(" WITH {exception}");
                }
                Ok(self.allowed.contains(&name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expression: &str, expected: Option<bool>) {
        let allowed = ["Apache-2.0", "MIT", "Unicode-3.0"].map(str::to_owned).into();
        assert_eq!(is_satisfied(expression, &allowed).ok(), expected, "{expression}");
    }

    #[test]
    fn expressions_are_satisfied_as_spdx_says() {
        check("MIT", Some(true));
        check("GPL-3.0-only", Some(false));
        check("MIT OR GPL-3.0-only", Some(true));
        check("GPL-3.0-only/MIT", Some(true));
        check("MIT AND GPL-3.0-only", Some(false));
        check("(MIT OR GPL-3.0-only) AND Unicode-3.0", Some(true));
        check("GPL-3.0-only AND MIT OR Apache-2.0", Some(true));
        check("GPL-3.0-only AND (MIT OR Apache-2.0)", Some(false));
        check("Apache-2.0 WITH LLVM-exception", Some(false));
        check("Apache-2.0 WITH LLVM-exception OR MIT", Some(true));
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for expression in ["", "MIT OR", "(MIT", "MIT)", "MIT Apache-2.0", "AND MIT", "MIT WITH"] {
            check(expression, None);
        }
    }
}
