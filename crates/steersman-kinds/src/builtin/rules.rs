//! Validation rules that many kinds share, in upstream's words. Each checks a place and appends its validation errors.

pub mod age;
pub mod cells;
pub mod int_or_percent;
pub mod place;
pub mod resource_name;
pub mod selector;

use crate::builtin::rules::place::Place;
use ipnet::IpNet;
use regex::Regex;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use steersman_machinery::Value;
use steersman_machinery::field::Error;
use steersman_machinery::name;
use steersman_machinery::quantity::Quantity;

pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub const POSITIVE: &str = "must be greater than 0";
pub const IMMUTABLE: &str = "field is immutable";
const PORT: &str = "must be between 1 and 65535, inclusive";
const IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// The string must be one of the given words. An absent field counts as the empty string.
pub fn one_of(place: &Place<'_>, words: &[&str], faults: &mut Vec<Error>) {
    if !words.contains(&place.text()) {
        faults.push(Error::not_supported(&place.path, place.text(), words));
    }
}

/// Like [`one_of`], where the field may be absent.
pub fn one_of_if_present(place: &Place<'_>, words: &[&str], faults: &mut Vec<Error>) {
    if place.is_present() {
        one_of(place, words, faults);
    }
}

/// The string must pass a check of names.
pub fn named(place: &Place<'_>, check: fn(&str) -> Vec<String>, faults: &mut Vec<Error>) {
    faults.extend(check(place.text()).into_iter().map(|fault| place.invalid(fault)));
}

/// Like [`named`], where the field must not be empty.
pub fn required_name(place: &Place<'_>, check: fn(&str) -> Vec<String>, faults: &mut Vec<Error>) {
    if place.is_empty() {
        faults.push(place.required(""));
    } else {
        named(place, check, faults);
    }
}

/// The field must not be empty.
pub fn required(place: &Place<'_>, faults: &mut Vec<Error>) {
    if place.is_empty() {
        faults.push(place.required(""));
    }
}

/// A number must not be negative.
pub fn not_negative(place: &Place<'_>, faults: &mut Vec<Error>) {
    if place.number().is_some_and(|number| number < 0) {
        faults.push(place.invalid(NOT_NEGATIVE));
    }
}

/// A quantity must not be negative.
pub fn not_negative_quantity(place: &Place<'_>, faults: &mut Vec<Error>) {
    if Quantity::parse(place.text()).is_ok_and(Quantity::is_negative) {
        faults.push(place.invalid(NOT_NEGATIVE));
    }
}

/// A number must be positive.
pub fn positive(place: &Place<'_>, faults: &mut Vec<Error>) {
    if place.number().is_some_and(|number| number <= 0) {
        faults.push(place.invalid(POSITIVE));
    }
}

/// A number must be within bounds, both included.
pub fn within(place: &Place<'_>, least: i64, most: i64, faults: &mut Vec<Error>) {
    if place.number().is_some_and(|number| number < least || most < number) {
        faults.push(place.invalid(format!("must be between {least} and {most}, inclusive")));
    }
}

/// A number must be a port.
pub fn port(place: &Place<'_>, faults: &mut Vec<Error>) {
    if !place.number().is_some_and(|port| (1..=65535).contains(&port)) {
        faults.push(place.invalid(PORT));
    }
}

/// A number must be the port of a service that the server calls.
pub fn service_port(place: &Place<'_>, faults: &mut Vec<Error>) {
    if !place.number().is_some_and(|port| (1..=65535).contains(&port)) {
        faults.push(place.invalid(format!("port is not valid: {PORT}")));
    }
}

/// A number must be a port, a string the name of a port.
pub fn port_or_name(place: &Place<'_>, faults: &mut Vec<Error>) {
    match place.value {
        Value::String(name) => faults.extend(port_name(name).into_iter().map(|fault| place.invalid(fault))),
        _ => port(place, faults),
    }
}

