//! Semantic versions, in order of precedence.

use crate::error::EvalError;
use std::cmp::Ordering;

/// A version without its build metadata, which does not affect the order.
#[derive(Clone, Debug)]
pub struct Semver {
    pub(crate) numbers: [u64; 3],
    pre_release: Vec<Identifier>,
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Identifier {
    // Numbers come before words.
    Number(u64),
    Word(String),
}

/// The text without a `v` and leading zeros, and with missing numbers added.
pub(crate) fn normalized(text: &str) -> Result<String, EvalError> {
    let mut parts: Vec<String> = text.strip_prefix('v').unwrap_or(text).splitn(3, '.').map(str::to_owned).collect();
    for part in &mut parts {
        if part.len() > 1 {
            let stripped = part.trim_start_matches('0');
            let is_number = stripped.starts_with(|char: char| char.is_ascii_digit());
            *part = if is_number { stripped.to_owned() } else { format!("0{stripped}") };
        }
    }
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err(EvalError::new("Short version cannot contain PreRelease/Build meta data"));
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}

pub(crate) fn parse(text: &str) -> Result<Semver, EvalError> {
    if text.is_empty() {
        return Err(EvalError::new("Version string empty"));
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, rest] = parts.as_slice() else {
        return Err(EvalError::new("No Major.Minor.Patch elements found"));
    };
    let (rest, build) = match rest.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (*rest, None),
    };
    let (patch, pre_release) = match rest.split_once('-') {
        Some((patch, pre_release)) => (patch, Some(pre_release)),
        None => (rest, None),
    };
    let number = |part: &str, name: &str| {
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(EvalError::new(format!("Invalid character(s) found in {name} number {part:?}")));
        }
        if part.len() > 1 && part.starts_with('0') {
            let name = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
            return Err(EvalError::new(format!("{name} number must not contain leading zeroes {part:?}")));
        }
        part.parse::<u64>().map_err(|_| EvalError::new(format!("{name} number {part:?} is too large")))
    };
    let numbers = [number(major, "major")?, number(minor, "minor")?, number(patch, "patch")?];
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let mut identifiers = Vec::new();
    for word in pre_release.iter().flat_map(|words| words.split('.')) {
        if !is_word(word) {
            return Err(EvalError::new(format!("Invalid character(s) found in prerelease {word:?}")));
        }
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && word.len() > 1 && word.starts_with('0') {
            return Err(EvalError::new(format!("Numeric PreRelease version must not contain leading zeroes {word:?}")));
        }
        identifiers.push(match word.parse() {
            Ok(number) if is_number => Identifier::Number(number),
            _ => Identifier::Word(word.to_owned()),
        });
    }
    if let Some(word) = build.iter().flat_map(|words| words.split('.')).find(|word| !is_word(word)) {
        return Err(EvalError::new(format!("Invalid character(s) found in build meta data {word:?}")));
    }
    Ok(Semver { numbers, pre_release: identifiers })
}

impl Semver {
    pub(crate) fn cmp(&self, other: &Semver) -> Ordering {
        let by_pre_release = match (self.pre_release.is_empty(), other.pre_release.is_empty()) {
            // A pre-release precedes its release.
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => self.pre_release.cmp(&other.pre_release),
        };
        self.numbers.cmp(&other.numbers).then(by_pre_release)
    }
}
