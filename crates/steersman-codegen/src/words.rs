//! Converts names of Kubernetes (`podCIDRs`, `loadBalancerIP`) to names of Rust (`pod_cidrs`, `LoadBalancerIp`).

/// Keywords of Rust. They get an underscore: raw identifiers read badly in struct literals.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "union", "unsafe", "unsized", "use", "virtual", "where", "while", "yield", "Self",
];

/// Spellings with inner capitals that are one word.
const COMPOUNDS: &[&str] = &["OAuth", "IPv", "gRPC", "mTLS", "iSCSI"];

/// Plural words whose singular the rules do not find, in lower case.
const SINGULARS: &[(&str, &str)] = &[
    ("aliases", "alias"),
    ("buses", "bus"),
    ("gateways", "gateway"),
    ("indices", "index"),
    ("indexes", "index"),
    ("leaves", "leaf"),
    ("matrices", "matrix"),
    ("processes", "process"),
    ("statuses", "status"),
    ("vertices", "vertex"),
];

/// Singular words that end in an s.
const SINGULAR_ALREADY: &[&str] = &[
    "access",
    "address",
    "alias",
    "analysis",
    "aws",
    "axis",
    "basis",
    "bus",
    "class",
    "cors",
    "dns",
    "egress",
    "gas",
    "https",
    "ingress",
    "is",
    "js",
    "kubernetes",
    "nats",
    "nfs",
    "os",
    "postgres",
    "process",
    "progress",
    "redis",
    "series",
    "status",
    "sts",
    "tls",
    "windows",
];

/// Names of characters that are not letters, for values that differ in these alone.
const SYMBOLS: &[(char, &str)] = &[
    ('!', "not"),
    ('#', "hash"),
    ('$', "dollar"),
    ('%', "percent"),
    ('&', "and"),
    ('*', "star"),
    ('+', "plus"),
    ('<', "less"),
    ('=', "equal"),
    ('>', "greater"),
    ('?', "question"),
    ('@', "at"),
    ('^', "caret"),
    ('|', "or"),
    ('~', "tilde"),
];

/// The words of a name, in lower case: `podCIDRs` is `pod`, `cidrs`. Digits belong to the word before them.
pub(crate) fn words(name: &str) -> Vec<String> {
    let characters: Vec<char> = name.chars().collect();
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut at = 0;
    while at < characters.len() {
        let character = characters[at];
        if !character.is_ascii_alphanumeric() {
            finish(&mut words, &mut word);
            at += 1;
            continue;
        }
        let starts = word.is_empty() || begins_word(&characters, at);
        if starts && let Some(length) = compound(&characters[at..]) {
            finish(&mut words, &mut word);
            word.extend(&characters[at..at + length]);
            at += length;
            continue;
        }
        if starts {
            finish(&mut words, &mut word);
        }
        word.push(character);
        at += 1;
    }
    finish(&mut words, &mut word);
    words
}

/// The words for symbols, for names that have no others: `*` is `star`.
pub(crate) fn words_of_symbols(name: &str) -> Vec<String> {
    let named = name.chars().filter_map(|character| SYMBOLS.iter().find(|(symbol, _)| *symbol == character));
    named.map(|(_, word)| (*word).to_owned()).collect()
}

fn finish(words: &mut Vec<String>, word: &mut String) {
    if !word.is_empty() {
        words.push(std::mem::take(word).to_ascii_lowercase());
    }
}

/// Whether a capital begins a word: after a lower-case letter or digit, or as the last capital before lower-case
/// letters. A plural `s` after capitals belongs to them (`CIDRs`).
fn begins_word(characters: &[char], at: usize) -> bool {
    let character = characters[at];
    if !character.is_ascii_uppercase() {
        return false;
    }
    let before = characters[at - 1];
    if !before.is_ascii_uppercase() {
        return true;
    }
    let Some(next) = characters.get(at + 1) else { return false };
    if !next.is_ascii_lowercase() {
        return false;
    }
    let is_plural = *next == 's'
        && !characters.get(at + 2).is_some_and(|after| after.is_ascii_lowercase() || after.is_ascii_digit());
    !is_plural
}

fn compound(characters: &[char]) -> Option<usize> {
    let found = COMPOUNDS.iter().find(|compound| {
        compound.len() <= characters.len() && compound.chars().zip(characters).all(|(wanted, is)| wanted == *is)
    });
    found.map(|compound| compound.len())
}

/// `pod_cidrs`
pub(crate) fn snake(words: &[String]) -> String {
    words.join("_")
}

/// `PodCidrs`
pub(crate) fn pascal(words: &[String]) -> String {
    words.iter().map(|word| capital(word)).collect()
}

