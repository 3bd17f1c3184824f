//! The grammar of the tables in `tests/refusals`, which its README describes: rows of a request and its required
//! answer.

use std::collections::BTreeMap;

/// One row of a table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// The sender: a name that the test knows.
    pub(crate) who: String,
    pub(crate) request: Request,
    pub(crate) want: Want,
    /// The required text of the answer: the whole message of a refusal, or parts of the answer to a granted request.
    pub(crate) text: String,
}

/// The request, byte by byte.
#[derive(Debug)]
pub(crate) enum Request {
    Http1 {
        method: Vec<u8>,
        path: Vec<u8>,
        version: String,
        headers: Vec<Vec<u8>>,
        body: Vec<u8>,
    },
    /// Names and values as in the row, pseudo-headers included.
    Http2 {
        headers: Vec<(Vec<u8>, Vec<u8>)>,
    },
}

/// The required answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Want {
    /// The connection is closed, or the stream reset, without an answer.
    Closed,
    /// The request is granted.
    Granted(u16),
    /// A Status with this code and reason.
    Refused(u16, String),
    /// Plain text, or nothing.
    Text(u16),
}

/// Reads a table. A name in braces is replaced by its value; `{long:N}` is N times the letter a, `{deep:N}` N nested
/// lists, `{many:N}` N words of 50 letters.
#[track_caller]
pub(crate) fn parse(table: &str, values: &BTreeMap<String, String>) -> Vec<Row> {
    let mut rows = table.split("\n=== ");
    rows.next();
    rows.map(|text| row(text, values).unwrap_or_else(|why| panic!("{why} in this row:\n=== {text}"))).collect()
}

fn row(text: &str, values: &BTreeMap<String, String>) -> Result<Row, String> {
    let (name, text) = text.split_once('\n').ok_or("there is only a name")?;
    let (sent, answer) = text.split_once("\n>>> ").ok_or("no >>>")?;
    let (head, body) = sent.split_once("\n\n").unwrap_or((sent, ""));
    let mut lines = head.lines().filter(|line| !line.starts_with("# "));
    let mut words = lines.next().ok_or("no request")?.split(' ');
    let who = words.next().unwrap_or_default().to_owned();
    let request = match (words.next(), words.next(), words.next()) {
        (Some("HTTP/2"), None, None) => Request::Http2 {
            headers: lines
                .map(|line| {
                    // The name of a pseudo-header begins with a colon.
                    let colon = line.char_indices().skip(1).find(|(_, char)| *char == ':');
                    let (at, _) = colon.ok_or_else(|| format!("no header is {line:?}"))?;
                    Ok((bytes(&line[..at], values), bytes(line[at + 1..].trim_start(), values)))
                })
                .collect::<Result<_, String>>()?,
        },
        (Some(method), Some(path), version) => Request::Http1 {
            method: bytes(method, values),
            path: bytes(path, values),
            version: version.unwrap_or("HTTP/1.1").to_owned(),
            headers: lines.map(|line| bytes(line, values)).collect(),
            body: bytes(body, values),
        },
        _ => return Err("want WHO METHOD PATH, or WHO HTTP/2".to_owned()),
    };
    let (want, text) = answer.split_once('\n').unwrap_or((answer, ""));
    let want = match want.split_once(' ').unwrap_or((want, "")) {
        ("closed", _) => Want::Closed,
        (code, reason) => {
            let code: u16 = code.parse().map_err(|_| format!("{code:?} is no status"))?;
            match reason {
                "" if code < 300 => Want::Granted(code),
                "" => return Err(format!("a reason, or text, is missing behind {code}")),
                "text" => Want::Text(code),
                reason => Want::Refused(code, reason.to_owned()),
            }
        }
    };
    let text = String::from_utf8(bytes(text.trim_end(), values)).map_err(|error| error.to_string())?;
    Ok(Row { name: name.to_owned(), who, request, want, text })
}

/// The bytes that the text of a row represents.
fn bytes(text: &str, values: &BTreeMap<String, String>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix("\\\\") {
            bytes.push(b'\\');
            rest = behind;
            continue;
        }
        if let Some(escaped) = rest.strip_prefix("\\x")
            && let Some(byte) = escaped.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok())
        {
            bytes.push(byte);
            rest = &escaped[2..];
            continue;
        }
        if let Some((name, behind)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            let repeated = |prefix: &str| name.strip_prefix(prefix).and_then(|n| n.parse::<usize>().ok());
            let long = repeated("long:").map(|n| "a".repeat(n));
            let deep = || repeated("deep:").map(|n| format!("{}{}", "[".repeat(n), "]".repeat(n)));
            let many = || repeated("many:").map(|n| vec!["a".repeat(50); n].join(","));
            let value = long.or_else(deep).or_else(many).or_else(|| values.get(name).cloned());
            if let Some(value) = value {
                bytes.extend(value.bytes());
                rest = behind;
                continue;
            }
        }
        bytes.extend(char.to_string().bytes());
        rest = &rest[char.len_utf8()..];
    }
    bytes
}
