//! JSON patches from two states of an object, and the transfer of a typed object's changes to the object that was sent.
//!
//! A type has the fields of its own version, and the server may have sent others. A comparison of the sent object with
//! the type's encoding would remove those, so [`carry`] transfers to the sent object only the changes that a function
//! made between decoding and encoding. [`diff`] then returns the difference as RFC 6902 operations.
//!
//! Lists are aligned: elements that are equal first, then those with the same `name`, so that a container inserted
//! before others is one operation and does not rewrite them.

use serde::Serialize;
use serde_json::{Map, Value};

/// The most pairs of elements of two lists that are compared; longer lists are aligned only by their common prefix and
/// suffix.
const PAIRS_MAX: usize = 10_000;

/// One operation of a patch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(crate) enum Change {
    Add { path: String, value: Value },
    Remove { path: String },
    Replace { path: String, value: Value },
}

/// The relation of an element of one list to the other list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Alignment {
    Added(usize),
    Kept(usize, usize),
    Removed(usize),
}

/// The operations that turn `old` into `new`, applied in order.
pub(crate) fn diff(old: &Value, new: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    diff_at(&mut String::new(), old, new, &mut changes);
    changes
}

fn diff_at(path: &mut String, old: &Value, new: &Value, changes: &mut Vec<Change>) {
    match (old, new) {
        _ if old == new => {}
        (Value::Object(old), Value::Object(new)) => diff_maps(path, old, new, changes),
        (Value::Array(old), Value::Array(new)) => diff_lists(path, old, new, changes),
        _ => changes.push(Change::Replace { path: path.clone(), value: new.clone() }),
    }
}

fn diff_maps(path: &mut String, old: &Map<String, Value>, new: &Map<String, Value>, changes: &mut Vec<Change>) {
    let length = path.len();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        push_key(path, key);
        changes.push(Change::Remove { path: path.clone() });
        path.truncate(length);
    }
    for (key, value) in new {
        push_key(path, key);
        match old.get(key) {
            Some(old) => diff_at(path, old, value, changes),
            None => changes.push(Change::Add { path: path.clone(), value: value.clone() }),
        }
        path.truncate(length);
    }
}

fn diff_lists(path: &mut String, old: &[Value], new: &[Value], changes: &mut Vec<Change>) {
    let length = path.len();
    // Elements before this index are in their new state, those from it on in the old one.
    let mut index = 0;
    for place in align(old, new) {
        path.push('/');
        path.push_str(&index.to_string());
        match place {
            Alignment::Added(at) => {
                changes.push(Change::Add { path: path.clone(), value: new[at].clone() });
                index += 1;
            }
            Alignment::Kept(from, to) => {
                diff_at(path, &old[from], &new[to], changes);
                index += 1;
            }
            Alignment::Removed(_) => changes.push(Change::Remove { path: path.clone() }),
        }
        path.truncate(length);
    }
}

/// Appends a key with the escapes of RFC 6901.
fn push_key(path: &mut String, key: &str) {
    path.push('/');
    for character in key.chars() {
        match character {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            other => path.push(other),
        }
    }
}

/// Applies the changes from `before` to `after` to `sent`; `before` is the type's encoding of `sent`. Fields that the
/// type left out of `before` stay as they were sent; fields that it added are not transferred.
pub(crate) fn carry(sent: Value, before: &Value, after: Value) -> Value {
    if *before == after {
        return sent;
    }
    match (sent, before, after) {
        (Value::Object(mut sent), Value::Object(before), Value::Object(after)) => {
            sent.retain(|key, _| after.contains_key(key) || !before.contains_key(key));
            for (key, value) in after {
                let value = match before.get(&key) {
                    Some(known) if *known == value => continue,
                    Some(known) => match sent.remove(&key) {
                        Some(sent) => carry(sent, known, value),
                        None => value,
                    },
                    None => value,
                };
                sent.insert(key, value);
            }
            Value::Object(sent)
        }
        (Value::Array(sent), Value::Array(before), Value::Array(after)) if sent.len() == before.len() => {
            let places = align(before, &after);
            let (mut sent, mut after): (Vec<_>, Vec<_>) =
                (sent.into_iter().map(Some).collect(), after.into_iter().map(Some).collect());
            let carried = places.into_iter().filter_map(|place| match place {
                Alignment::Added(at) => after[at].take(),
                Alignment::Kept(from, to) => match (sent[from].take(), after[to].take()) {
                    (Some(sent), Some(after)) => Some(carry(sent, &before[from], after)),
                    (_, after) => after,
                },
                Alignment::Removed(_) => None,
            });
            Value::Array(carried.collect())
        }
        (_, _, after) => after,
    }
}

