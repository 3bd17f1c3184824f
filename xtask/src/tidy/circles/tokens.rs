//! Splits Rust source into words and punctuation, without comments, strings and lifetimes.

/// A token, as far as paths and items need it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Token<'a> {
    Ident(&'a str),
    /// A number, a string, a character or a lifetime.
    Literal,
    /// One character of punctuation.
    Punct(u8),
}

pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let at = |index: usize| bytes.get(index).copied().unwrap_or_default();
    let (mut tokens, mut index) = (Vec::new(), 0);
    while index < bytes.len() {
        let byte = bytes[index];
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => index += 1,
            b'/' if at(index + 1) == b'/' => index = text[index..].find('\n').map_or(bytes.len(), |n| index + n),
            b'/' if at(index + 1) == b'*' => index = after_comment(bytes, index),
            b'"' => {
                index = after_string(bytes, index);
                tokens.push(Token::Literal);
            }
            b'\'' => {
                index = after_quote(text, index);
                tokens.push(Token::Literal);
            }
            _ if is_word(byte) => {
                let end = index + bytes[index..].iter().take_while(|byte| is_word(**byte)).count();
                let word = &text[index..end];
                let n_hashes = bytes[end..].iter().take_while(|byte| **byte == b'#').count();
                let is_prefix = matches!(word, "r" | "b" | "br" | "c" | "cr");
                if is_prefix && at(end + n_hashes) == b'"' && (n_hashes == 0 || word.ends_with('r')) {
                    index = match word.ends_with('r') {
                        true => after_raw_string(text, end, n_hashes),
                        false => after_string(bytes, end),
                    };
                    tokens.push(Token::Literal);
                } else if word == "b" && at(end) == b'\'' {
                    index = after_quote(text, end);
                    tokens.push(Token::Literal);
                } else if word == "r" && n_hashes == 1 {
                    // A raw identifier: the word follows as its own token.
                    index = end + 1;
                } else {
                    tokens.push(if byte.is_ascii_digit() { Token::Literal } else { Token::Ident(word) });
                    index = end;
                }
            }
            _ => {
                tokens.push(Token::Punct(byte));
                index += 1;
            }
        }
    }
    tokens
}

/// Letters beyond ASCII count as words, since no other character beyond ASCII occurs in code.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn after_comment(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut index) = (0, start);
    while index < bytes.len() {
        match &bytes[index..bytes.len().min(index + 2)] {
            b"/*" => (depth, index) = (depth + 1, index + 2),
            b"*/" => (depth, index) = (depth - 1, index + 2),
            _ => index += 1,
        }
        if depth == 0 {
            return index;
        }
    }
    index
}

fn after_string(bytes: &[u8], start: usize) -> usize {
    let mut index = start + 1;
    while index < bytes.len() && bytes[index] != b'"' {
        index += if bytes[index] == b'\\' { 2 } else { 1 };
    }
    index + 1
}

/// The index after a raw string whose hashes begin at `start`.
fn after_raw_string(text: &str, start: usize, n_hashes: usize) -> usize {
    let begin = start + n_hashes + 1;
    let end = format!("\"{}", "#".repeat(n_hashes));
    text[begin..].find(&end).map_or(text.len(), |n| begin + n + end.len())
}

/// The index after a character literal, or after the quote of a lifetime.
fn after_quote(text: &str, start: usize) -> usize {
    let rest = &text[start + 1..];
    if rest.starts_with('\\') {
        // The escaped character may be a quote itself.
        let escaped = 2.min(rest.len());
        return rest[escaped..].find('\'').map_or(text.len(), |n| start + 1 + escaped + n + 1);
    }
    let mut characters = rest.char_indices();
    match (characters.next(), characters.next()) {
        (Some(_), Some((n, '\''))) => start + 1 + n + 1,
        _ => start + 1 + rest.bytes().take_while(|byte| is_word(*byte)).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let told = tokens(text).into_iter().map(|token| match token {
            Token::Ident(word) => word.to_owned(),
            Token::Literal => "_".to_owned(),
            Token::Punct(sign) => char::from(sign).to_string(),
        });
        assert_eq!(told.collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn comments_and_strings_are_gone() {
        check("a // b\nc /* d /* e */ f */ g", "a c g");
        check(r##"a("crate::b \" c", r#"d " e"#, b"f", 'g', '\'', b'h', "x")"##, "a ( _ , _ , _ , _ , _ , _ , _ )");
        check("\"\\\\\" a", "_ a");
    }

    #[test]
    fn lifetimes_are_no_characters() {
        check("fn a<'b>(c: &'b str, d: &'static T) -> 'e'", "fn a < _ > ( c : & _ str , d : & _ T ) - > _");
        check("'\u{e9}' r#type 1.0 0xff_u8", "_ type _ . _ _");
    }
}
