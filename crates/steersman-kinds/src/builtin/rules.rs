//! Validation rules that many kinds share, in upstream's words. Each checks a field and appends its errors.

pub mod age;
pub mod cells;
pub mod change;
pub mod field;
pub mod image;
pub mod int_or_percent;
pub mod quantity;
pub mod resource_name;
pub mod rule;
pub mod selector;

use crate::builtin::rules::field::Field;
use crate::builtin::rules::rule::{Check, Rule};
use ipnet::IpNet;
use regex::Regex;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::name;

pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub const POSITIVE: &str = "must be greater than 0";
pub const IMMUTABLE: &str = "field is immutable";
pub const PORT: &str = "must be between 1 and 65535, inclusive";
const IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// The string must be one of the given words. An absent field counts as the empty string.
pub fn one_of(field: &Field<'_>, words: &[&str], errors: &mut Vec<Error>) {
    if !words.contains(&field.text()) {
        errors.push(Error::not_supported(&field.path, field.text(), words));
    }
}

/// Like [`one_of`], where the field may be absent.
pub fn one_of_if_present(field: &Field<'_>, words: &[&str], errors: &mut Vec<Error>) {
    if field.is_present() {
        one_of(field, words, errors);
    }
}

/// Like [`one_of`], where the field must not be empty.
pub fn required_one_of(field: &Field<'_>, words: &[&str], errors: &mut Vec<Error>) {
    if field.is_empty() {
        errors.push(field.required(""));
    } else {
        one_of(field, words, errors);
    }
}

/// The string must pass a check of names.
pub fn named(field: &Field<'_>, check: fn(&str) -> Vec<String>, errors: &mut Vec<Error>) {
    errors.extend(check(field.text()).into_iter().map(|detail| field.invalid(detail)));
}

/// Like [`named`], where the field must not be empty.
pub fn required_name(field: &Field<'_>, check: fn(&str) -> Vec<String>, errors: &mut Vec<Error>) {
    if field.is_empty() {
        errors.push(field.required(""));
    } else {
        named(field, check, errors);
    }
}

/// The field must not be empty.
pub fn required(field: &Field<'_>, errors: &mut Vec<Error>) {
    if field.is_empty() {
        errors.push(field.required(""));
    }
}

/// Whether a number is a port.
pub fn is_port(number: i64) -> bool {
    (1..=65535).contains(&number)
}

/// A number must be the port of a service that the server calls.
pub fn service_port(field: &Field<'_>, errors: &mut Vec<Error>) {
    if !field.number().is_some_and(|port| (1..=65535).contains(&port)) {
        errors.push(field.invalid(format!("port is not valid: {PORT}")));
    }
}

/// A number must be a port, a string the name of a port.
pub fn port_or_name(field: &Field<'_>, errors: &mut Vec<Error>) {
    match field.value {
        Value::String(name) => errors.extend(port_name(name).into_iter().map(|detail| field.invalid(detail))),
        _ => Check::Port.of(field, errors),
    }
}

