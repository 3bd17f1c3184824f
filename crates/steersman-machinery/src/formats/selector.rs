//! Label and field selectors: the text that clients send, and how it matches.
//!
//! Grammar and error texts follow apimachinery's `labels` and `fields` packages.

use crate::names::name;
use std::borrow::Cow;
use std::fmt;

/// A parsed label selector. Empty selects everything; otherwise every requirement must hold.
///
/// The requirements are sorted by key, and each is there once, as are the values of each.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Labels {
    requirements: Vec<Requirement>,
}

/// One condition on one label.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// The condition on its value.
    pub operator: Operator,
}

/// The condition of a requirement on a label's value. `NotIn` also holds where the label is absent.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[expect(missing_docs, reason = "the variants are the operators' own names")]
pub enum Operator {
    DoesNotExist,
    Exists,
    GreaterThan(i64),
    In(Vec<String>),
    LessThan(i64),
    NotIn(Vec<String>),
}

/// A parsed field selector: conditions on fields by their path, all of which must hold.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Fields {
    /// The requirements, all of which must hold.
    pub requirements: Vec<FieldRequirement>,
}

/// One condition on one field.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct FieldRequirement {
    /// The field's path, such as `metadata.name`.
    pub field: String,
    /// The value that the field is compared with.
    pub value: String,
    /// Whether the field must equal the value; otherwise it must differ.
    pub equal: bool,
}

/// A selector that could not be parsed; the message is for the client.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// A term of a field selector.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    Field {
        /// The whole selector.
        selector: String,
        /// The part that could not be parsed.
        term: String,
    },
    /// A value of a field selector with a backslash before a character that needs none.
    #[error("invalid field selector: invalid escape sequence: {sequence}")]
    FieldEscape {
        /// The backslash and what follows it.
        sequence: String,
    },
    /// A value of a field selector with a comma or an equals sign that no backslash escapes.
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*character))]
    FieldUnescaped {
        /// The character.
        character: char,
    },
    /// Text between the requirements of a label selector.
    #[error("{what}")]
    Label {
        /// The text that was found, and the expected one.
        what: String,
    },
    /// A requirement of a label selector.
    #[error("unable to parse requirement: {what}")]
    Requirement {
        /// The text that was found, and the expected one.
        what: String,
    },
}

// === impl Labels ===

impl Labels {
    /// A selector of these requirements.
    pub fn new(mut requirements: Vec<Requirement>) -> Labels {
        for requirement in &mut requirements {
            if let Operator::In(values) | Operator::NotIn(values) = &mut requirement.operator {
                values.sort_unstable();
                values.dedup();
            }
        }
        requirements.sort_unstable();
        requirements.dedup();
        Labels { requirements }
    }

    /// The requirements, all of which must hold, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// The selector of what both select.
    #[must_use]
    pub fn and(self, other: Labels) -> Labels {
        Labels::new([self.requirements, other.requirements].concat())
    }

    /// Parses the text form: `a=b,c!=d,e in (f,g),h,!i,j>1`.
    ///
    /// # Errors
    /// When it does not follow the grammar, or a key or value is not valid for a label.
    pub fn parse(text: &str) -> Result<Labels, ParseError> {
        let mut parser = Parser { tokens: lex(text), at: 0 };
        let mut requirements = Vec::new();
        let fail = |what| ParseError::Label { what };
        while parser.peek() != &Token::End {
            if !parser.peek().begins_requirement() {
                return expected(parser.peek(), "!, identifier, or 'end of string'").map_err(fail);
            }
            requirements.push(parser.requirement().map_err(|what| ParseError::Requirement { what })?);
            match parser.next() {
                Token::End => break,
                Token::Symbol(',') if parser.peek().begins_requirement() => {}
                Token::Symbol(',') => return expected(parser.peek(), "identifier after ','").map_err(fail),
                other => return expected(&other, "',' or 'end of string'").map_err(fail),
            }
        }
        Ok(Labels::new(requirements))
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether labels satisfy it; `label` gives the value of a key.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.operator.holds(label(&requirement.key)))
    }

    /// Whether labels that are sorted by key satisfy it. Each label and each requirement is visited once at most.
    pub fn matches_sorted<'a>(&self, labels: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
        let mut labels = labels.peekable();
        self.requirements.iter().all(|requirement| {
            while labels.next_if(|(key, _)| *key < &*requirement.key).is_some() {}
            let found = labels.peek().filter(|(key, _)| *key == requirement.key);
            requirement.operator.holds(found.map(|(_, value)| *value))
        })
    }
}

