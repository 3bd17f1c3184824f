//! Estimates the cost of compiling a pattern without compiling it.
//!
//! The unit is a transition of the compiled automaton: about fifty bytes, and a tenth of a microsecond to build.

use regex_syntax::hir::{Class, Hir, HirKind};
use regex_syntax::utf8::Utf8Sequences;

/// The cost of parsing a Unicode class (`\p{L}`): it becomes hundreds of ranges, however it is combined with others.
const UNICODE_CLASS: usize = 1000;

/// The additional cost of a class that ignores case: its ranges are looked up in the case folding table.
const FOLDED_CLASS: usize = 200;

/// The cost of parsing, estimated from the text alone.
pub(crate) fn of_text(text: &str) -> usize {
    let classes = text.matches(r"\p").count() + text.matches(r"\P").count();
    let folds = text.split("(?").skip(1).any(|rest| rest.split([')', ':']).next().is_some_and(|it| it.contains('i')));
    let folded = if folds { text.matches(['[', '\\', '.']).count() } else { 0 };
    text.len() + classes * UNICODE_CLASS + folded * FOLDED_CLASS
}

/// The cost of compiling: a repetition compiles as many copies of its operand.
pub(crate) fn of(hir: &Hir) -> usize {
    let inside = match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(Class::Bytes(class)) => class.ranges().len(),
        HirKind::Class(Class::Unicode(class)) => class
            .iter()
            .flat_map(|range| Utf8Sequences::new(range.start(), range.end()))
            .map(|sequence| sequence.len())
            .sum(),
        HirKind::Repetition(repetition) => {
            let copies = repetition.max.unwrap_or(repetition.min.saturating_add(1)).max(1);
            of(&repetition.sub).saturating_add(1).saturating_mul(usize::try_from(copies).unwrap_or(usize::MAX))
        }
        HirKind::Capture(capture) => of(&capture.sub).saturating_add(1),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().map(of).fold(0, usize::saturating_add),
    };
    inside.saturating_add(1)
}