/// The errors of a port's name.
pub fn port_name(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > 15 {
        faults.push("must be no more than 15 characters".to_owned());
    }
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

/// A string must be an IP address, in a notation that every program reads alike.
pub fn ip(place: &Place<'_>, faults: &mut Vec<Error>) {
    match sloppy_ip(place.text()) {
        None => faults.push(place.invalid(IP)),
        Some(_) if place.text().parse::<IpAddr>().is_err() => faults.push(place.invalid("must not have leading 0s")),
        Some(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            faults.push(place.invalid("must not be an IPv4-mapped IPv6 address"));
        }
        Some(_) => {}
    }
}

/// A string that is an IP address must be one that other machines can reach.
pub fn ordinary_ip(place: &Place<'_>, faults: &mut Vec<Error>) {
    let Some(address) = sloppy_ip(place.text()) else {
        return faults.push(place.invalid("must be a valid IP address"));
    };
    let (is_link_local, is_link_local_multicast) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (address.is_unicast_link_local(), address.segments()[0] & 0xff0f == 0xff02),
    };
    if address.is_unspecified() {
        faults.push(place.invalid(format!("may not be unspecified ({})", place.text())));
    }
    if address.is_loopback() {
        faults.push(place.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)"));
    }
    if is_link_local {
        faults.push(place.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)"));
    }
    if is_link_local_multicast {
        faults.push(place.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"));
    }
}

/// A string must be a CIDR, in a notation that every program reads alike and in its canonical form.
pub fn cidr(place: &Place<'_>, faults: &mut Vec<Error>) {
    let n_before = faults.len();
    legacy_cidr(place, faults);
    if let Some(range) = sloppy_cidr(place.text()).filter(|range| range.to_string() != place.text())
        && faults.len() == n_before
    {
        faults.push(place.invalid(format!("must be in canonical form (\"{range}\")")));
    }
}

/// Like [`cidr`], but in any form that can be parsed, as upstream allows it in fields that are older than the rule
/// about the canonical form.
pub fn legacy_cidr(place: &Place<'_>, faults: &mut Vec<Error>) {
    let Some(range) = sloppy_cidr(place.text()) else {
        return faults.push(place.invalid("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"));
    };
    let has_zeros = place
        .text()
        .split_once('/')
        .is_some_and(|(address, bits)| address.parse::<IpAddr>().is_err() || (bits.len() > 1 && bits.starts_with('0')));
    if has_zeros {
        faults.push(place.invalid("must not have leading 0s in IP or prefix length"));
    } else if matches!(range, IpNet::V6(range) if range.addr().to_ipv4_mapped().is_some()) {
        faults.push(place.invalid("must not have an IPv4-mapped IPv6 address"));
    } else if range != range.trunc() {
        faults.push(place.invalid("must not have bits set beyond the prefix length"));
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
pub fn at_most(place: &Place<'_>, items_max: usize, faults: &mut Vec<Error>) -> bool {
    let items = place.value.as_array().map(Vec::len).or(place.value.as_object().map(|fields| fields.len()));
    let n_items = items.unwrap_or(0);
    if n_items > items_max {
        faults.push(Error::too_many(&place.path, n_items, items_max));
    }
    n_items <= items_max
}

/// A string must be a domain and a path, such as `acme.io/foo`.
pub fn domain_prefixed_path(place: &Place<'_>, faults: &mut Vec<Error>) {
    if place.is_empty() {
        return faults.push(place.required(""));
    }
    let parts = place.text().split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty());
    let Some((host, path)) = parts else {
        return faults.push(place.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")"));
    };
    faults.extend(name::dns1123_subdomain(host).into_iter().map(|fault| Error::invalid(&place.path, host, fault)));
    let is_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !path.bytes().all(is_path) {
        let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        faults.push(Error::invalid(&place.path, path, why));
    }
}

/// The keys and values of a map must be valid labels.
pub fn labels(place: &Place<'_>, faults: &mut Vec<Error>) {
    for (key, value) in place.entries() {
        faults.extend(name::qualified(key).into_iter().map(|fault| Error::invalid(&place.path, key, fault)));
        let value = value.text();
        faults.extend(name::label_value(value).into_iter().map(|fault| Error::invalid(&place.path, value, fault)));
    }
}

/// The keys of a map must be valid annotation keys.
pub fn annotations(place: &Place<'_>, faults: &mut Vec<Error>) {
    for (key, _) in place.entries() {
        let lower = key.to_lowercase();
        faults.extend(name::qualified(&lower).into_iter().map(|fault| Error::invalid(&place.path, key, fault)));
    }
}

/// The rules of a list of conditions, as most kinds have them in their status.
pub fn conditions(conditions: &Place<'_>, faults: &mut Vec<Error>) {
    const REASON_LENGTH_MAX: usize = 1024;
    const MESSAGE_LENGTH_MAX: usize = 32 * 1024;
    let mut types = BTreeSet::new();
    for condition in conditions.items() {
        let (kind, reason, message) = (condition.field("type"), condition.field("reason"), condition.field("message"));
        if !types.insert(kind.text()) {
            faults.push(kind.duplicate());
        }
        let wrong = name::qualified(kind.text()).into_iter();
        faults.extend(wrong.map(|fault| Error::invalid(&kind.path, kind.text(), fault)));
        one_of(&condition.field("status"), &["False", "True", "Unknown"], faults);
        let generation = condition.field("observedGeneration");
        if generation.number().is_some_and(|number| number < 0) {
            faults.push(generation.invalid("must be greater than or equal to zero"));
        }
        required(&condition.field("lastTransitionTime"), faults);
        required(&reason, faults);
        if !reason.is_empty() && !is_reason(reason.text()) {
            let why = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";
            faults.push(reason.invalid(why));
        }
        for (text, most) in [(&reason, REASON_LENGTH_MAX), (&message, MESSAGE_LENGTH_MAX)] {
            if text.text().len() > most {
                faults.push(Error::too_long(&text.path, most));
            }
        }
    }
}

fn is_reason(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(|byte| is_word(byte) || b",:".contains(&byte))
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().last().is_some_and(is_word)
}

/// The value must not change.
pub fn immutable(new: &Place<'_>, old: &Place<'_>, faults: &mut Vec<Error>) {
    if new.value != old.value {
        faults.push(new.invalid(IMMUTABLE));
    }
}

/// A path must not contain `..`.
pub fn no_backsteps(place: &Place<'_>, faults: &mut Vec<Error>) {
    if place.text().split('/').any(|part| part == "..") {
        faults.push(place.invalid("must not contain '..'"));
    }
}

/// A path must be relative, and not contain `..`.
pub fn local_path(place: &Place<'_>, faults: &mut Vec<Error>) {
    if place.text().starts_with('/') {
        faults.push(place.invalid("must be a relative path"));
    }
    no_backsteps(place, faults);
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
        for (path, faults_expected) in [("a/b", 0), ("a/../b", 1), ("/a", 1), ("a..b", 0), ("/../a", 2)] {
            let value = json!(path);
            let mut faults = Vec::new();
            local_path(&Place::root(&value), &mut faults);
            assert_eq!(faults.len(), faults_expected, "{path}");
        }
    }

    #[test]
    fn percentages_are_digits_and_a_sign() {
        assert!(percentage("25%").is_empty());
        assert!(["", "%", "25", "-1%", "1.5%"].iter().all(|text| !percentage(text).is_empty()));
    }
}
