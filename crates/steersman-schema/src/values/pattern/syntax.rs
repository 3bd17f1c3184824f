//! The syntax of Go's regular expressions and Go's messages for errors in them, as Kubernetes reports them for an
//! invalid pattern.
//!
//! A pattern is read once from its beginning, and the first error is reported. Go accepts every pattern that passes
//! here; whether the `regex` crate accepts it too is found when it compiles the pattern.

/// The largest number of repetitions, with nested repetitions multiplied.
const REPEATED_MAX: u32 = 1000;
/// The maximum nesting of groups.
const DEPTH_MAX: usize = 1000;

/// The error of a pattern: ``missing closing ): `(` ``. None if it is valid.
pub(super) fn fault(text: &str) -> Option<String> {
    let mut reader = Reader { whole: text, rest: text, groups: Vec::new(), atom: None, repetition: None };
    reader.read().err().map(|Fault { what, part }| format!("{what}: `{part}`"))
}

struct Fault<'t> {
    what: &'static str,
    /// The part of the pattern that the error is about.
    part: &'t str,
}

struct Reader<'t> {
    whole: &'t str,
    rest: &'t str,
    /// The open groups: for each, the number of repetitions of its most repeated part.
    groups: Vec<u32>,
    /// The item that a repetition operator would apply to, if there is one: its number of repetitions so far.
    atom: Option<u32>,
    /// The text from the previous repetition operator on, if it came just before.
    repetition: Option<&'t str>,
}

/// The bounds of a repetition.
struct Count {
    least: Option<u32>,
    /// None: unbounded.
    most: Option<Option<u32>>,
}

impl<'t> Reader<'t> {
    fn read(&mut self) -> Result<(), Fault<'t>> {
        // For each open group, the maximum number of repetitions in its alternatives so far; the last is the group that
        // is being read.
        self.groups.push(1);
        while let Some(char) = self.rest.chars().next() {
            let before = self.rest;
            let previous = self.repetition.take();
            match char {
                '(' => self.open()?,
                '|' => {
                    self.close_atom();
                    self.rest = &before[1..];
                }
                ')' => {
                    self.close_atom();
                    if self.groups.len() == 1 {
                        return Err(Fault { what: "unexpected )", part: self.whole });
                    }
                    self.atom = self.groups.pop();
                    self.rest = &before[1..];
                }
                '[' => {
                    self.rest = class(before)?;
                    self.new_atom(1);
                }
                '*' | '+' | '?' => self.repeat(before, &before[1..], previous, None)?,
                '{' => match counted(before) {
                    Some((count, after)) => self.repeat(before, after, previous, Some(count))?,
                    None => self.character(),
                },
                '\\' => {
                    self.rest = escape(before)?;
                    self.new_atom(1);
                }
                _ => self.character(),
            }
        }
        self.close_atom();
        if self.groups.len() > 1 {
            return Err(Fault { what: "missing closing )", part: self.whole });
        }
        Ok(())
    }

    fn character(&mut self) {
        let length = self.rest.chars().next().map_or(0, char::len_utf8);
        self.rest = &self.rest[length..];
        self.new_atom(1);
    }

    fn new_atom(&mut self, repeated: u32) {
        self.close_atom();
        self.atom = Some(repeated);
    }

    fn close_atom(&mut self) {
        if let (Some(repeated), Some(group)) = (self.atom.take(), self.groups.last_mut()) {
            *group = repeated.max(*group);
        }
    }

    fn open(&mut self) -> Result<(), Fault<'t>> {
        self.close_atom();
        let before = self.rest;
        match before.strip_prefix("(?") {
            None => self.rest = &before[1..],
            Some(flags) => {
                let (rest, opens) = flagged(before, flags)?;
                self.rest = rest;
                if !opens {
                    return Ok(());
                }
            }
        }
        self.groups.push(1);
        if self.groups.len() > DEPTH_MAX {
            return Err(Fault { what: "expression nests too deeply", part: self.whole });
        }
        Ok(())
    }

    fn repeat(
        &mut self,
        before: &'t str,
        after: &'t str,
        previous: Option<&'t str>,
        count: Option<Count>,
    ) -> Result<(), Fault<'t>> {
        // A question mark after the operator makes it lazy.
        let end = after.strip_prefix('?').unwrap_or(after);
        let part = |from: &'t str, to: &str| &from[..from.len() - to.len()];
        let too_often = Fault { what: "invalid repeat count", part: part(before, after) };
        if let Some(Count { least, most }) = &count {
            let is_large = |number: &Option<u32>| number.is_none_or(|number| number > REPEATED_MAX);
            let is_reversed = matches!((least, most), (Some(least), Some(Some(most))) if most < least);
            if is_large(least) || most.as_ref().is_some_and(is_large) || is_reversed {
                return Err(too_often);
            }
        }
        if let Some(previous) = previous {
            return Err(Fault { what: "invalid nested repetition operator", part: part(previous, end) });
        }
        let Some(inner) = self.atom else {
            return Err(Fault { what: "missing argument to repetition operator", part: part(before, end) });
        };
        let times = match count {
            None => 1,
            Some(Count { least, most: None }) => least.unwrap_or(1),
            Some(Count { most: Some(most), .. }) => most.unwrap_or(1),
        };
        let repeated = inner.saturating_mul(times.max(1));
        if times >= 2 && repeated > REPEATED_MAX {
            return Err(Fault { what: "invalid repeat count", part: part(before, end) });
        }
        self.atom = Some(repeated);
        self.repetition = Some(before);
        self.rest = end;
        Ok(())
    }
}