impl Operator {
    /// Whether a label's value satisfies it; `None` for a label that is absent.
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        let is_among = |value: &str, values: &[String]| values.binary_search_by(|one| one.as_str().cmp(value)).is_ok();
        match self {
            Operator::DoesNotExist => value.is_none(),
            Operator::Exists => value.is_some(),
            Operator::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Operator::In(values) => value.is_some_and(|value| is_among(value, values)),
            Operator::LessThan(bound) => number().is_some_and(|number| number < *bound),
            Operator::NotIn(values) => value.is_none_or(|value| !is_among(value, values)),
        }
    }
}

impl fmt::Display for Labels {
    /// Writes a text that parses back to the same selector.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, operator }) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match operator {
                Operator::DoesNotExist => write!(f, "!{key}")?,
                Operator::Exists => f.write_str(key)?,
                Operator::GreaterThan(bound) => write!(f, "{key}>{bound}")?,
                Operator::In(values) => match values.as_slice() {
                    [one] => write!(f, "{key}={one}")?,
                    _ => write!(f, "{key} in ({})", values.join(","))?,
                },
                Operator::LessThan(bound) => write!(f, "{key}<{bound}")?,
                Operator::NotIn(values) => match values.as_slice() {
                    [one] => write!(f, "{key}!={one}")?,
                    _ => write!(f, "{key} notin ({})", values.join(","))?,
                },
            }
        }
        Ok(())
    }
}

// === impl Fields ===

impl Fields {
    /// Parses the text form: `a.b=c,d!=e`. A comma, an equals sign or a backslash in a value is escaped by a backslash.
    ///
    /// Terms are parsed in the order of their bytes, which decides the error where several terms are invalid. Each is kept once.
    ///
    /// # Errors
    /// When a term has no operator, or a value is not escaped as it must be.
    pub fn parse(text: &str) -> Result<Fields, ParseError> {
        let mut requirements = Vec::new();
        let mut terms = split_unescaped(text);
        terms.sort_unstable();
        terms.dedup();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let at = term.match_indices(['=', '!']).map(|(at, _)| at).find(|at| !is_lone_mark(&term[*at..]));
            let Some(at) = at else {
                return Err(ParseError::Field { selector: text.to_owned(), term: term.to_owned() });
            };
            let (field, rest) = term.split_at(at);
            let (equal, value) = match rest.strip_prefix("!=") {
                Some(value) => (false, value),
                None => (true, rest.strip_prefix("==").unwrap_or(&rest[1..])),
            };
            requirements.push(FieldRequirement { field: field.to_owned(), value: unescape(value)?, equal });
        }
        Ok(Fields { requirements })
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether fields satisfy it; `field` gives the value of a path, empty where there is none. It is called once for each
    /// field, since a kind has few and a selector may have a thousand requirements.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> Cow<'a, str>) -> bool {
        if let [FieldRequirement { field: name, value, equal }] = &self.requirements[..] {
            return (field(name) == *value) == *equal;
        }
        let mut known: Vec<(&str, Cow<'a, str>)> = Vec::new();
        self.requirements.iter().all(|FieldRequirement { field: name, value, equal }| {
            let at = known.iter().position(|(one, _)| one == name).unwrap_or_else(|| {
                known.push((name, field(name)));
                known.len() - 1
            });
            (known[at].1 == *value) == *equal
        })
    }

