//! The string formats that schemas of custom resources may require.
//!
//! The list and the accepted strings follow kube-openapi's `strfmt` as apiextensions uses it; other formats are not
//! checked. Dashes in a format's name are ignored: `date-time` is `datetime`.

use crate::model::schema::{Schema, Type};
use regex::Regex;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;
use steersman_machinery::{Value, duration, name};

/// The format of a schema, if it is checked for the schema's type.
pub(crate) fn checked(schema: &Schema) -> Option<&str> {
    let format = schema.format.as_deref()?;
    let known = match schema.value_type {
        Type::Any | Type::IntOrString | Type::String => find(format).is_some(),
        Type::Integer => matches!(format, "int32" | "int64"),
        Type::Number => matches!(format, "double" | "float"),
        Type::Array | Type::Boolean | Type::Object => false,
    };
    known.then_some(format)
}

/// Whether a string has a format; true for unknown formats.
pub fn is_match(format: &str, text: &str) -> bool {
    find(format).is_none_or(|check| check(text))
}

/// The unknown formats in a definition, which are not checked, for warnings.
pub fn unrecognized(open_api_v3_schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    fn visit(schema: &Schema, found: &mut BTreeSet<String>) {
        if let (Some(format), None) = (schema.format.as_deref(), checked(schema)) {
            found.insert(format.to_owned());
        }
        let logic = schema.logic.iter().flat_map(|logic| {
            logic.all_of.iter().chain(&logic.any_of).chain(&logic.one_of).chain(logic.not.as_deref())
        });
        let properties = schema.properties.iter().map(|(_, property)| property);
        for inner in properties.chain(schema.items.as_deref()).chain(schema.values()).chain(logic) {
            visit(inner, found);
        }
    }
    visit(&Schema::from_json(open_api_v3_schema), &mut found);
    found
}

fn find(format: &str) -> Option<fn(&str) -> bool> {
    let check: fn(&str) -> bool = match format.replace('-', "").as_str() {
        "bsonobjectid" => |text| text.len() == 24 && is_hex(text),
        "byte" => |text| !text.is_empty() && is_padded_base64(text),
        "cidr" => is_cidr,
        "creditcard" => is_credit_card,
        "date" => is_date,
        "datetime" => is_date_time,
        "duration" => |text| duration::parse_lenient(text).is_some(),
        "email" => is_email,
        "hexcolor" => is_hex_color,
        "hostname" => is_hostname,
        "ipv4" => |text| text.contains('.') && is_ip(text),
        "ipv6" => |text| text.contains(':') && is_ip(text),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "k8slongname" => |text| name::dns1123_subdomain(text).is_empty(),
        "k8sshortname" => |text| name::dns1123_label(text).is_empty(),
        "mac" => is_mac,
        "password" => |_| true,
        "rgbcolor" => is_rgb_color,
        "ssn" => is_ssn,
        "uri" => is_request_uri,
        "uuid" => |text| uuid_digits(text).is_some(),
        "uuid3" => |text| is_uuid(text, b'3', false),
        "uuid4" => |text| is_uuid(text, b'4', true),
        "uuid5" => |text| is_uuid(text, b'5', true),
        _ => return None,
    };
    Some(check)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_padded_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

// === addresses ===

/// Leading zeros are allowed, as Go did once and Kubernetes still does.
fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next().filter(|part| is_digits(part))?;
        let trimmed = part.trim_start_matches('0');
        *octet = if trimmed.is_empty() { 0 } else { trimmed.parse().ok()? };
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

fn is_ip(text: &str) -> bool {
    ipv4(text).is_some() || text.parse::<Ipv6Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let bits_max = match (ipv4(address), address.parse::<Ipv6Addr>()) {
        (Some(_), _) => 32,
        (None, Ok(_)) => 128,
        (None, Err(_)) => return false,
    };
    is_digits(bits) && bits.parse::<u32>().is_ok_and(|bits| bits <= bits_max)
}

fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize| {
        text.split(separator).all(|group| group.len() == width && is_hex(group)).then(|| text.split(separator).count())
    };
    let n_bytes = match text.as_bytes().get(2) {
        Some(b':') => groups(':', 2),
        Some(b'-') => groups('-', 2),
        _ => groups('.', 4).map(|count| count * 2),
    };
    matches!(n_bytes, Some(6 | 8 | 20))
}