/// The rest after `(?flags)`, `(?flags:` or `(?P<name>`, and whether a group was opened.
fn flagged<'t>(whole: &'t str, flags: &'t str) -> Result<(&'t str, bool), Fault<'t>> {
    let name = flags.strip_prefix("P<").filter(|name| !name.is_empty()).or_else(|| flags.strip_prefix('<'));
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        let Some((name, rest)) = name.split_once('>') else {
            return Err(Fault { what: "invalid named capture", part: whole });
        };
        let is_word = |char: char| char == '_' || char.is_ascii_alphanumeric();
        if name.is_empty() || !name.chars().all(is_word) {
            return Err(Fault { what: "invalid named capture", part: &whole[..whole.len() - rest.len()] });
        }
        return Ok((rest, true));
    }
    let mut is_negative = false;
    let mut has_flag = false;
    let mut end = whole.len();
    for (at, char) in flags.char_indices() {
        end = 2 + at + char.len_utf8();
        match char {
            'i' | 'm' | 's' | 'U' => has_flag = true,
            '-' if !is_negative => {
                is_negative = true;
                has_flag = false;
            }
            ':' | ')' if !is_negative || has_flag => return Ok((&whole[end..], char == ':')),
            _ => break,
        }
    }
    Err(Fault { what: "invalid or unsupported Perl syntax", part: &whole[..end] })
}

