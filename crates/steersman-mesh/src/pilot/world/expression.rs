//! Regular expressions as RE2 reads them, which Envoy matches with: what it lacks, and how large its program becomes.
//!
//! Envoy refuses a whole table of routes for one expression that RE2 cannot read, or whose program is too large. The count here is
//! generous, and the documented bootstraps let a proxy take ten times as many instructions, so that no expression which passes costs others
//! their routes.

use regex_syntax::ast::{
    AssertionKind, Ast, ClassAsciiKind, ClassPerl, ClassPerlKind, ClassSet, ClassSetItem, Flag, Flags, FlagsItemKind,
    GroupKind, HexLiteralKind, Literal, LiteralKind, RepetitionKind, RepetitionRange, SpecialLiteralKind,
};
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};
use regex_syntax::utf8::Utf8Sequences;

/// The length of the text of an expression, and how deep it may nest: they keep the check cheap.
const LENGTH_MAX: usize = 4_096;
const NESTING_MAX: u32 = 50;
/// The largest program, in instructions: Envoy's own bound, which holds wherever a bootstrap does not raise it.
const PROGRAM_MAX: usize = 100;
/// The most repetitions in RE2.
const REPETITIONS_MAX: u32 = 1_000;

/// The instructions with which every program begins and ends.
const FRAME: usize = 5;
/// The characters of a range that is folded, and the instructions for the letters of ASCII that two others fold to.
const FOLDED_MAX: usize = 256;
const OTHER_CASES: usize = 16;
/// The instructions that match any character beyond ASCII.
const BEYOND_ASCII: usize = 9;

/// Checks that Envoy can use an expression.
///
/// # Errors
/// Why it cannot.
pub(crate) fn check(pattern: &str) -> Result<(), String> {
    if pattern.is_empty() {
        return Err("it is empty".to_owned());
    }
    if pattern.len() > LENGTH_MAX {
        return Err(format!("it has {} bytes: at most {LENGTH_MAX} are supported", pattern.len()));
    }
    let size = program_size(pattern)?;
    if size > PROGRAM_MAX {
        let way = "shorten it, or use an exact path or a prefix";
        return Err(format!("it needs up to {size} instructions, and Envoy takes {PROGRAM_MAX}: {way}"));
    }
    Ok(())
}

/// A bound of the size of RE2's program.
fn program_size(pattern: &str) -> Result<usize, String> {
    let mut parser = regex_syntax::ast::parse::ParserBuilder::new().nest_limit(NESTING_MAX).build();
    let ast = parser.parse(pattern).map_err(|error| error.kind().to_string())?;
    let mut counter = Counter { pattern, case: Case::Distinct, ignores_case: false };
    let distinct = counter.size(&ast)?;
    if !counter.ignores_case {
        return Ok(distinct + FRAME);
    }
    // The flag counts for all of the expression here, which makes it larger, never smaller.
    counter.case = Case::Ignored;
    Ok(distinct.max(counter.size(&ast)?) + FRAME)
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Case {
    Distinct,
    Ignored,
}

struct Counter<'p> {
    pattern: &'p str,
    case: Case,
    /// Whether a flag says so somewhere.
    ignores_case: bool,
}

