//! The errors of invalid addresses, in the words of Go's `net/netip`, which messages quote.

/// The error of an invalid address: `ParseAddr("1.2"): IPv4 address too short`.
pub(crate) fn fault(text: &str) -> String {
    let first = text.bytes().find(|byte| matches!(byte, b'.' | b':' | b'%'));
    let (why, at) = match first {
        Some(b'.') => of_ipv4(text).unwrap_or(UNKNOWN),
        Some(b':') => of_ipv6(text).unwrap_or(UNKNOWN),
        Some(_) => ("missing IPv6 address", ""),
        None => UNKNOWN,
    };
    match at {
        "" => format!("ParseAddr({text:?}): {why}"),
        _ => format!("ParseAddr({text:?}): {why} (at {at:?})"),
    }
}

/// An error, and the rest of the text from its position; empty if it is about the whole text.
type Fault<'t> = (&'static str, &'t str);

const UNKNOWN: Fault<'_> = ("unable to parse IP", "");

fn of_ipv4(text: &str) -> Option<Fault<'_>> {
    let mut field = String::new();
    let mut fields = 0;
    for (at, char) in text.char_indices() {
        if char.is_ascii_digit() {
            if field == "0" {
                return Some(("IPv4 field has octet with leading zero", ""));
            }
            field.push(char);
            if field.parse::<u8>().is_err() {
                return Some(("IPv4 field has value >255", ""));
            }
            continue;
        }
        if char != '.' {
            return Some(("unexpected character", &text[at..]));
        }
        if field.is_empty() || at + 1 == text.len() {
            return Some(("IPv4 field must have at least one digit", &text[at..]));
        }
        if fields == 3 {
            return Some(("IPv4 address too long", ""));
        }
        fields += 1;
        field.clear();
    }
    (fields < 3).then_some(("IPv4 address too short", ""))
}

fn of_ipv6(text: &str) -> Option<Fault<'_>> {
    let (mut rest, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    if zone == Some("") {
        return Some(("zone must be a non-empty string", ""));
    }
    const GROUPS: usize = 8;
    let mut groups = 0;
    let mut has_ellipsis = false;
    if let Some(behind) = rest.strip_prefix("::") {
        has_ellipsis = true;
        rest = behind;
    }
    while !rest.is_empty() || (groups == 0 && !has_ellipsis) {
        if groups == GROUPS {
            return Some(("trailing garbage after address", rest));
        }
        let digits = rest.find(|char: char| !char.is_ascii_hexdigit()).unwrap_or(rest.len());
        if digits > 4 {
            return Some(("each group must have 4 or less digits", rest));
        }
        if digits == 0 {
            return Some(("each colon-separated field must have at least one digit", rest));
        }
        let behind = &rest[digits..];
        if behind.starts_with('.') {
            return if !has_ellipsis && groups != GROUPS - 2 {
                Some(("embedded IPv4 address must replace the final 2 fields of the address", rest))
            } else if groups > GROUPS - 2 {
                Some(("too many hex fields to fit an embedded IPv4 at the end of the address", rest))
            } else {
                of_ipv4(rest)
            };
        }
        groups += 1;
        rest = match behind.strip_prefix(':') {
            _ if behind.is_empty() => break,
            None => return Some(("unexpected character, want colon", behind)),
            Some("") => return Some(("colon must be followed by more characters", behind)),
            Some(next) => next,
        };
        if let Some(next) = rest.strip_prefix(':') {
            if has_ellipsis {
                return Some(("multiple :: in address", rest));
            }
            has_ellipsis = true;
            rest = next;
        }
    }
    match has_ellipsis {
        false if groups < GROUPS => Some(("address string too short", "")),
        true if groups == GROUPS => Some(("the :: must expand to at least one field of zeros", "")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn faults_are_named_as_netip_names_them() {
        for (text, why) in [
            ("", "unable to parse IP"),
            ("localhost", "unable to parse IP"),
            ("%eth0", "missing IPv6 address"),
            ("1.2", "IPv4 address too short"),
            ("1.2.3.4.5", "IPv4 address too long"),
            ("1.2.3.256", "IPv4 field has value >255"),
            ("1.2.3.04", "IPv4 field has octet with leading zero"),
            ("1..3.4", "IPv4 field must have at least one digit (at \".3.4\")"),
            ("1.2.3.", "IPv4 field must have at least one digit (at \".\")"),
            ("1.2.3.x", "unexpected character (at \"x\")"),
            ("2001:db8:::68", "each colon-separated field must have at least one digit (at \":68\")"),
            ("1::2::3", "multiple :: in address (at \":3\")"),
            ("12345::", "each group must have 4 or less digits (at \"12345::\")"),
            ("1:2:3", "address string too short"),
            ("1:2:3:4:5:6:7:8:9", "trailing garbage after address (at \"9\")"),
            ("1:2:3:4::5:6:7:8", "the :: must expand to at least one field of zeros"),
            ("1:", "colon must be followed by more characters (at \":\")"),
            ("1:x", "each colon-separated field must have at least one digit (at \"x\")"),
            ("1x::", "unexpected character, want colon (at \"x::\")"),
            ("1:2.3.4.5", "embedded IPv4 address must replace the final 2 fields of the address (at \"2.3.4.5\")"),
            ("::1.2.3.400", "IPv4 field has value >255"),
            ("::1%", "zone must be a non-empty string"),
        ] {
            assert_eq!(fault(text), format!("ParseAddr({text:?}): {why}"));
        }
    }
}