fn is_hostname(text: &str) -> bool {
    static SHAPE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let letter = r"[a-zA-Z0-9\p{S}\p{L}]";
        let single = format!("{letter}(-?{letter}{{0,62}})?");
        let label = format!(r"{letter}([a-zA-Z0-9\-\p{{S}}\p{{L}}]{{0,61}}{letter})?");
        Regex::new(&format!(r"^({single}|({label}\.)+[a-zA-Z\p{{L}}]{{2,63}})$")).ok()
    });
    let shaped = SHAPE.as_ref().is_some_and(|shape| shape.is_match(text));
    shaped && text.len() <= 255 && text.split('.').all(|label| label.len() <= 63)
}

fn is_request_uri(text: &str) -> bool {
    let is_escaped = |text: &str| text.split('%').skip(1).all(|rest| rest.get(..2).is_some_and(is_hex));
    if text.is_empty() || text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return false;
    }
    let scheme_end = text.find(|char: char| !(char.is_ascii_alphanumeric() || matches!(char, '+' | '-' | '.')));
    let rest = match scheme_end {
        Some(end) if text[end..].starts_with(':') => {
            if !text.starts_with(|char: char| char.is_ascii_alphabetic()) {
                return false;
            }
            &text[end + 1..]
        }
        _ if text == "*" => return true,
        _ if text.starts_with('/') => text,
        _ => return false,
    };
    let before_query = rest.split_once('?').map_or(rest, |(path, _)| path);
    let authority = match before_query.strip_prefix("//") {
        Some(authority) if !before_query.starts_with("///") && scheme_end != Some(0) => {
            authority.split_once('/').map_or(authority, |(authority, _)| authority)
        }
        // A path, or an opaque URI such as `mailto:a@b`.
        _ => return !rest.starts_with('/') || is_escaped(before_query),
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match host.strip_prefix('[') {
        Some(literal) => match literal.split_once(']') {
            Some((_, rest)) => ("", rest),
            None => return false,
        },
        None => host.rfind(':').map_or((host, ""), |colon| host.split_at(colon)),
    };
    let port_is_right =
        port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.is_empty() || is_digits(port));
    let host_is_right = !host.contains([' ', '<', '>', '"', '\\', '^', '`', '{', '|', '}', '/']);
    port_is_right && host_is_right && is_escaped(before_query)
}

fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let address = match text.strip_suffix('>').and_then(|text| text.rsplit_once('<')) {
        Some((_, address)) => address,
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_atom = |text: &str| {
        !text.is_empty()
            && text.chars().all(|char| {
                char.is_ascii_alphanumeric()
                    || "!#$%&'*+-/=?^_`{|}~".contains(char)
                    || (!char.is_ascii() && !char.is_control())
            })
    };
    let is_dot_atom = |text: &str| text.split('.').all(is_atom);
    let is_quoted = |text: &str| {
        let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        inner.is_some_and(|inner| !inner.is_empty() && !inner.contains(['"', '\n', '\r']))
    };
    let is_literal = |text: &str| {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        inner.is_some_and(is_ip)
    };
    (is_dot_atom(local) || is_quoted(local)) && (is_dot_atom(domain) || is_literal(domain))
}