impl Counter<'_> {
    /// The instructions of a part, at least one.
    fn size(&mut self, ast: &Ast) -> Result<usize, String> {
        Ok(match ast {
            Ast::Empty(_) => 1,
            Ast::Flags(flags) => {
                self.flags(&flags.flags)?;
                1
            }
            Ast::Literal(literal) => self.class(vec![single(character(literal)?)]),
            Ast::Dot(_) => self.class(negated(&[('\n', '\n')])).max(self.class(vec![('\0', char::MAX)])),
            Ast::Assertion(assertion) => match assertion.kind {
                AssertionKind::StartLine
                | AssertionKind::EndLine
                | AssertionKind::StartText
                | AssertionKind::EndText
                | AssertionKind::WordBoundary
                | AssertionKind::NotWordBoundary => 1,
                _ => return Err("RE2 knows \\b and \\B only as boundaries of words".to_owned()),
            },
            Ast::ClassUnicode(_) => return Err(no_unicode_classes()),
            Ast::ClassPerl(class) => self.class(perl(class)),
            Ast::ClassBracketed(class) => {
                let mut ranges = Vec::new();
                ranges_of_set(&class.kind, &mut ranges)?;
                self.bracketed(ranges, class.negated)
            }
            Ast::Repetition(repetition) => {
                if matches!(&*repetition.ast, Ast::Repetition(_)) {
                    return Err("a repetition cannot be repeated without a group".to_owned());
                }
                let operator = &self.pattern[repetition.op.span.start.offset..repetition.op.span.end.offset];
                if operator.contains(char::is_whitespace) {
                    return Err(format!("the repetition {operator:?} contains spaces"));
                }
                let one = self.size(&repetition.ast)?;
                let loops = match &*repetition.ast {
                    Ast::Literal(_) | Ast::Dot(_) | Ast::ClassPerl(_) | Ast::ClassBracketed(_) => 2,
                    // A part that may match nothing is wrapped.
                    _ => 5,
                };
                repeated(one, loops, &repetition.op.kind)?
            }
            Ast::Group(group) => {
                let capture = match &group.kind {
                    GroupKind::CaptureIndex(_) => 2,
                    GroupKind::CaptureName { name, .. } => {
                        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                        if !name.name.chars().all(is_word) {
                            return Err(format!("the name {:?} of a group has other characters than words", name.name));
                        }
                        2
                    }
                    GroupKind::NonCapturing(flags) => {
                        self.flags(flags)?;
                        0
                    }
                };
                self.size(&group.ast)? + capture
            }
            Ast::Alternation(alternation) => self.sum(&alternation.asts)? + alternation.asts.len(),
            Ast::Concat(concat) => self.sum(&concat.asts)?,
        })
    }

    fn sum(&mut self, asts: &[Ast]) -> Result<usize, String> {
        asts.iter().try_fold(0_usize, |sum, ast| Ok(sum.saturating_add(self.size(ast)?)))
    }

    fn flags(&mut self, flags: &Flags) -> Result<(), String> {
        for item in &flags.items {
            match item.kind {
                FlagsItemKind::Negation => {}
                FlagsItemKind::Flag(Flag::CaseInsensitive) => self.ignores_case = true,
                FlagsItemKind::Flag(Flag::MultiLine | Flag::DotMatchesNewLine | Flag::SwapGreed) => {}
                FlagsItemKind::Flag(_) => return Err("RE2 knows the flags i, m, s and U only".to_owned()),
            }
        }
        Ok(())
    }

    fn class(&self, ranges: Vec<(char, char)>) -> usize {
        self.bracketed(ranges, false)
    }

    /// The instructions that match a character of a class.
    fn bracketed(&self, ranges: Vec<(char, char)>, is_negated: bool) -> usize {
        let mut class = unicode(&ranges);
        let mut more = 0;
        if self.case == Case::Ignored {
            // Folding looks at every character, so that only small ranges are folded.
            let is_large = |range: &&ClassUnicodeRange| range.len() > FOLDED_MAX;
            let large: Vec<ClassUnicodeRange> = class.iter().filter(is_large).copied().collect();
            if large.iter().any(|range| range.end() != char::MAX) {
                return PROGRAM_MAX;
            }
            if !large.is_empty() {
                more = OTHER_CASES;
            }
            class = ClassUnicode::new(class.iter().filter(|range| range.len() <= FOLDED_MAX).copied());
            if class.try_case_fold_simple().is_err() {
                return PROGRAM_MAX;
            }
            class.union(&ClassUnicode::new(large));
        }
        if is_negated {
            class.negate();
        }
        let size: usize = class.iter().map(|range| range_size(range.start(), range.end())).sum();
        // The first needs no branch.
        size.saturating_sub(1).max(1) + more
    }
}

/// The instructions of a range: each byte, and a branch for each sequence of bytes.
fn range_size(start: char, end: char) -> usize {
    let ascii = if start.is_ascii() { 2 } else { 0 };
    if end.is_ascii() {
        return ascii;
    }
    let start = start.max('\u{80}');
    if (start, end) == ('\u{80}', char::MAX) {
        return ascii + BEYOND_ASCII;
    }
    ascii + Utf8Sequences::new(start, end).map(|sequence| sequence.len() + 1).sum::<usize>()
}