/// The errors of a port's name.
pub fn port_name(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 15 {
        errors.push("must be no more than 15 characters".to_owned());
    }
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// A string must be an IP address, in a notation that every program reads alike.
pub fn ip(field: &Field<'_>, errors: &mut Vec<Error>) {
    match sloppy_ip(field.text()) {
        None => errors.push(field.invalid(IP)),
        Some(_) if field.text().parse::<IpAddr>().is_err() => errors.push(field.invalid("must not have leading 0s")),
        Some(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            errors.push(field.invalid("must not be an IPv4-mapped IPv6 address"));
        }
        Some(_) => {}
    }
}

/// A string that is an IP address must be one that other machines can reach.
pub fn ordinary_ip(field: &Field<'_>, errors: &mut Vec<Error>) {
    let Some(address) = sloppy_ip(field.text()) else {
        return errors.push(field.invalid("must be a valid IP address"));
    };
    let (is_link_local, is_link_local_multicast) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (address.is_unicast_link_local(), address.segments()[0] & 0xff0f == 0xff02),
    };
    if address.is_unspecified() {
        errors.push(field.invalid(format!("may not be unspecified ({})", field.text())));
    }
    if address.is_loopback() {
        errors.push(field.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)"));
    }
    if is_link_local {
        errors.push(field.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)"));
    }
    if is_link_local_multicast {
        errors.push(field.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"));
    }
}

/// A string must be a CIDR, in a notation that every program reads alike and in its canonical form.
pub fn cidr(field: &Field<'_>, errors: &mut Vec<Error>) {
    let n_before = errors.len();
    legacy_cidr(field, errors);
    if let Some(range) = sloppy_cidr(field.text()).filter(|range| range.to_string() != field.text())
        && errors.len() == n_before
    {
        errors.push(field.invalid(format!("must be in canonical form (\"{range}\")")));
    }
}

/// Like [`cidr`], but in any form that can be parsed, as upstream allows it in fields that are older than the rule
/// about the canonical form.
pub fn legacy_cidr(field: &Field<'_>, errors: &mut Vec<Error>) {
    let Some(range) = sloppy_cidr(field.text()) else {
        return errors.push(field.invalid("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"));
    };
    let has_zeros = field
        .text()
        .split_once('/')
        .is_some_and(|(address, bits)| address.parse::<IpAddr>().is_err() || (bits.len() > 1 && bits.starts_with('0')));
    if has_zeros {
        errors.push(field.invalid("must not have leading 0s in IP or prefix length"));
    } else if matches!(range, IpNet::V6(range) if range.addr().to_ipv4_mapped().is_some()) {
        errors.push(field.invalid("must not have an IPv4-mapped IPv6 address"));
    } else if range != range.trunc() {
        errors.push(field.invalid("must not have bits set beyond the prefix length"));
    }
}

/// A CIDR whose address is parsed like [`sloppy_ip`].
pub fn sloppy_cidr(text: &str) -> Option<IpNet> {
    let (address, bits) = text.split_once('/')?;
    let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    IpNet::new(sloppy_ip(address)?, bits.parse().ok().filter(|_| is_number)?).ok()
}

/// An IP address, with leading zeros in its numbers ignored, as old versions of Kubernetes parse it.
pub fn sloppy_ip(text: &str) -> Option<IpAddr> {
    let strict = text.parse::<IpAddr>().ok();
    strict.or_else(|| {
        let without_zeros = |part: &str| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0".to_owned(),
            digits => digits.to_owned(),
        };
        let parts: Vec<String> = text.split('.').map(without_zeros).collect();
        parts.join(".").parse::<Ipv4Addr>().ok().map(IpAddr::V4)
    })
}

/// A list or a map must not have more items than this. Returns whether it has not.
pub fn at_most(field: &Field<'_>, items_max: usize, errors: &mut Vec<Error>) -> bool {
    let items = field.value.as_array().map(Vec::len).or(field.value.as_object().map(|fields| fields.len()));
    let n_items = items.unwrap_or(0);
    if n_items > items_max {
        errors.push(Error::too_many(&field.path, n_items, items_max));
    }
    n_items <= items_max
}

/// A string must be a domain and a path, such as `acme.io/foo`.
pub fn domain_prefixed_path(field: &Field<'_>, errors: &mut Vec<Error>) {
    if field.is_empty() {
        return errors.push(field.required(""));
    }
    let parts = field.text().split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty());
    let Some((host, path)) = parts else {
        return errors.push(field.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")"));
    };
    errors.extend(name::dns1123_subdomain(host).into_iter().map(|detail| Error::invalid(&field.path, host, detail)));
    let is_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !path.bytes().all(is_path) {
        let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.push(Error::invalid(&field.path, path, why));
    }
}