/// `{2}`, `{2,}` or `{2,3}` and the rest after it; none if the brace is an ordinary character.
fn counted(text: &str) -> Option<(Count, &str)> {
    let (inside, rest) = text[1..].split_once('}')?;
    let (low, high) = match inside.split_once(',') {
        Some((low, high)) => (low, Some(high)),
        None => (inside, None),
    };
    let is_number = |text: &str| {
        let has_zeros = text.len() > 1 && text.starts_with('0');
        !text.is_empty() && !has_zeros && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !is_number(low) || high.is_some_and(|high| !high.is_empty() && !is_number(high)) {
        return None;
    }
    let least = low.parse().ok();
    let most = match high {
        None => Some(least),
        Some("") => None,
        Some(high) => Some(high.parse().ok()),
    };
    Some((Count { least, most }, rest))
}

/// The rest after a class that begins with `[`.
fn class(whole: &str) -> Result<&str, Fault<'_>> {
    let mut rest = whole[1..].strip_prefix('^').unwrap_or(&whole[1..]);
    let mut is_first = true;
    loop {
        if let Some(behind) = rest.strip_prefix(']')
            && !is_first
        {
            return Ok(behind);
        }
        is_first = false;
        if let Some(inside) = rest.strip_prefix("[:")
            && let Some(length) = inside.find(":]")
        {
            let named = &rest[..length + 4];
            if !is_posix(inside[..length].strip_prefix('^').unwrap_or(&inside[..length])) {
                return Err(Fault { what: "invalid character class range", part: named });
            }
            rest = &rest[named.len()..];
            continue;
        }
        if rest.starts_with(['\\']) && rest[1..].starts_with(['p', 'P', 'd', 'D', 's', 'S', 'w', 'W']) {
            rest = escape(rest)?;
            continue;
        }
        let (low, behind) = member(rest, whole)?;
        let range = rest;
        rest = behind;
        if let Some(behind) = rest.strip_prefix('-').filter(|behind| !behind.is_empty() && !behind.starts_with(']')) {
            let (high, behind) = member(behind, whole)?;
            rest = behind;
            if high < low {
                let part = &range[..range.len() - rest.len()];
                return Err(Fault { what: "invalid character class range", part });
            }
        }
    }
}

/// One character of a class, escaped or not, and the rest after it.
fn member<'t>(text: &'t str, whole: &'t str) -> Result<(char, &'t str), Fault<'t>> {
    match text.chars().next() {
        None => Err(Fault { what: "missing closing ]", part: whole }),
        Some('\\') => {
            let rest = plain_escape(text)?;
            Ok((escaped(&text[1..text.len() - rest.len()]), rest))
        }
        Some(char) => Ok((char, &text[char.len_utf8()..])),
    }
}

/// The character that an escape stands for, without its backslash.
fn escaped(escape: &str) -> char {
    let number = |digits: &str, base| u32::from_str_radix(digits, base).ok().and_then(char::from_u32);
    let found = match escape.chars().next() {
        Some('a') => Some('\u{7}'),
        Some('f') => Some('\u{c}'),
        Some('n') => Some('\n'),
        Some('r') => Some('\r'),
        Some('t') => Some('\t'),
        Some('v') => Some('\u{b}'),
        Some('x') => number(escape[1..].trim_start_matches('{').trim_end_matches('}'), 16),
        Some('0'..='7') => number(escape, 8),
        other => other,
    };
    found.unwrap_or_default()
}

fn is_posix(name: &str) -> bool {
    let names = "alnum alpha ascii blank cntrl digit graph lower print punct space upper word xdigit";
    names.split(' ').any(|known| known == name)
}

/// The rest after an escape outside of a class, or after the escape of a whole class.
fn escape(text: &str) -> Result<&str, Fault<'_>> {
    let Some(letter) = text[1..].chars().next() else { return plain_escape(text) };
    let behind = &text[1 + letter.len_utf8()..];
    match letter {
        'A' | 'b' | 'B' | 'z' | 'd' | 'D' | 's' | 'S' | 'w' | 'W' => Ok(behind),
        'Q' => Ok(behind.split_once(r"\E").map_or("", |(_, rest)| rest)),
        'p' | 'P' => property(text),
        _ => plain_escape(text),
    }
}

/// The rest after `\p{Greek}` or `\pL`.
fn property(text: &str) -> Result<&str, Fault<'_>> {
    let inside = &text[2..];
    let (part, name) = match inside.strip_prefix('{') {
        Some(braced) => match braced.split_once('}') {
            Some((name, rest)) => (&text[..text.len() - rest.len()], name),
            None => return Err(Fault { what: "invalid character class range", part: text }),
        },
        None => {
            let length = inside.chars().next().map_or(0, char::len_utf8);
            (&text[..2 + length], &inside[..length])
        }
    };
    let name = name.strip_prefix('^').unwrap_or(name);
    // `regex` knows all of Go's names, and some more.
    let is_known =
        !name.is_empty() && !name.contains(['=', ':']) && regex_syntax::parse(&format!(r"\p{{{name}}}")).is_ok();
    if is_known { Ok(&text[part.len()..]) } else { Err(Fault { what: "invalid character class range", part }) }
}