fn repeated(one: usize, loops: usize, kind: &RepetitionKind) -> Result<usize, String> {
    let times = |count: u32| usize::try_from(count.max(1)).unwrap_or(usize::MAX);
    let (most, size) = match kind {
        RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore | RepetitionKind::OneOrMore => {
            return Ok(one.saturating_add(loops));
        }
        RepetitionKind::Range(RepetitionRange::Exactly(count)) => (*count, one.saturating_mul(times(*count))),
        RepetitionKind::Range(RepetitionRange::AtLeast(least)) => {
            (*least, one.saturating_mul(times(*least)).saturating_add(loops))
        }
        RepetitionKind::Range(RepetitionRange::Bounded(least, most)) => {
            // Each of those that may be absent has a branch.
            let branches = times(most.saturating_sub(*least));
            (*most, one.saturating_mul(times(*most)).saturating_add(branches).saturating_add(loops))
        }
    };
    if most > REPETITIONS_MAX {
        return Err(format!("it repeats {most} times: RE2 repeats at most {REPETITIONS_MAX} times"));
    }
    Ok(size)
}

fn no_unicode_classes() -> String {
    "classes of Unicode (\\p) are too large for Envoy".to_owned()
}

fn single(character: char) -> (char, char) {
    (character, character)
}

fn unicode(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(ranges.iter().map(|(start, end)| ClassUnicodeRange::new(*start, *end)))
}

fn negated(ranges: &[(char, char)]) -> Vec<(char, char)> {
    let mut class = unicode(ranges);
    class.negate();
    class.iter().map(|range| (range.start(), range.end())).collect()
}

fn character(literal: &Literal) -> Result<char, String> {
    match &literal.kind {
        LiteralKind::Verbatim
        | LiteralKind::Meta
        | LiteralKind::Superfluous
        | LiteralKind::HexFixed(HexLiteralKind::X)
        | LiteralKind::HexBrace(HexLiteralKind::X) => Ok(literal.c),
        LiteralKind::Special(kind) if *kind != SpecialLiteralKind::Space => Ok(literal.c),
        _ => Err(format!("RE2 lacks this way to write {:?}: use \\x{{...}}", literal.c)),
    }
}

fn perl(class: &ClassPerl) -> Vec<(char, char)> {
    let ranges: &[(char, char)] = match class.kind {
        ClassPerlKind::Digit => &[('0', '9')],
        ClassPerlKind::Space => &[('\t', '\n'), ('\u{c}', '\r'), (' ', ' ')],
        ClassPerlKind::Word => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
    };
    if class.negated { negated(ranges) } else { ranges.to_vec() }
}

fn ascii(kind: &ClassAsciiKind) -> Vec<(char, char)> {
    let is_in = |c: &char| match kind {
        ClassAsciiKind::Alnum => c.is_ascii_alphanumeric(),
        ClassAsciiKind::Alpha => c.is_ascii_alphabetic(),
        ClassAsciiKind::Ascii => true,
        ClassAsciiKind::Blank => matches!(c, ' ' | '\t'),
        ClassAsciiKind::Cntrl => c.is_ascii_control(),
        ClassAsciiKind::Digit => c.is_ascii_digit(),
        ClassAsciiKind::Graph => c.is_ascii_graphic(),
        ClassAsciiKind::Lower => c.is_ascii_lowercase(),
        ClassAsciiKind::Print => c.is_ascii_graphic() || *c == ' ',
        ClassAsciiKind::Punct => c.is_ascii_punctuation(),
        ClassAsciiKind::Space => matches!(c, '\t'..='\r' | ' '),
        ClassAsciiKind::Upper => c.is_ascii_uppercase(),
        ClassAsciiKind::Word => c.is_ascii_alphanumeric() || *c == '_',
        ClassAsciiKind::Xdigit => c.is_ascii_hexdigit(),
    };
    ('\0'..='\u{7f}').filter(is_in).map(single).collect()
}

fn ranges_of_set(set: &ClassSet, ranges: &mut Vec<(char, char)>) -> Result<(), String> {
    match set {
        ClassSet::BinaryOp(_) => {
            Err("RE2 knows no operations on classes (&&, --, ~~): escape these characters".to_owned())
        }
        ClassSet::Item(item) => ranges_of_item(item, ranges),
    }
}