/// The alignment of `old` and `new`, in the order of both.
fn align(old: &[Value], new: &[Value]) -> Vec<Alignment> {
    let shorter = old.len().min(new.len());
    let head = (0..shorter).take_while(|at| old[*at] == new[*at]).count();
    let tail = (1..=shorter - head).take_while(|back| old[old.len() - back] == new[new.len() - back]).count();
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let mut places: Vec<Alignment> = (0..head).map(|at| Alignment::Kept(at, at)).collect();
    let (mut from, mut to) = (head, head);
    let equal = common(&old[head..old_end], &new[head..new_end], |a, b| a == b);
    for (a, b) in equal.into_iter().map(|(a, b)| (head + a, head + b)).chain([(old_end, new_end)]) {
        align_changed(old, new, (from, a), (to, b), &mut places);
        if a < old_end {
            places.push(Alignment::Kept(a, b));
        }
        (from, to) = (a + 1, b + 1);
    }
    places.extend((0..tail).map(|at| Alignment::Kept(old_end + at, new_end + at)));
    places
}

/// Aligns parts of two lists without equal elements: by name, and in between one by one where their numbers agree.
fn align_changed(
    old: &[Value],
    new: &[Value],
    (old_start, old_end): (usize, usize),
    (new_start, new_end): (usize, usize),
    places: &mut Vec<Alignment>,
) {
    let named =
        common(&old[old_start..old_end], &new[new_start..new_end], |a, b| name(a).is_some() && name(a) == name(b));
    let (mut from, mut to) = (old_start, new_start);
    let ends = named.into_iter().map(|(a, b)| (old_start + a, new_start + b)).chain([(old_end, new_end)]);
    for (a, b) in ends {
        let is_paired = a - from == b - to;
        let are_unnamed = || (from..a).zip(to..b).all(|(a, b)| name(&old[a]).is_none() && name(&new[b]).is_none());
        if is_paired && are_unnamed() {
            places.extend((from..a).zip(to..b).map(|(a, b)| Alignment::Kept(a, b)));
        } else {
            places.extend((from..a).map(Alignment::Removed));
            places.extend((to..b).map(Alignment::Added));
        }
        if a < old_end {
            places.push(Alignment::Kept(a, b));
        }
        (from, to) = (a + 1, b + 1);
    }
}

fn name(value: &Value) -> Option<&str> {
    value.get("name").and_then(Value::as_str)
}

/// The longest common subsequence, as pairs of rising indices; empty where the search would take too long.
fn common(old: &[Value], new: &[Value], is_same: impl Fn(&Value, &Value) -> bool) -> Vec<(usize, usize)> {
    let (rows, columns) = (old.len(), new.len());
    if rows == 0 || columns == 0 || rows.saturating_mul(columns) > PAIRS_MAX {
        return Vec::new();
    }
    let width = columns + 1;
    // By (i, j): the length of the longest common subsequence of old[i..] and new[j..].
    let mut lengths = vec![0_u32; (rows + 1) * width];
    let mut same = vec![false; rows * columns];
    for i in (0..rows).rev() {
        for j in (0..columns).rev() {
            let is_same = is_same(&old[i], &new[j]);
            same[i * columns + j] = is_same;
            lengths[i * width + j] = match is_same {
                true => lengths[(i + 1) * width + j + 1] + 1,
                false => lengths[(i + 1) * width + j].max(lengths[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < rows && j < columns {
        if same[i * columns + j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests;