// === times ===

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else { return false };
    let shaped = [(year, 4), (month, 2), (day, 2)].iter().all(|(part, width)| part.len() == *width && is_digits(part));
    shaped && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((date, time)) = lower.split_once('t') else { return false };
    let pair = |at: usize, max: &str| time.get(at..at + 2).is_some_and(|pair| is_digits(pair) && pair <= max);
    let colons = time.get(2..3) == Some(":") && time.get(5..6) == Some(":");
    let Some(rest) = time.get(8..) else { return false };
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => {
            let end = fraction.find(|char: char| !char.is_ascii_digit()).unwrap_or(fraction.len());
            if end == 0 {
                return false;
            }
            &fraction[end..]
        }
        None => rest,
    };
    let is_zone = rest == "z"
        || rest.strip_prefix(['+', '-']).and_then(|offset| offset.split_once(':')).is_some_and(|(hours, minutes)| {
            hours.len() == 2 && minutes.len() == 2 && is_digits(hours) && is_digits(minutes)
        });
    is_date(date) && pair(0, "23") && colons && pair(3, "59") && pair(6, "59") && is_zone
}

// === identifiers ===

fn uuid_digits(text: &str) -> Option<[u8; 32]> {
    let mut digits = [0_u8; 32];
    let mut count = 0;
    let mut just_dashed = false;
    for byte in text.bytes() {
        match byte {
            b'-' if matches!(count, 8 | 12 | 16 | 20) && !just_dashed => just_dashed = true,
            _ if byte.is_ascii_hexdigit() => {
                *digits.get_mut(count)? = byte.to_ascii_lowercase();
                count += 1;
                just_dashed = false;
            }
            _ => return None,
        }
    }
    (count == 32).then_some(digits)
}

fn is_uuid(text: &str, version: u8, with_variant: bool) -> bool {
    uuid_digits(text).is_some_and(|digits| {
        digits[12] == version && (!with_variant || matches!(digits[16], b'8' | b'9' | b'a' | b'b'))
    })
}

fn without_spaces_and_dashes(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'-').collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = without_spaces_and_dashes(text);
    let Some((last, first)) = digits.split_last().filter(|_| digits.len() == 10) else { return false };
    if !first.iter().all(u8::is_ascii_digit) || !(last.is_ascii_digit() || *last == b'X') {
        return false;
    }
    let check = if *last == b'X' { 10 } else { u32::from(last - b'0') };
    let sum: u32 = (1..).zip(first).map(|(weight, digit)| weight * u32::from(digit - b'0')).sum();
    (sum + 10 * check).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = without_spaces_and_dashes(text);
    if digits.len() != 13 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let sum: u32 = [1, 3].iter().cycle().zip(&digits).map(|(weight, digit)| weight * u32::from(digit - b'0')).sum();
    sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let starts = |prefixes: std::ops::RangeInclusive<u32>, width: usize| {
        digits.get(..width).and_then(|prefix| prefix.parse().ok()).is_some_and(|prefix: u32| prefixes.contains(&prefix))
    };
    let issued = match digits.len() {
        13 => starts(4..=4, 1),
        14 => starts(300..=305, 3) || starts(36..=36, 2) || starts(38..=38, 2),
        15 => starts(34..=34, 2) || starts(37..=37, 2) || starts(2131..=2131, 4) || starts(1800..=1800, 4),
        16 => {
            starts(4..=4, 1) || starts(51..=55, 2) || starts(6011..=6011, 4) || starts(65..=65, 2) || starts(35..=35, 2)
        }
        _ => false,
    };
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(place, byte)| match (place % 2, u32::from(byte - b'0')) {
            (0, digit) => digit,
            (_, digit) => digit * 2 % 10 + digit / 5,
        })
        .sum();
    issued && sum.is_multiple_of(10)
}

fn is_ssn(text: &str) -> bool {
    let is_separator = |byte: u8| matches!(byte, b'-' | b' ');
    let bytes = text.as_bytes();
    bytes.len() == 11
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            3 | 6 => is_separator(*byte),
            _ => byte.is_ascii_digit(),
        })
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && is_hex(digits)
}

