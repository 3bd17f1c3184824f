//! Errors of unexpected tokens, in the words of upstream's parser.

use crate::syntax::lexer::Token;
use crate::syntax::parser::Parser;
use crate::syntax::source::Issue;

/// The position of an operand, which decides which other tokens could be there.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum OperandPosition {
    /// After the parenthesis of a call.
    Arguments,
    /// After the bracket of an index.
    Index,
    /// After the bracket of a list.
    List,
    /// After a comma of a list.
    ListItem,
    /// After the brace of a map.
    Map,
    #[default]
    Plain,
}

impl Parser<'_> {
    /// The error of a token instead of an operand.
    pub(super) fn no_operand(&self) -> Issue {
        let (before, between) = match self.place {
            OperandPosition::Arguments => ("'[', '{', '(', ')', '.', ", ""),
            OperandPosition::Index => ("'[', '{', '(', '.', ", "'?', "),
            OperandPosition::List => ("'[', ']', '{', '(', '.', ',', ", "'?', "),
            OperandPosition::ListItem => return self.not("']'", |next| *next == Token::Symbol("]")),
            OperandPosition::Map => ("'[', '{', '}', '(', '.', ',', ", "'?', "),
            OperandPosition::Plain => ("'[', '{', '(', '.', ", ""),
        };
        let wanted = format!(
            "{{{before}'-', '!', {between}'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}}"
        );
        self.not(&wanted, begins_operand)
    }

    /// The error of a token after a whole expression.
    pub(super) fn not_the_end(&self) -> Issue {
        self.not("<EOF>", |next| *next == Token::End)
    }

    /// The error of a token instead of a symbol, or of a closing bracket.
    pub(super) fn not_symbol(&self, symbol: &str) -> Issue {
        let found = self.token();
        let closes = |next: &Token| matches!(next, Token::Symbol(next) if *next == symbol);
        let is_outermost = self.nesting_of_brackets == 1;
        if matches!(symbol, ")" | "]" | "}") && *found == Token::End && is_outermost {
            return Issue::new(self.position(), format!("Syntax error: missing '{symbol}' at '<EOF>'"));
        }
        self.not(&format!("'{symbol}'"), closes)
    }

    /// The error of a token instead of a comma between items, or of their end.
    pub(super) fn not_between(&self, end: &str) -> Issue {
        self.not(
            &format!("{{'{end}', ','}}"),
            |next| matches!(next, Token::Symbol(next) if *next == end || *next == ","),
        )
    }

    /// The error of a token instead of a name after a dot.
    pub(super) fn no_name(&self) -> Issue {
        let from = self.tokens[self.at.saturating_sub(1)].position;
        let to = self.tokens[self.at].end;
        let text: String = self.text.chars().skip(from as usize).take((to - from) as usize).collect();
        Issue::new(self.position(), format!("Syntax error: no viable alternative at input '{text}'"))
    }

    /// The error of a token instead of a field name.
    pub(super) fn no_field(&self) -> Issue {
        self.not("{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}", |next| matches!(next, Token::Ident(_)))
    }

    /// The error of a token that is not one of the expected ones. If one of these follows, the token is reported as
    /// extraneous.
    pub(super) fn not(&self, wanted: &str, fits: impl Fn(&Token) -> bool) -> Issue {
        let spanned = &self.tokens[self.at];
        let found: String = match spanned.token {
            Token::End => "<EOF>".to_owned(),
            _ => {
                let length = (spanned.end - spanned.position) as usize;
                self.text.chars().skip(spanned.position as usize).take(length).collect()
            }
        };
        let is_extra = self.tokens.get(self.at + 1).is_some_and(|next| fits(&next.token));
        let how = if is_extra { "extraneous" } else { "mismatched" };
        Issue::new(spanned.position, format!("Syntax error: {how} input '{found}' expecting {wanted}"))
    }
}

fn begins_operand(token: &Token) -> bool {
    match token {
        Token::End => false,
        Token::Ident(_) | Token::IntMin | Token::Literal(_) => true,
        Token::Symbol(symbol) => matches!(*symbol, "[" | "{" | "(" | "." | "-" | "!"),
    }
}
