//! Why an expression does not compile, or cannot be evaluated.

use crate::syntax::source::{self, Issue};
use std::borrow::Cow;

/// The errors of an expression that does not compile. The text is upstream's: `ERROR: <input>:1:1: ...`, the line, and
/// a mark below it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{report}")]
pub struct CompileError {
    report: String,
    is_of_instantiation: bool,
}

impl CompileError {
    pub(crate) fn new(text: &str, mut issues: Vec<Issue>) -> CompileError {
        CompileError { report: source::report(text, &mut issues), is_of_instantiation: false }
    }

    pub(crate) fn of_instantiation(error: &EvalError) -> CompileError {
        CompileError { report: error.to_string(), is_of_instantiation: true }
    }

    /// Whether the expression is well-typed, but one of its constants is invalid, such as `int('x')`. The text is then
    /// only the error's message.
    pub fn is_of_instantiation(&self) -> bool {
        self.is_of_instantiation
    }
}

/// Why an evaluation has no value.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct EvalError {
    kind: ErrorKind,
    message: Cow<'static, str>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ErrorKind {
    Budget,
    Other,
}

impl EvalError {
    /// An error with its text.
    pub fn new(message: impl Into<Cow<'static, str>>) -> EvalError {
        EvalError { kind: ErrorKind::Other, message: message.into() }
    }

    pub(crate) fn budget() -> EvalError {
        let message = Cow::Borrowed("operation cancelled: actual cost limit exceeded");
        EvalError { kind: ErrorKind::Budget, message }
    }

    /// Whether the budget was exceeded. The rest of an expression cannot recover from this error.
    pub fn is_budget(&self) -> bool {
        self.kind == ErrorKind::Budget
    }

    pub(crate) fn no_key(key: &str) -> EvalError {
        EvalError::new(format!("no such key: {key}"))
    }
}