/// The keys and values of a map must be valid labels.
pub fn labels(field: &Field<'_>, errors: &mut Vec<Error>) {
    for (key, value) in field.entries() {
        errors.extend(name::qualified(key).into_iter().map(|detail| Error::invalid(&field.path, key, detail)));
        let value = value.text();
        errors.extend(name::label_value(value).into_iter().map(|detail| Error::invalid(&field.path, value, detail)));
    }
}

/// The keys of a map must be valid annotation keys.
pub fn annotations(field: &Field<'_>, errors: &mut Vec<Error>) {
    for (key, _) in field.entries() {
        let lower = key.to_lowercase();
        errors.extend(name::qualified(&lower).into_iter().map(|detail| Error::invalid(&field.path, key, detail)));
    }
}

/// The rules of a condition, as most kinds have them in their status.
pub const CONDITION: &[Rule] = &[
    Rule::new("type", Check::Unique),
    Rule::new("type", Check::Format(name::qualified)),
    Rule::new("status", Check::OneOf(&["False", "True", "Unknown"])),
    Rule::new("observedGeneration", Check::AtLeast(0, "must be greater than or equal to zero")),
    Rule::required("lastTransitionTime", ""),
    Rule::required("reason", ""),
    Rule::new("reason", Check::Text(is_reason, NO_REASON)).unless_empty(),
    Rule::new("reason", Check::LengthMax(1024)),
    Rule::new("message", Check::LengthMax(32 * 1024)),
];
const NO_REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

fn is_reason(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(|byte| is_word(byte) || b",:".contains(&byte))
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().last().is_some_and(is_word)
}

/// The value must not change.
pub fn immutable(new: &Field<'_>, old: &Field<'_>, errors: &mut Vec<Error>) {
    if new.value != old.value {
        errors.push(new.invalid(IMMUTABLE));
    }
}

/// A path must not contain `..`.
pub fn no_backsteps(field: &Field<'_>, errors: &mut Vec<Error>) {
    if field.text().split('/').any(|part| part == "..") {
        errors.push(field.invalid("must not contain '..'"));
    }
}

/// A path must be relative, and not contain `..`.
pub fn local_path(field: &Field<'_>, errors: &mut Vec<Error>) {
    if field.text().starts_with('/') {
        errors.push(field.invalid("must be a relative path"));
    }
    no_backsteps(field, errors);
}

/// The errors of an environment variable's name, which may hold anything printable but `=`.
pub fn variable_name(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if name.bytes().any(|byte| !(b' '..=b'~').contains(&byte) || byte == b'=') {
        let why = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        return vec![why.to_owned()];
    }
    Vec::new()
}

/// The errors of a percentage.
pub fn percentage(text: &str) -> Vec<String> {
    static FORM: LazyLock<Regex> =
        LazyLock::new(|| Regex::new("^[0-9]+%$").expect("invariant: a constant that the tests compile"));
    if FORM.is_match(text) {
        return Vec::new();
    }
    vec![
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn port_names_are_short_and_lower_case_with_a_letter() {
        for name in ["http", "a-1", "0a"] {
            assert!(port_name(name).is_empty(), "{name}");
        }
        for name in ["", "HTTP", "1", "a--b", "-a", "a-", "far-too-long-a-name"] {
            assert!(!port_name(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn a_path_must_not_step_back() {
        for (path, errors_expected) in [("a/b", 0), ("a/../b", 1), ("/a", 1), ("a..b", 0), ("/../a", 2)] {
            let value = json!(path);
            let mut errors = Vec::new();
            local_path(&Field::root(&value), &mut errors);
            assert_eq!(errors.len(), errors_expected, "{path}");
        }
    }

    #[test]
    fn percentages_are_digits_and_a_sign() {
        assert!(percentage("25%").is_empty());
        assert!(["", "%", "25", "-1%", "1.5%"].iter().all(|text| !percentage(text).is_empty()));
    }
}