    /// The value that a field must equal, if there is such a requirement.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements.iter().find(|one| one.equal && one.field == field).map(|one| one.value.as_str())
    }
}

fn split_unescaped(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, char) in text.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Whether a term, cut before an equals sign or an exclamation mark, begins with an exclamation mark that is no
/// operator.
fn is_lone_mark(rest: &str) -> bool {
    rest.starts_with('!') && !rest.starts_with("!=")
}

fn unescape(value: &str) -> Result<String, ParseError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                other => {
                    return Err(ParseError::FieldEscape { sequence: std::iter::once(char).chain(other).collect() });
                }
            },
            ',' | '=' => return Err(ParseError::FieldUnescaped { character: char }),
            _ => out.push(char),
        }
    }
    Ok(out)
}

// === the grammar of label selectors ===

#[derive(Clone, Debug, Eq, PartialEq)]
enum Token {
    End,
    Symbol(char),
    /// `==` and `!=`.
    Pair(&'static str),
    Word(String),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::End => Ok(()),
            Token::Symbol(symbol) => write!(f, "{symbol}"),
            Token::Pair(pair) => f.write_str(pair),
            Token::Word(word) => f.write_str(word),
        }
    }
}

impl Token {
    fn begins_requirement(&self) -> bool {
        matches!(self, Token::Word(_) | Token::Symbol('!'))
    }
}

fn lex(text: &str) -> Vec<Token> {
    let is_symbol = |char: char| "=!(),<>".contains(char);
    let (mut tokens, mut chars) = (Vec::new(), text.chars().peekable());
    while let Some(char) = chars.next() {
        if char.is_whitespace() {
            continue;
        }
        if !is_symbol(char) {
            let mut word = String::from(char);
            while let Some(next) = chars.next_if(|next| !next.is_whitespace() && !is_symbol(*next)) {
                word.push(next);
            }
            tokens.push(Token::Word(word));
            continue;
        }
        let pair = chars.peek() == Some(&'=');
        tokens.push(match char {
            '=' if pair => Token::Pair("=="),
            '!' if pair => Token::Pair("!="),
            _ => Token::Symbol(char),
        });
        if matches!(tokens.last(), Some(Token::Pair(_))) {
            chars.next();
        }
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == &Token::Symbol('!');
        if negated {
            self.next();
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => return expected(&other, "identifier"),
        };
        let faults = name::qualified(&key);
        if !faults.is_empty() {
            // The reference implementation has no field path here, and prints it as `<nil>`.
            return Err(format!("<nil>: Invalid value: {key:?}: {}", faults.join("; ")));
        }
        if negated {
            return Ok(Requirement { key, operator: Operator::DoesNotExist });
        }
        let operator = match self.peek().clone() {
            Token::End | Token::Symbol(',') => Operator::Exists,
            Token::Pair(pair) => {
                self.next();
                let value = self.value(&key)?;
                if pair == "!=" { Operator::NotIn(vec![value]) } else { Operator::In(vec![value]) }
            }
            Token::Symbol('=') => {
                self.next();
                Operator::In(vec![self.value(&key)?])
            }
            Token::Symbol(sign @ ('<' | '>')) => {
                self.next();
                let bound = self.bound(&key)?;
                if sign == '<' { Operator::LessThan(bound) } else { Operator::GreaterThan(bound) }
            }
            Token::Word(word) if word == "in" || word == "notin" => {
                self.next();
                let values = self.values(&key)?;
                if word == "in" { Operator::In(values) } else { Operator::NotIn(values) }
            }
            other => return expected(&other, "in, notin, =, ==, !=, gt, lt"),
        };
        Ok(Requirement { key, operator })
    }

    /// One value, which may be empty.
    fn value(&mut self, key: &str) -> Result<String, String> {
        let value = self.word()?;
        joined(value_fault(key, 0, &value).into_iter().collect())?;
        Ok(value)
    }

    /// One value that is a number. The error for a value that is neither a number nor a label value names both errors.
    fn bound(&mut self, key: &str) -> Result<i64, String> {
        let value = self.word()?;
        let bound = value.parse().map_err(|_| {
            format!("values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer")
        });
        joined(bound.as_ref().err().cloned().into_iter().chain(value_fault(key, 0, &value)).collect())?;
        bound
    }

    fn word(&mut self) -> Result<String, String> {
        match self.peek().clone() {
            Token::Word(word) => {
                self.next();
                Ok(word)
            }
            Token::End | Token::Symbol(',') => Ok(String::new()),
            other => expected(&other, "identifier"),
        }
    }

    /// `(a,b)`, where a value may be empty.
    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != Token::Symbol('(') {
            return Err(format!("found '{open}' expected: '('"));
        }
        if !matches!(self.peek(), Token::Word(_) | Token::Symbol(',' | ')')) {
            return expected(self.peek(), "',', ')' or identifier");
        }
        let mut values = Vec::new();
        loop {
            let value = match self.peek().clone() {
                Token::Word(word) => {
                    self.next();
                    word
                }
                Token::Symbol(',' | ')') => String::new(),
                other => return expected(&other, "',', or identifier"),
            };
            values.push(value);
            match self.next() {
                Token::Symbol(',') => {}
                Token::Symbol(')') => break,
                other => return expected(&other, "',' or ')'"),
            }
        }
        values.sort();
        values.dedup();
        joined(values.iter().enumerate().filter_map(|(index, value)| value_fault(key, index, value)).collect())?;
        Ok(values)
    }
}

