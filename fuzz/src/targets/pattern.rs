//! Patterns of schemas: the first line is a pattern, the rest a text. A pattern that passes the check can be compiled
//! and matched.

use steersman_schema::pattern::Pattern;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (pattern, subject) = text.split_once('\n').unwrap_or((text, "aAzZ09_.-\u{fc}\n"));
    if Pattern::check(pattern).is_err() {
        assert!(!Pattern::new(pattern).is_match(subject), "{pattern:?}: a pattern that is refused matches nothing");
        return;
    }
    let compiled = Pattern::new(pattern);
    let found = compiled.is_match(subject);
    let places: Vec<&str> = compiled.find_iter(subject).take(1000).collect();
    assert_eq!(found, !places.is_empty(), "{pattern:?} in {subject:?}");
    assert!(places.iter().all(|place| subject.contains(place)));
}
