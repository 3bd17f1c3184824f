//! Validation of names: of objects, labels, annotations, finalizers and configuration keys, with upstream's messages.
//!
//! Each check returns the errors, none if the name is valid. Rules and wording follow apimachinery's `util/validation`.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1123: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NAME_PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// The characters of generated names: no vowels and no look-alikes, so that no words appear.
pub const GENERATED_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The number of generated characters.
pub const GENERATED_LENGTH: usize = 5;
const GENERATED_BASE_MAX: usize = 63 - GENERATED_LENGTH;

/// The base of a generated name, cut so that the random part still fits a DNS label.
pub fn generated_base(base: &str) -> &str {
    let mut end = base.len().min(GENERATED_BASE_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    &base[..end]
}

/// A DNS subdomain of at most 253 bytes: the rule for most object names.
pub fn dns1123_subdomain(name: &str) -> Vec<String> {
    let mut faults = at_most(name, 253);
    if !name.split('.').all(is_lower_label) {
        faults.push(SUBDOMAIN.to_owned());
    }
    faults
}

/// A DNS subdomain behind `*.`, at most 253 bytes together: the rule for host names that stand for many.
pub fn wildcard_subdomain(name: &str) -> Vec<String> {
    let mut faults = at_most(name, 253);
    if !name.strip_prefix("*.").is_some_and(|rest| rest.split('.').all(is_lower_label)) {
        faults.push(WILDCARD.to_owned());
    }
    faults
}

/// A DNS label of at most 63 bytes: the rule for namespaces and container names.
pub fn dns1123_label(name: &str) -> Vec<String> {
    let mut faults = at_most(name, 63);
    if !is_lower_label(name) {
        // A name whose only error is a dot gets an error of its own, because this is a common mistake.
        let is_subdomain = dns1123_subdomain(name).is_empty();
        faults.push(if is_subdomain { "must not contain dots".to_owned() } else { LABEL_1123.to_owned() });
    }
    faults
}

/// A DNS label that begins with a letter.
pub fn dns1035_label(name: &str) -> Vec<String> {
    let mut faults = at_most(name, 63);
    if !is_lower_label(name) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        faults.push(LABEL_1035.to_owned());
    }
    faults
}

/// A name that only has to be one segment of a path, such as that of an RBAC role.
pub fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"].iter().filter(|part| name.contains(**part)).map(|part| format!("may not contain '{part}'")).collect()
}

/// The key of a label, an annotation or a finalizer: `name` or `prefix/name`.
pub fn qualified(name: &str) -> Vec<String> {
    let (prefix, part) = match name.split_once('/') {
        None => (None, name),
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a valid label key {NAME_PART} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, rest)) => (Some(prefix), rest),
    };
    let mut faults = Vec::new();
    match prefix {
        Some("") => faults.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            faults.extend(dns1123_subdomain(prefix).into_iter().map(|fault| format!("prefix part {fault}")));
        }
        None => {}
    }
    if part.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    }
    faults.extend(at_most(part, 63).into_iter().map(|fault| format!("name part {fault}")));
    if !is_word(part) {
        faults.push(format!("name part {NAME_PART}"));
    }
    faults
}

/// The value of a label.
pub fn label_value(value: &str) -> Vec<String> {
    let mut faults = at_most(value, 63);
    if !value.is_empty() && !is_word(value) {
        faults.push(LABEL_VALUE.to_owned());
    }
    faults
}

/// A key of a ConfigMap's or Secret's data.
pub fn config_key(key: &str) -> Vec<String> {
    let mut faults = at_most(key, 253);
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        faults.push(CONFIG_KEY.to_owned());
    }
    match key {
        "." => faults.push("must not be '.'".to_owned()),
        ".." => faults.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

fn at_most(text: &str, bytes_max: usize) -> Vec<String> {
    if text.len() > bytes_max { vec![format!("must be no more than {bytes_max} bytes")] } else { Vec::new() }
}

fn is_lower_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
}

fn is_word(word: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = word.as_bytes();
    bytes.iter().copied().all(inner) && edge(bytes.first()) && edge(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_have_no_faults() {
        for name in ["a", "example.com", "a-b.c-d", "0"] {
            assert!(dns1123_subdomain(name).is_empty(), "{name}");
        }
        for name in ["a", "A.b_c-d", "example.com/My.Name", "kubernetes.io/x"] {
            assert!(qualified(name).is_empty(), "{name}");
        }
        assert!(label_value("").is_empty() && label_value("A_1").is_empty());
        assert!(config_key("a.b").is_empty() && config_key("_").is_empty());
        assert!(dns1035_label("a1").is_empty());
    }

    #[test]
    fn bad_names_are_told_the_rule() {
        for name in ["", "A", "a_b", "-a", "a-", "a..b", ".a", "é"] {
            assert_eq!(dns1123_subdomain(name), [SUBDOMAIN], "{name}");
        }
        assert!(wildcard_subdomain("*.a.b").is_empty());
        for name in ["", "*", "*.", "a.*", "a", "*.*.a", "*.A"] {
            assert_eq!(wildcard_subdomain(name), [WILDCARD], "{name}");
        }
        let long = format!("*.{}", ["a"; 127].join("."));
        assert_eq!(wildcard_subdomain(&long), ["must be no more than 253 bytes"]);
        assert_eq!(dns1123_label("1.s"), ["must not contain dots"]);
        assert_eq!(dns1035_label("1a"), [LABEL_1035]);
        assert_eq!(dns1123_subdomain(&"a".repeat(254)), ["must be no more than 253 bytes"]);
        for name in ["a b", "a/b c", "a/b/c", "/a", "A/b", "a/"] {
            assert!(!qualified(name).is_empty(), "{name}");
        }
        for key in ["", "a b", "..", "..a", "."] {
            assert!(!config_key(key).is_empty(), "{key}");
        }
    }

    #[test]
    fn a_long_base_leaves_room_for_what_is_generated() {
        assert_eq!(generated_base("made-"), "made-");
        assert_eq!(generated_base(&"a".repeat(80)).len(), 58);
        assert_eq!(generated_base(&"é".repeat(40)).len(), 58);
        assert_eq!(generated_base(&format!("a{}", "é".repeat(40))).len(), 57);
    }
}