fn expected<T>(found: &Token, expected: &str) -> Result<T, String> {
    Err(format!("found '{found}', expected: {expected}"))
}

/// Several errors as one text.
fn joined(faults: Vec<String>) -> Result<(), String> {
    match faults.as_slice() {
        [] => Ok(()),
        [fault] => Err(fault.clone()),
        _ => Err(format!("[{}]", faults.join(", "))),
    }
}

/// The error of a value that is not valid for a label.
fn value_fault(key: &str, index: usize, value: &str) -> Option<String> {
    let faults = name::label_value(value);
    (!faults.is_empty()).then(|| format!("values[{index}][{key}]: Invalid value: {value:?}: {}", faults.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_field_is_read_once_however_many_requirements_name_it() {
        let selector: Vec<String> = (0..1_000).map(|n| format!("a!={n},b!={n}")).collect();
        let fields = Fields::parse(&selector.join(",")).unwrap();
        let n_read = std::cell::Cell::new(0);
        let value = |text: &'static str| {
            n_read.set(n_read.get() + 1);
            Cow::Borrowed(text)
        };
        assert!(fields.matches(|_| value("x")));
        assert_eq!(n_read.get(), 2);
        assert!(!fields.matches(|_| value("999")));
    }

    #[track_caller]
    fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
        let parsed = Labels::parse(selector).unwrap();
        let find = |key: &str| labels.iter().find(|(label, _)| *label == key).map(|(_, value)| *value);
        assert_eq!(Labels::parse(&parsed.to_string()).unwrap(), parsed);
        let mut sorted = labels.to_vec();
        sorted.sort_unstable();
        assert_eq!(parsed.matches_sorted(sorted.into_iter()), parsed.matches(find), "{selector}");
        parsed.matches(find)
    }

    #[test]
    fn operators_hold_as_documented() {
        let labels = [("odd", "yes"), ("n", "3"), ("empty", "")];
        for selector in [
            "",
            "odd",
            "odd=yes",
            "odd == yes",
            "odd!=no",
            "x!=y",
            "!x",
            "odd in (no, yes)",
            "odd notin (no)",
            "x notin (a)",
            "n>2",
            "n<4,odd",
            "empty=",
            "empty in (,a)",
        ] {
            assert!(selects(selector, &labels), "{selector}");
        }
        for selector in ["!odd", "odd=no", "odd!=yes", "odd in ()", "x", "n>3", "odd<4", "odd,n=4"] {
            assert!(!selects(selector, &labels), "{selector}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said_as_kubernetes_says_it() {
        for (selector, want) in [
            ("odd within (yes)", "unable to parse requirement: found 'within', expected: in, notin, =, ==, !=, gt, lt"),
            ("a b c", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("=", "found '=', expected: !, identifier, or 'end of string'"),
            ("!=a", "found '!=', expected: !, identifier, or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            ("!a=b", "found '=', expected: ',' or 'end of string'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("a=(", "unable to parse requirement: found '(', expected: identifier"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
            (
                "a/b/c",
                "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
            ),
            (
                "a in (c,b-)",
                "unable to parse requirement: values[0][a]: Invalid value: \"b-\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ),
            (
                "a>b",
                "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ] {
            assert_eq!(Labels::parse(selector).unwrap_err().to_string(), want);
        }
        let twice = Labels::parse("a in (-,+)").unwrap_err().to_string();
        assert!(
            twice.starts_with("unable to parse requirement: [values[0][a]: ") && twice.contains(", values[1][a]: ")
        );
    }

    #[test]
    fn fields_are_equal_or_not() {
        let fields = Fields::parse(r"metadata.name=a\,b,metadata.namespace!=x,spec.c==d").unwrap();
        let find = |path: &str| match path {
            "metadata.name" => "a,b".into(),
            "spec.c" => "d".into(),
            _ => "".into(),
        };
        assert!(fields.matches(find));
        assert_eq!(fields.exact("metadata.name"), Some("a,b"));
        assert_eq!(fields.exact("metadata.namespace"), None);
        let error = Fields::parse("nonsense").unwrap_err();
        assert_eq!(error.to_string(), "invalid selector: 'nonsense'; can't understand 'nonsense'");
        let said = |text| Fields::parse(text).unwrap_err().to_string();
        assert_eq!(said("b in (c,A)"), "invalid selector: 'b in (c,A)'; can't understand 'A)'");
        assert_eq!(said(r"a=\b"), r"invalid field selector: invalid escape sequence: \b");
        assert_eq!(said(r"a=b=c"), "invalid field selector: unescaped character in value: 61");
        assert_eq!(Fields::parse("a!b!=c").unwrap().requirements[0].field, "a!b");
        assert!(Fields::parse("").unwrap().is_everything());
    }

    #[test]
    fn what_is_said_again_is_kept_once() {
        let said = |selector: &str| Labels::parse(selector).unwrap().to_string();
        assert_eq!(said("b,a=1,b,a in (1),a!=2,b"), "a=1,a!=2,b");
        assert_eq!(said("a in (c,b,c)"), "a in (b,c)");
        let given = Labels::new(vec![Requirement {
            key: "a".to_owned(),
            operator: Operator::In(vec!["2".to_owned(), "1".to_owned()]),
        }]);
        assert!(given.matches(|_| Some("2")), "values are found in whichever order they were given");
        assert_eq!(Fields::parse("a=1,b=2,a=1").unwrap().requirements.len(), 2);
    }

    proptest! {
        #[test]
        fn sorted_labels_are_matched_as_any(selector in "(!?[a-d]|[a-d](=|!=|>|<)[0-3]|[a-d] (in|notin) \\([0-3],[0-3]\\))(,(!?[a-d]|[a-d](=|!=|>)[0-3])){0,4}", labels in prop::collection::btree_map("[a-e]", "[0-3]", 0..5)) {
            let selector = Labels::parse(&selector).unwrap();
            let sorted = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            prop_assert_eq!(selector.matches_sorted(sorted), selector.matches(|key| labels.get(key).map(String::as_str)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[a-c!=,() <>in.]{0,16}|\\PC{0,12}") {
            if let Ok(parsed) = Labels::parse(&text) {
                prop_assert_eq!(Labels::parse(&parsed.to_string()).unwrap(), parsed);
            }
            let _ = Fields::parse(&text);
        }
    }
}
