//! URLs as Go's `url.ParseRequestURI` parses them: absolute, or an absolute path.

use std::fmt::Write;
use steersman_schema::format;

/// The parts of a URL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Url {
    pub(crate) scheme: String,
    user: String,
    /// The host, with the port.
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
}

impl Url {
    pub(crate) fn bytes(&self) -> usize {
        [&self.scheme, &self.user, &self.host, &self.path, &self.query].map(String::len).iter().sum()
    }
}

pub(crate) fn parse(text: &str) -> Option<Url> {
    if !format::is_match("uri", text) {
        return None;
    }
    let scheme_end = text.find(|char: char| !(char.is_ascii_alphanumeric() || matches!(char, '+' | '-' | '.')));
    let (scheme, rest) = match scheme_end {
        Some(end) if text[end..].starts_with(':') => (text[..end].to_ascii_lowercase(), &text[end + 1..]),
        _ => (String::new(), text),
    };
    // No function returns the fragment, so it is dropped.
    let (rest, _) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match rest.strip_prefix("//") {
        Some(behind) if !scheme.is_empty() || !rest.starts_with("///") => {
            behind.find('/').map_or((behind, ""), |slash| behind.split_at(slash))
        }
        // Without a slash the rest is opaque, and there is no path.
        _ if rest.starts_with('/') || scheme.is_empty() => ("", rest),
        _ => ("", ""),
    };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    Some(Url {
        scheme,
        user: user.to_owned(),
        host: path_unescape(host).unwrap_or_else(|| host.to_owned()),
        path: path.to_owned(),
        query: query.to_owned(),
    })
}

/// The host without the brackets of an IPv6 address, and the port.
pub(crate) fn host_and_port(host: &str) -> (&str, &str) {
    let bracket = host.rfind(']');
    let colon = host.rfind(':').filter(|colon| bracket.is_none_or(|bracket| bracket < *colon));
    let (name, port) = match colon {
        Some(colon) if host[colon + 1..].bytes().all(|byte| byte.is_ascii_digit()) => {
            (&host[..colon], &host[colon + 1..])
        }
        _ => (host, ""),
    };
    let name = name.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(name);
    (name, port)
}

/// The path as written if it is correctly escaped, otherwise escaped anew.
pub(crate) fn escaped_path(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte);
    let is_right = path.bytes().all(|byte| is_plain(byte) || b"!'()*[]%".contains(&byte));
    if is_right {
        return path.to_owned();
    }
    let decoded = unescaped(path, b'+').unwrap_or_else(|| path.as_bytes().to_vec());
    let mut out = String::with_capacity(decoded.len() + 16);
    for byte in decoded {
        if is_plain(byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Decodes percent escapes, and writes `plus` for each plus sign.
fn unescaped(text: &str, plus: u8) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            b'+' => out.push(plus),
            _ => out.push(byte),
        }
    }
    Some(out)
}

/// Decodes percent escapes as Go's `url.PathUnescape`.
fn path_unescape(text: &str) -> Option<String> {
    unescaped(text, b'+').map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Decodes percent escapes as Go's `url.QueryUnescape`: a plus sign is a blank.
pub(crate) fn query_unescape(text: &str) -> Option<String> {
    unescaped(text, b' ').map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
