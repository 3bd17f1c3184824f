//! Splits the text of an expression into tokens.

use crate::syntax::ast::Literal;
use crate::syntax::source::Issue;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    End,
    Ident(Arc<str>),
    Literal(Literal),
    /// 2^63, the integer literal that fits into `i64` only with a minus sign.
    IntMin,
    /// An operator or a bracket.
    Symbol(&'static str),
}

/// A token and its position, in characters.
#[derive(Clone, Debug)]
pub(crate) struct Spanned {
    pub(crate) token: Token,
    pub(crate) position: u32,
    /// The position of its end.
    pub(crate) end: u32,
}

const SYMBOLS: [&str; 28] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}", "=", ";", "@", "#",
];

/// The tokens of a text, ending with [`Token::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Spanned>, Issue> {
    let mut lexer = Lexer { rest: text, position: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank();
        let position = lexer.position;
        let token = lexer.token()?;
        let is_end = token == Token::End;
        tokens.push(Spanned { token, position, end: lexer.position });
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    rest: &'t str,
    position: u32,
}

impl<'t> Lexer<'t> {
    /// Consumes this number of bytes.
    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        // Most text is ASCII, whose characters need not be counted.
        let chars = if taken.is_ascii() { taken.len() } else { taken.chars().count() };
        self.position = self.position.saturating_add(u32::try_from(chars).unwrap_or(u32::MAX));
        taken
    }

    fn skip_blank(&mut self) {
        loop {
            let blank = self.rest.len() - self.rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{c}']).len();
            self.take(blank);
            if !self.rest.starts_with("//") {
                return;
            }
            self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
    }

    fn token(&mut self) -> Result<Token, Issue> {
        let Some(first) = self.rest.chars().next() else { return Ok(Token::End) };
        let second = self.rest[first.len_utf8()..].chars().next();
        if first.is_ascii_digit() || (first == '.' && second.is_some_and(|second| second.is_ascii_digit())) {
            return self.number();
        }
        if let Some(token) = self.text()? {
            return Ok(token);
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let is_inner = |char: char| char.is_ascii_alphanumeric() || char == '_';
            let end = self.rest.find(|char| !is_inner(char)).unwrap_or(self.rest.len());
            return Ok(match self.take(end) {
                "true" => Token::Literal(Literal::Bool(true)),
                "false" => Token::Literal(Literal::Bool(false)),
                "null" => Token::Literal(Literal::Null),
                "in" => Token::Symbol("in"),
                name => Token::Ident(name.into()),
            });
        }
        match SYMBOLS.into_iter().find(|symbol| self.rest.starts_with(*symbol)) {
            // The error of half an operator shows the next character too.
            Some("=") => Err(self.unknown(&self.rest.chars().take(2).collect::<String>())),
            Some(symbol @ (";" | "@" | "#")) => Err(self.unknown(symbol)),
            Some(symbol) => {
                self.take(symbol.len());
                Ok(Token::Symbol(symbol))
            }
            None if matches!(first, '&' | '|') => Err(self.unknown(&self.rest.chars().take(2).collect::<String>())),
            None => Err(self.unknown(&first.to_string())),
        }
    }

    fn unknown(&self, text: &str) -> Issue {
        Issue::new(self.position, format!("Syntax error: token recognition error at: '{text}'"))
    }

    fn number(&mut self) -> Result<Token, Issue> {
        let position = self.position;
        let bytes = self.rest.as_bytes();
        let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let is_unsigned = |end: usize| matches!(bytes.get(end), Some(b'u' | b'U'));
        let bad = |text: &str, kind: &str| Issue::new(position, format!("invalid {kind} literal '{text}'"));
        if let Some(hex) = self.rest.strip_prefix("0x").or_else(|| self.rest.strip_prefix("0X")) {
            let length = hex.bytes().take_while(u8::is_ascii_hexdigit).count();
            if length > 0 {
                let parsed = u64::from_str_radix(&hex[..length], 16);
                let unsigned = is_unsigned(2 + length);
                let text = self.take(2 + length + usize::from(unsigned));
                return integer(parsed.ok(), unsigned).ok_or_else(|| bad(text, if unsigned { "uint" } else { "int" }));
            }
        }
        let whole = digits(0);
        let mut end = whole;
        let has_fraction = bytes.get(end) == Some(&b'.') && digits(end + 1) > 0;
        if has_fraction {
            end += 1 + digits(end + 1);
        }
        let mut has_exponent = false;
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits((end + 1 + sign).min(bytes.len()));
            if exponent > 0 {
                has_exponent = true;
                end += 1 + sign + exponent;
            }
        }
        if has_fraction || has_exponent {
            let text = self.take(end);
            let parsed = text.parse::<f64>().ok().filter(|number| number.is_finite());
            return parsed.map(|number| Token::Literal(Literal::Double(number))).ok_or_else(|| bad(text, "double"));
        }
        let parsed = self.rest[..end].parse::<u64>();
        let unsigned = is_unsigned(end);
        let text = self.take(end + usize::from(unsigned));
        integer(parsed.ok(), unsigned).ok_or_else(|| bad(text, if unsigned { "uint" } else { "int" }))
    }

    /// A string or bytes literal in quotes, with its prefix, if one begins here.
    fn text(&mut self) -> Result<Option<Token>, Issue> {
        // Only the length of a prefix is searched: searching the whole text at each token would be quadratic.
        let prefix_end = self.rest.bytes().take(3).position(|byte| matches!(byte, b'\'' | b'"'));
        let Some(prefix_end) = prefix_end else { return Ok(None) };
        let prefix = &self.rest[..prefix_end];
        let (is_raw, is_bytes) = match prefix {
            "" => (false, false),
            "r" | "R" => (true, false),
            "b" | "B" => (false, true),
            "br" | "bR" | "Br" | "BR" | "rb" | "rB" | "Rb" | "RB" => (true, true),
            _ => return Ok(None),
        };
        let position = self.position;
        let body = &self.rest[prefix_end..];
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| body.starts_with(quote)).unwrap_or("'");
        let inner = &body[quote.len()..];
        let mut end = None;
        let mut escaped = false;
        for (at, char) in inner.char_indices() {
            if escaped {
                escaped = false;
            } else if char == '\\' && !is_raw {
                escaped = true;
            } else if inner[at..].starts_with(quote) {
                end = Some(at);
                break;
            } else if quote.len() == 1 && matches!(char, '\n' | '\r') {
                break;
            }
        }
        let Some(end) = end else {
            return Err(Issue::new(position, "Syntax error: token recognition error: a text in quotes does not end"));
        };
        let content = inner[..end].to_owned();
        self.take(prefix_end + quote.len() * 2 + end);
        let literal = match (is_raw, is_bytes) {
            (true, false) => Literal::String(content.into()),
            (true, true) => Literal::Bytes(content.into_bytes().into()),
            (false, is_bytes) => {
                let bytes = unescape(&content, is_bytes).ok_or_else(|| {
                    Issue::new(position, format!("Syntax error: unable to unescape string in '{content}'"))
                })?;
                if is_bytes {
                    Literal::Bytes(bytes.into())
                } else {
                    let text = String::from_utf8(bytes).map_err(|_| Issue::new(position, "invalid UTF-8 in a text"))?;
                    Literal::String(text.into())
                }
            }
        };
        Ok(Some(Token::Literal(literal)))
    }
}

