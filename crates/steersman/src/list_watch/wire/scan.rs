//! A JSON skipper: finds and cuts members of an object without decoding anything.
//!
//! It validates nothing: bytes that are not JSON give `None` or are left unchanged, and the decoder that runs
//! afterwards reports them. Keys written with escapes are not recognized; no Kubernetes server writes them.

use std::ops::Range;

/// A member to remove before decoding, as its path of keys: `["metadata", "managedFields"]`.
pub(crate) type Path = Vec<String>;

/// Copies `json` into `into` without the members at `paths`. Returns false, with `into` untouched, when nothing is to
/// be removed. Only as much of `json` is scanned as the paths need.
pub(crate) fn prune(json: &[u8], paths: &[Path], into: &mut Vec<u8>) -> bool {
    let cuts = cuts(json, paths);
    if cuts.is_empty() {
        return false;
    }
    into.clear();
    into.reserve(json.len());
    let mut kept = 0;
    for cut in cuts {
        into.extend_from_slice(&json[kept..cut.start]);
        kept = cut.end;
    }
    into.extend_from_slice(&json[kept..]);
    true
}

/// The ranges to cut from `json`, in order and without overlap; none if it is not a JSON object.
fn cuts(json: &[u8], paths: &[Path]) -> Vec<Range<usize>> {
    let mut cuts = Vec::new();
    let paths: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
    let start = skip_space(json, 0);
    if json.get(start) != Some(&b'{') || find_cuts(json, start, &paths, &mut cuts).is_none() {
        return Vec::new();
    }
    cuts
}

/// The value of the member `key` of the object `json`, as bytes.
pub(crate) fn member<'a>(json: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut at = skip_space(json, 0);
    if json.get(at) != Some(&b'{') {
        return None;
    }
    at = skip_space(json, at + 1);
    while json.get(at) == Some(&b'"') {
        let (name, value) = key_and_value(json, at)?;
        // A value cut short by a broken stream is still returned: its own decoder rejects it.
        let end = skip_value(json, value).unwrap_or(json.len());
        if &json[name] == key.as_bytes() {
            return Some(&json[value..end]);
        }
        at = skip_space(json, end);
        if json.get(at) != Some(&b',') {
            return None;
        }
        at = skip_space(json, at + 1);
    }
    None
}

/// Collects the cuts within the object that opens at `open`, in order and without overlap. `None`: not JSON.
fn find_cuts(json: &[u8], open: usize, paths: &[&[String]], cuts: &mut Vec<Range<usize>>) -> Option<()> {
    let mut wanted = paths.len();
    let mut kept_comma = None;
    let mut at = skip_space(json, open + 1);
    while wanted > 0 && json.get(at) == Some(&b'"') {
        let (name, value) = key_and_value(json, at)?;
        let name = &json[name];
        let concerned = paths.iter().filter(|path| path.first().is_some_and(|key| key.as_bytes() == name));
        let (ends, deeper): (Vec<&[String]>, Vec<&[String]>) = concerned.partition(|path| path.len() == 1);
        wanted -= ends.len() + deeper.len();
        if ends.is_empty() && !deeper.is_empty() && json.get(value) == Some(&b'{') {
            let rest: Vec<&[String]> = deeper.iter().map(|path| &path[1..]).collect();
            find_cuts(json, value, &rest, cuts)?;
            if wanted == 0 {
                return Some(());
            }
        }
        let end = skip_value(json, value)?;
        let after = skip_space(json, end);
        let comma = (json.get(after) == Some(&b',')).then_some(after);
        let next = comma.map_or(after, |comma| skip_space(json, comma + 1));
        match (ends.is_empty(), comma) {
            (true, _) => kept_comma = comma,
            (false, Some(_)) => cuts.push(at..next),
            // The last member is cut with the comma before it, and with the cuts that follow that comma.
            (false, None) => {
                let start = kept_comma.unwrap_or(at);
                let start = if kept_comma.is_none() {
                    cuts.last().filter(|cut| cut.end == at && cut.start > open).map_or(start, |cut| cut.start)
                } else {
                    start
                };
                while cuts.last().is_some_and(|cut| cut.start >= start) {
                    cuts.pop();
                }
                cuts.push(start..end);
            }
        }
        if comma.is_none() {
            break;
        }
        at = next;
    }
    Some(())
}

/// Range of the key's text and start of its value, for the member whose key opens at `quote`.
pub(super) fn key_and_value(json: &[u8], quote: usize) -> Option<(Range<usize>, usize)> {
    let after = skip_string(json, quote)?;
    let colon = skip_space(json, after);
    if json.get(colon) != Some(&b':') {
        return None;
    }
    Some((quote + 1..after - 1, skip_space(json, colon + 1)))
}