fn ranges_of_item(item: &ClassSetItem, ranges: &mut Vec<(char, char)>) -> Result<(), String> {
    match item {
        ClassSetItem::Empty(_) => {}
        ClassSetItem::Literal(literal) => ranges.push(single(character(literal)?)),
        ClassSetItem::Range(range) => ranges.push((character(&range.start)?, character(&range.end)?)),
        ClassSetItem::Ascii(class) => {
            let positive = ascii(&class.kind);
            ranges.extend(if class.negated { negated(&positive) } else { positive });
        }
        ClassSetItem::Unicode(_) => return Err(no_unicode_classes()),
        ClassSetItem::Perl(class) => ranges.extend(perl(class)),
        ClassSetItem::Bracketed(_) => return Err("RE2 knows no classes within classes: escape the inner [".to_owned()),
        ClassSetItem::Union(union) => {
            for item in &union.items {
                ranges_of_item(item, ranges)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Expressions with the size of their program in RE2.
    const KNOWN: &[(&str, usize)] = &[
        (r"a", 5),
        (r"abc", 7),
        (r"/users/[0-9]+", 13),
        (r"[^/]+", 13),
        (r"/[^/]+/[^/]+", 24),
        (r".*", 12),
        (r"(?s).*", 11),
        (r"\d{3,9}", 19),
        (r"(?i)kiss", 15),
        (r"[à-ÿ]", 6),
        (r"€", 7),
        (r"(a|b|cd)*x", 10),
        (r"\W", 15),
        (r"(?i)[^k]", 26),
        (r"(?i)(?:\W+)*?", 47),
        (r"(?i)(?:[\W\d]+?)*", 45),
        (r"(?i)(?:(?U:\W+))*", 47),
        (r"[[:alpha:]]{1,8}", 19),
        (r"/[a-z]{1,60}/[a-z]{1,60}", 244),
        (r"\bx\B", 7),
        (r"(?:a{10}){10}", 104),
    ];

    #[test]
    fn a_program_is_counted_no_smaller_than_it_is() {
        for (pattern, real) in KNOWN {
            let counted = program_size(pattern).unwrap();
            assert!(counted >= *real, "{pattern}: {counted} counted, {real} in RE2");
        }
    }

    #[track_caller]
    fn refused(pattern: &str, why: &str) {
        let error = check(pattern).unwrap_err();
        assert!(error.contains(why), "{pattern}: {error}");
    }

    #[test]
    fn an_expression_that_envoy_refuses_is_refused() {
        refused("", "empty");
        refused("(", "unclosed group");
        refused("/[a-z]{1,60}/[a-z]{1,60}", "instructions");
        refused(&"a".repeat(101), "instructions");
        refused(&"a".repeat(5_000), "5000 bytes");
        refused("a{1001}", "1001 times");
        refused("(?:a{2000}){0}", "2000 times");
        refused("(?x)a", "flags");
        refused("(?-x:a)", "flags");
        refused("(?R)a", "flags");
        refused("[a&&b]", "operations");
        refused("[a--b]", "operations");
        refused("[[a]b]", "within");
        refused(r"\pL", "Unicode");
        refused(r"[\p{Greek}]", "Unicode");
        refused(r"\b{start}a", "boundaries");
        refused(r"\<a", "boundaries");
        refused(r"\u0041", "way to write");
        refused("a**", "group");
        refused("a{1}{2}", "group");
        refused("a{ 2 }", "spaces");
        refused("(?P<a.b>c)", "name");
        refused("(?:((((a{10}){10}){10}){10}))", "instructions");
    }

    #[test]
    fn expressions_of_every_day_pass() {
        for pattern in [
            "/users/[0-9]+/orders/[0-9]+",
            "/[^/]+/[^/]+/[^/]+",
            r"/api/v\d+(/.*)?",
            "(?i)application/json",
            "/(a|b|c)/.*",
            r"[0-9a-f]{8}-[0-9a-f]{4}",
            r"Bearer .+",
            "[[:alpha:]]{1,8}",
            ".*",
        ] {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_checked(pattern in "[a-cKs(){}|*+?,0-9\\[\\]^&:.iPx<>\\\\ /é-]{0,24}") {
            let _ = check(&pattern);
        }
    }
}