fn integer(number: Option<u64>, unsigned: bool) -> Option<Token> {
    let number = number?;
    if unsigned {
        return Some(Token::Literal(Literal::Uint(number)));
    }
    match i64::try_from(number) {
        Ok(number) => Some(Token::Literal(Literal::Int(number))),
        Err(_) if number == 1 << 63 => Some(Token::IntMin),
        Err(_) => None,
    }
}

/// The bytes of an escaped literal.
fn unescape(text: &str, is_bytes: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            push(&mut out, char);
            continue;
        }
        let code = |chars: &mut std::str::Chars<'_>, digits: usize, radix: u32, first: u32| {
            let mut code = first;
            for _ in 0..digits {
                code = code.checked_mul(radix)?.checked_add(chars.next()?.to_digit(radix)?)?;
            }
            Some(code)
        };
        match chars.next()? {
            'a' => out.push(7),
            'b' => out.push(8),
            'f' => out.push(12),
            'n' => out.push(b'\n'),
            'r' => out.push(b'\r'),
            't' => out.push(b'\t'),
            'v' => out.push(11),
            same @ ('\\' | '\'' | '"' | '`' | '?') => push(&mut out, same),
            'x' | 'X' => {
                let code = code(&mut chars, 2, 16, 0)?;
                push_code(&mut out, code, is_bytes)?;
            }
            'u' if !is_bytes => push_code(&mut out, code(&mut chars, 4, 16, 0)?, false)?,
            'U' if !is_bytes => push_code(&mut out, code(&mut chars, 8, 16, 0)?, false)?,
            first @ '0'..='3' => {
                let code = code(&mut chars, 2, 8, first.to_digit(8)?)?;
                push_code(&mut out, code, is_bytes)?;
            }
            _ => return None,
        }
    }
    Some(out)
}

fn push(out: &mut Vec<u8>, char: char) {
    out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
}

/// In bytes a code is a byte, in strings a character.
fn push_code(out: &mut Vec<u8>, code: u32, is_bytes: bool) -> Option<()> {
    if is_bytes {
        out.push(u8::try_from(code).ok()?);
    } else {
        push(out, char::from_u32(code)?);
    }
    Some(())
}