/// The rest after an escape of one character.
fn plain_escape(text: &str) -> Result<&str, Fault<'_>> {
    let Some(letter) = text[1..].chars().next() else {
        return Err(Fault { what: "trailing backslash at end of expression", part: "" });
    };
    let behind = &text[1 + letter.len_utf8()..];
    let bad = |rest: &str| Err(Fault { what: "invalid escape sequence", part: &text[..text.len() - rest.len()] });
    let octal = |text: &str| text.bytes().take(2).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    match letter {
        '1'..='7' if octal(behind) == 0 => bad(behind),
        '0'..='7' => Ok(&behind[octal(behind)..]),
        'x' => match behind.strip_prefix('{') {
            Some(braced) => {
                let digits = braced.find(|char: char| !char.is_ascii_hexdigit()).unwrap_or(braced.len());
                let number = u32::from_str_radix(&braced[..digits], 16).ok().filter(|number| *number <= 0x0010_FFFF);
                match braced[digits..].strip_prefix('}') {
                    Some(rest) if number.is_some() => Ok(rest),
                    _ => bad(braced[digits..].get(1..).unwrap_or_default()),
                }
            }
            None if behind.len() >= 2 && behind.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()) => {
                Ok(&behind[2..])
            }
            None => {
                let read = behind.char_indices().nth(2).map_or(behind.len(), |(at, _)| at);
                bad(&behind[read..])
            }
        },
        'a' | 'f' | 'n' | 'r' | 't' | 'v' => Ok(behind),
        _ if letter.is_ascii() && !letter.is_ascii_alphanumeric() => Ok(behind),
        _ => bad(behind),
    }
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn faults_are_named_as_go_names_them() {
        for (text, want) in [
            ("(", "missing closing ): `(`"),
            ("a(b|(c)", "missing closing ): `a(b|(c)`"),
            ("a)b", "unexpected ): `a)b`"),
            ("[a", "missing closing ]: `[a`"),
            ("x[]", "missing closing ]: `[]`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a|+?", "missing argument to repetition operator: `+?`"),
            ("(?i)*", "missing argument to repetition operator: `*`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("x++", "invalid nested repetition operator: `++`"),
            ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            ("a*??", "invalid nested repetition operator: `*??`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{3,2}", "invalid repeat count: `{3,2}`"),
            ("(a{100}){11}", "invalid repeat count: `{11}`"),
            ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
            ("(?<=a)", "invalid named capture: `(?<=a)`"),
            ("(?P<a-b>c)", "invalid named capture: `(?P<a-b>`"),
            ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
            (r"a\", "trailing backslash at end of expression: ``"),
            (r"\h", r"invalid escape sequence: `\h`"),
            (r"\1", r"invalid escape sequence: `\1`"),
            (r"[\x{zz}]", r"invalid escape sequence: `\x{z`"),
        ] {
            assert_eq!(fault(text).as_deref(), Some(want), "{text}");
        }
    }

    #[test]
    fn patterns_have_no_fault() {
        for text in [
            "",
            "^$",
            "a{2}b{,3}",
            "{x}",
            "a{1000}",
            "(a{10}){100}",
            "[]a]",
            "[^]a]",
            "[a-]",
            "[[a]",
            r"[\d\-z]",
            "a{0,}?",
            "(?i:a)(?P<x_1>b)(?<y>c)(?s-i)d",
            r"\Q(*\E+",
            r"\pL\P{^Greek}",
            r"\x{10FFFF}\x41\012\.",
            "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            "(|a)*",
            "a{01}",
            "()*",
            "^*",
        ] {
            assert_eq!(fault(text), None, "{text}");
        }
    }
}
