//! From the text of an expression to its syntax tree.

pub(crate) mod ast;
pub(crate) mod escape;
pub(crate) mod lexer;
pub(crate) mod parser;
pub(crate) mod source;