fn is_rgb_color(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|text| text.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inner.split(',').map(|part| part.trim_matches([' ', '\t', '\n', '\x0C', '\r'])).collect();
    parts.len() == 3
        && parts.iter().all(|part| {
            is_digits(part) && part.len() <= 3 && (*part == "0" || !part.starts_with('0')) && part.parse::<u8>().is_ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(format: &str, yes: &[&str], no: &[&str]) {
        for text in yes {
            assert!(is_match(format, text), "{text:?} is a {format}");
        }
        for text in no {
            assert!(!is_match(format, text), "{text:?} is no {format}");
        }
    }

    #[test]
    fn formats_accept_what_upstream_accepts() {
        check("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f", "g07f1f77bcf86cd799439011"]);
        check("byte", &["AAE=", "aGk="], &["", "AAE", "A==="]);
        check("cidr", &["10.0.0.0/8", "010.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "x/8", "10.0.0.0/+8"]);
        check("creditcard", &["4111-1111-1111-1111", "378282246310005"], &["4111-1111-1111-1112", "1234"]);
        check("date", &["2026-02-28"], &["2026-02-30", "2026-2-3", "20260228"]);
        check(
            "date-time",
            &["2026-01-02T03:04:05Z", "2026-01-02t03:04:05.123+01:00"],
            &[
                "yesterday",
                "2026-01-02",
                "2026-01-02T24:00:00Z",
                "2026-01-02 03:04:05Z",
                "2026-01-02T03:04:05",
                "2026-01-02T03:04:05.Z",
            ],
        );
        check(
            "duration",
            &["1h30m", "22 ns", "3 days", "0", "-1.5h", "1µs"],
            &["", "1", "1x", "h", "99999999999999999999s"],
        );
        check("email", &["a@b.c", "A B <a.b+c@d>", "\"x y\"@z", "a@[10.0.0.1]"], &["a", "@b", "a@", "a b@c", "a..b@c"]);
        check("hexcolor", &["#FFF", "a0b1c2"], &["#FFFF", "red"]);
        check("hostname", &["a", "a-b", "example.com", "a.b-c.example.org"], &["", "-a", "a_b", "a.b.c1", "a..bc"]);
        check("ipv4", &["10.0.0.1", "010.0.0.1"], &["10.0.0", "256.0.0.1", "::1", "1.2.3.4.5"]);
        check("ipv6", &["::1", "fe80::1", "::ffff:10.0.0.1"], &["10.0.0.1", "fe80::1%eth0", ":::"]);
        check("isbn", &["0321751043", "978-0321751041", "097522980X"], &["0321751044", "978-0321751042"]);
        check("k8s-short-name", &["a-b"], &["A", "a.b", ""]);
        check("k8s-long-name", &["a-b.c"], &["a_b"]);
        check("mac", &["01:23:45:67:89:ab", "01-23-45-67-89-AB", "0123.4567.89ab"], &["01:23:45", "01:23-45:67:89:ab"]);
        check("rgbcolor", &["rgb(1, 2,255)"], &["rgb(1,2)", "rgb(1,2,256)", "rgb(01,2,3)"]);
        check("ssn", &["111-22-3333", "111 22 3333"], &["111223333", "111-22-333a"]);
        check(
            "uri",
            &["/a/b", "http://example.com:80/a?b", "mailto:a@b", "*", "http://[::1]:8080/", "https://h/%20"],
            &["", "a/b", "http://a b/", "http://h:x/", "/%2", "1http://x", "\u{1}"],
        );
        check(
            "uuid",
            &["123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000"],
            &["123e4567", "123e4567--e89b-12d3-a456-426614174000"],
        );
        check("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]);
        check("made-up", &["anything"], &[]);
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_format(text in "\\PC{0,20}|[0-9a-zA-Z:./@<>\\[\\]%+ ,()-]{0,30}") {
            for format in ["bsonobjectid", "byte", "cidr", "creditcard", "date", "datetime", "duration", "email", "hexcolor", "hostname",
                "ipv4", "ipv6", "isbn", "k8s-long-name", "k8s-short-name", "mac", "password", "rgbcolor", "ssn", "uri", "uuid", "uuid3"] {
                is_match(format, &text);
            }
        }
    }
}