pub(super) fn skip_space(json: &[u8], mut at: usize) -> usize {
    while json.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// The position after the string that opens at `quote`.
fn skip_string(json: &[u8], quote: usize) -> Option<usize> {
    let mut at = quote + 1;
    loop {
        at += quote_or_escape(json.get(at..)?)?;
        if json[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The position of the first quote or backslash. Most strings of an object are shorter than the cost of calling a
/// search with wide registers, so the first bytes are searched eight at a time.
fn quote_or_escape(text: &[u8]) -> Option<usize> {
    const WORDS_MAX: usize = 4;
    let (words, _) = text.as_chunks::<8>();
    for (number, word) in words.iter().take(WORDS_MAX).enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = bytes_equal(word, b'"') | bytes_equal(word, b'\\');
        if found != 0 {
            return Some(8 * number + found.trailing_zeros() as usize / 8);
        }
    }
    let looked_at = 8 * words.len().min(WORDS_MAX);
    Some(looked_at + memchr::memchr2(b'"', b'\\', &text[looked_at..])?)
}

/// The highest bit of the lowest byte of `word` that is `byte`, or zero. Higher bits mean nothing.
fn bytes_equal(word: u64, byte: u8) -> u64 {
    const LOW: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    let difference = word ^ u64::from_le_bytes([byte; 8]);
    difference.wrapping_sub(LOW) & !difference & HIGH
}

/// The position after the value that starts at `at`.
pub(super) fn skip_value(json: &[u8], mut at: usize) -> Option<usize> {
    match json.get(at)? {
        b'"' => return skip_string(json, at),
        b'{' | b'[' => {}
        _ => {
            while json.get(at).is_some_and(|byte| !matches!(byte, b',' | b'}' | b']') && !byte.is_ascii_whitespace()) {
                at += 1;
            }
            return Some(at);
        }
    }
    let mut depth = 0_u32;
    loop {
        match json.get(at)? {
            b'"' => {
                at = skip_string(json, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
    use serde_json::{Value, json};

    use super::*;

    fn paths() -> Vec<Path> {
        [vec!["a"], vec!["b"], vec!["m", "a"], vec!["m", "b", "a"]]
            .into_iter()
            .map(|path| path.into_iter().map(str::to_owned).collect())
            .collect()
    }

    fn remove(value: &mut Value, path: &[String]) {
        let Value::Object(map) = value else { return };
        match path {
            [] => {}
            [key] => drop(map.remove(key)),
            [key, rest @ ..] => {
                if let Some(inner) = map.get_mut(key) {
                    remove(inner, rest);
                }
            }
        }
    }

    #[track_caller]
    fn check(text: &str) {
        let mut expected: Value = serde_json::from_str(text).unwrap();
        for path in paths() {
            remove(&mut expected, &path);
        }
        let mut pruned = Vec::new();
        if !prune(text.as_bytes(), &paths(), &mut pruned) {
            pruned = text.as_bytes().to_vec();
        }
        let found: Value = serde_json::from_slice(&pruned)
            .unwrap_or_else(|error| panic!("{text} became {}: {error}", String::from_utf8_lossy(&pruned)));
        assert_eq!(found, expected, "of {text}");
    }

    #[test]
    fn pruning_removes_the_members_and_keeps_the_rest_valid() {
        check(r#"{"a":1}"#);
        check(r#"{"a":1,"b":2}"#);
        check(r#"{"x":1,"a":{"b":"}"},"b":[1,2],"y":"\"a\":"}"#);
        check(r#"{ "x" : 1 , "a" : 2 , "b" : 3 }"#);
        check(r#"{"m":{"a":1,"b":{"a":2}},"a":0}"#);
        check(r#"{"a":0,"m":{"z":0,"b":{"a":2,"z":1},"a":[{"a":1}]}}"#);
        check(r#"{"m":3,"x":[]}"#);
        check("[1]");
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z\"\\\\{}\\[\\],: é]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            let key = prop_oneof![Just("a"), Just("b"), Just("m"), Just("x"), Just("\"")].prop_map(str::to_owned);
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(key, inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn quotes_and_escapes_are_found_wherever_they_stand(text in "[a-c!#\\[\\]é]{0,60}", tail in "[\"\\\\a]{0,12}") {
            let text = text + &tail;
            assert_eq!(quote_or_escape(text.as_bytes()), text.find(['"', '\\']), "{text}");
        }

        #[test]
        fn pruning_equals_removing_from_the_tree(value in tree()) {
            check(&value.to_string());
            check(&serde_json::to_string_pretty(&value).unwrap());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in any::<Vec<u8>>()) {
            prune(&bytes, &paths(), &mut Vec::new());
            member(&bytes, "a");
        }

        #[test]
        fn a_member_is_found_as_its_decoded_value(value in tree()) {
            let text = value.to_string();
            let found = member(text.as_bytes(), "m").map(|bytes| serde_json::from_slice::<Value>(bytes).unwrap());
            assert_eq!(found.as_ref(), value.get("m"));
        }
    }
}