/// Applies serde's `rename_all = "camelCase"` to a field: `pod_cidrs` is `podCidrs`.
pub(crate) fn camel(field: &str) -> String {
    let pascal: String = field.split('_').map(capital).collect();
    let mut characters = pascal.chars();
    match characters.next() {
        Some(first) => first.to_ascii_lowercase().to_string() + characters.as_str(),
        None => pascal,
    }
}

fn capital(word: &str) -> String {
    let mut characters = word.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

/// An identifier for a field or a module.
pub(crate) fn field(name: &str) -> String {
    let mut words = words(name);
    if words.is_empty() {
        words = words_of_symbols(name);
    }
    if words.is_empty() {
        words = vec!["field".to_owned()];
    }
    identifier(snake(&words))
}

/// Makes a valid identifier of a name that may be a keyword or begin with a digit.
pub(crate) fn identifier(name: String) -> String {
    if KEYWORDS.contains(&name.as_str()) {
        return format!("{name}_");
    }
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        return format!("_{name}");
    }
    name
}

/// The words of the singular: `ContainerPorts` is `ContainerPort`.
pub(crate) fn singular(words: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    if let Some(last) = words.last_mut() {
        *last = singular_word(last);
    }
    words
}

fn singular_word(word: &str) -> String {
    if let Some((_, singular)) = SINGULARS.iter().find(|(plural, _)| *plural == word) {
        return (*singular).to_owned();
    }
    if word.len() < 3 || SINGULAR_ALREADY.contains(&word) || word.ends_with("ss") || word.ends_with("us") {
        return word.to_owned();
    }
    if let Some(stem) = word.strip_suffix("ies")
        && stem.len() > 1
    {
        return format!("{stem}y");
    }
    for ending in ["sses", "shes", "ches", "xes"] {
        if word.ends_with(ending) {
            return word[..word.len() - 2].to_owned();
        }
    }
    word.strip_suffix('s').unwrap_or(word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected_field: &str, expected_type: &str) {
        assert_eq!(field(name), expected_field);
        assert_eq!(pascal(&words(name)), expected_type);
    }

    #[test]
    fn names_split_where_a_reader_splits_them() {
        check("cidr", "cidr", "Cidr");
        check("podCIDRs", "pod_cidrs", "PodCidrs");
        check("externalIPs", "external_ips", "ExternalIps");
        check("loadBalancerIP", "load_balancer_ip", "LoadBalancerIp");
        check("httpGet", "http_get", "HttpGet");
        check("HTTPRoute", "http_route", "HttpRoute");
        check("URLsOfTheHost", "urls_of_the_host", "UrlsOfTheHost");
        check("ipv4Address", "ipv4_address", "Ipv4Address");
        check("useIPv6Only", "use_ipv6_only", "UseIpv6Only");
        check("clientOAuth2", "client_oauth2", "ClientOauth2");
        check("mTLSMode", "mtls_mode", "MtlsMode");
        check("x509", "x509", "X509");
        check("matchDNSNames", "match_dns_names", "MatchDnsNames");
        check("foo-bar.baz/qux_quux", "foo_bar_baz_qux_quux", "FooBarBazQuxQuux");
    }

    #[test]
    fn fields_are_renamed_as_serde_does() {
        assert_eq!(camel("pod_cidrs"), "podCidrs");
        assert_eq!(camel("cidr"), "cidr");
        assert_eq!(camel("type_"), "type");
        assert_eq!(camel("_3scale"), "3scale");
        assert_eq!(camel("a__b"), "aB");
        assert_eq!(camel("_"), "");
    }

    #[test]
    fn keywords_digits_and_symbols_become_identifiers() {
        assert_eq!(field("type"), "type_");
        assert_eq!(field("self"), "self_");
        assert_eq!(field("3scale"), "_3scale");
        assert_eq!(field("*"), "star");
        assert_eq!(field("名"), "field");
        assert_eq!(field("x-kubernetes-map-type"), "x_kubernetes_map_type");
    }

    #[test]
    fn one_of_several_has_the_singular() {
        #[track_caller]
        fn check(plural: &str, expected: &str) {
            assert_eq!(snake(&singular(&words(plural))), expected);
        }
        check("containers", "container");
        check("policies", "policy");
        check("addresses", "address");
        check("matchLabels", "match_label");
        check("ingressClass", "ingress_class");
        check("status", "status");
        check("patches", "patch");
        check("databases", "database");
        check("aliases", "alias");
        check("podIPs", "pod_ip");
        check("data", "data");
        check("dns", "dns");
        check("suffixes", "suffix");
    }
}
