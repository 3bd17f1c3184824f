//! Label and field selectors as text, as far as a cache can answer them. The grammar of labels is that of
//! `k8s.io/apimachinery/pkg/labels`, without the comparisons of numbers, which only node affinity uses.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{Expression, Selector, SelectorExt};

/// The label and field selectors of a list.
#[derive(Debug)]
pub(super) struct Selectors {
    labels: Selector,
    fields: Vec<FieldTerm>,
}

/// One requirement of a field selector.
#[derive(Debug)]
struct FieldTerm {
    field: Field,
    value: String,
    is_equal: bool,
}

#[derive(Debug)]
enum Field {
    Name,
    Namespace,
}

/// A selector that a cache cannot answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// A cache cannot select by this field.
    #[error(
        "a cache selects by metadata.name and metadata.namespace, not by {field:?}: use an index, or ask the server"
    )]
    Field {
        /// The field.
        field: String,
    },
    /// The text is not a selector.
    #[error("{selector:?} is no selector at {rest:?}: want {want}")]
    Syntax {
        /// The whole text.
        selector: String,
        /// The rest, from the first place that cannot be parsed.
        rest: String,
        /// The tokens that are expected there.
        want: &'static str,
    },
}

/// The unread rest of a selector.
struct Cursor<'a> {
    selector: &'a str,
    rest: &'a str,
}

// === impl Selectors ===

impl Selectors {
    /// Reads both selectors. An empty one selects everything.
    pub(super) fn parse(labels: &str, fields: &str) -> Result<Self, SelectorError> {
        Ok(Self { labels: parse_labels(labels)?, fields: parse_fields(fields)? })
    }

    pub(super) fn match_metadata(&self, metadata: &ObjectMeta) -> bool {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.labels.matches(metadata.labels.as_ref().unwrap_or(&NONE))
            && self.fields.iter().all(|term| term.matches(metadata))
    }
}

impl FieldTerm {
    fn matches(&self, metadata: &ObjectMeta) -> bool {
        let value = match self.field {
            Field::Name => metadata.name.as_deref(),
            Field::Namespace => metadata.namespace.as_deref(),
        };
        (value.unwrap_or_default() == self.value) == self.is_equal
    }
}

fn parse_labels(text: &str) -> Result<Selector, SelectorError> {
    let mut cursor = Cursor::new(text);
    let mut expressions = Vec::new();
    while !cursor.is_at_end() {
        expressions.push(cursor.requirement()?);
        cursor.end_of_term()?;
    }
    Ok(expressions.into_iter().collect())
}

fn parse_fields(text: &str) -> Result<Vec<FieldTerm>, SelectorError> {
    let mut cursor = Cursor::new(text);
    let mut terms = Vec::new();
    while !cursor.is_at_end() {
        let name = cursor.word("the name of a field")?;
        let is_equal = match cursor.operator() {
            Some("=" | "==") => true,
            Some("!=") => false,
            _ => return Err(cursor.error("=, == or !=")),
        };
        let field = match name {
            "metadata.name" => Field::Name,
            "metadata.namespace" => Field::Namespace,
            _ => return Err(SelectorError::Field { field: name.to_owned() }),
        };
        terms.push(FieldTerm { field, value: cursor.value().to_owned(), is_equal });
        cursor.end_of_term()?;
    }
    Ok(terms)
}

// === impl Cursor ===

impl<'a> Cursor<'a> {
    fn new(selector: &'a str) -> Self {
        Self { selector, rest: selector.trim_start() }
    }

    fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn error(&self, want: &'static str) -> SelectorError {
        SelectorError::Syntax { selector: self.selector.to_owned(), rest: self.rest.to_owned(), want }
    }

    /// Skips `token`, and returns whether it was there.
    fn skip(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            None => false,
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
        }
    }

    /// Reads the characters that keys and values are made of, possibly none.
    fn value(&mut self) -> &'a str {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    fn word(&mut self, want: &'static str) -> Result<&'a str, SelectorError> {
        let error = self.error(want);
        let word = self.value();
        if word.is_empty() { Err(error) } else { Ok(word) }
    }

    fn operator(&mut self) -> Option<&'static str> {
        ["==", "!=", "="].into_iter().find(|operator| self.skip(operator))
    }

    /// Reads one requirement on labels.
    fn requirement(&mut self) -> Result<Expression, SelectorError> {
        if self.skip("!") {
            return Ok(Expression::DoesNotExist(self.word("a key")?.to_owned()));
        }
        let key = self.word("a key, or ! and a key")?.to_owned();
        match self.operator() {
            Some("!=") => return Ok(Expression::NotEqual(key, self.value().to_owned())),
            Some(_) => return Ok(Expression::Equal(key, self.value().to_owned())),
            None if self.is_at_end() || self.rest.starts_with(',') => return Ok(Expression::Exists(key)),
            None => {}
        }
        let error = self.error("=, ==, !=, in or notin");
        match self.value() {
            "in" => Ok(Expression::In(key, self.values()?)),
            "notin" => Ok(Expression::NotIn(key, self.values()?)),
            _ => Err(error),
        }
    }

    /// Reads `(a, b)`.
    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        if !self.skip("(") {
            return Err(self.error("( and values"));
        }
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.value().to_owned());
            if self.skip(")") {
                return Ok(values);
            }
            if !self.skip(",") {
                return Err(self.error(", or )"));
            }
        }
    }

    /// Reads the end, or a comma that is not the last character.
    fn end_of_term(&mut self) -> Result<(), SelectorError> {
        if self.is_at_end() || (self.skip(",") && !self.is_at_end()) {
            return Ok(());
        }
        Err(self.error(if self.is_at_end() { "another requirement" } else { "a comma, or the end" }))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        let shown = match parse_labels(text) {
            Ok(selector) => selector.to_string(),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn label_selectors_are_read_as_the_server_reads_them() {
        check("", expect![""]);
        check(" app = web ,tier==front, env!=test", expect!["app=web,tier=front,env!=test"]);
        check("app in (web, db),tier notin (x),e.com/a,!b", expect!["app in (db,web),tier notin (x),e.com/a,!b"]);
        check("app=,b in (,x)", expect!["app=,b in (,x)"]);
        check("in in (in)", expect!["in in (in)"]);
        check("app=web,", expect![[r#""app=web," is no selector at "": want another requirement"#]]);
        check("app web", expect![[r#""app web" is no selector at "web": want =, ==, !=, in or notin"#]]);
        check("app in web", expect![[r#""app in web" is no selector at "web": want ( and values"#]]);
        check("app in (web", expect![[r#""app in (web" is no selector at "": want , or )"#]]);
        check("n>1", expect![[r#""n>1" is no selector at ">1": want =, ==, !=, in or notin"#]]);
        check("=a", expect![[r#""=a" is no selector at "=a": want a key, or ! and a key"#]]);
    }

    #[test]
    fn fields_that_every_object_has_can_be_selected_by_and_no_others() {
        let metadata = |namespace: &str, name: &str| ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        let selectors = Selectors::parse("", "metadata.name=x, metadata.namespace!=b").unwrap();
        assert!(selectors.match_metadata(&metadata("a", "x")));
        assert!(!selectors.match_metadata(&metadata("b", "x")) && !selectors.match_metadata(&metadata("a", "y")));
        let refused = Selectors::parse("", "status.phase=Running").unwrap_err().to_string();
        expect![[r#"a cache selects by metadata.name and metadata.namespace, not by "status.phase": use an index, or ask the server"#]]
            .assert_eq(&refused);
    }
}
