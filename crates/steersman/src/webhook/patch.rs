//! JSON patches made of an object before and after, and changes of a typed object carried over to what was sent.
//!
//! A type knows some fields of an object, those of its own version, and the server may have sent others. Comparing what was
//! sent with what the type serialises would remove them, so [`carry`] transfers to the sent object only what a function
//! changed between decoding and encoding. [`diff`] then says the difference as RFC 6902 operations.
//!
//! Lists are aligned: elements that are equal first, then those with the same `name`, so that a container put in front of
//! others is one operation and does not rewrite them.

use serde::Serialize;
use serde_json::{Map, Value};

/// Comparing each element of one list with each of another is done for so many pairs at most; longer lists are aligned by
/// what they have in common at their ends.
const PAIRS_MAX: usize = 10_000;

/// One operation of a patch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(crate) enum Change {
    Add { path: String, value: Value },
    Remove { path: String },
    Replace { path: String, value: Value },
}

/// Where an element of one list is in the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Added(usize),
    Kept(usize, usize),
    Removed(usize),
}

/// The operations that make `new` of `old`, applied in order.
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
    // What is before this index is as it will be, what is from it on as it was.
    let mut index = 0;
    for place in align(old, new) {
        path.push('/');
        path.push_str(&index.to_string());
        match place {
            Place::Added(at) => {
                changes.push(Change::Add { path: path.clone(), value: new[at].clone() });
                index += 1;
            }
            Place::Kept(from, to) => {
                diff_at(path, &old[from], &new[to], changes);
                index += 1;
            }
            Place::Removed(_) => changes.push(Change::Remove { path: path.clone() }),
        }
        path.truncate(length);
    }
}

/// Appends a key as RFC 6901 writes it.
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

/// Makes the changes from `before` to `after` in `sent`, of which `before` is what a type has understood. What the type
/// left out of `before` stays as it was sent; what it made up stays away.
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
                Place::Added(at) => after[at].take(),
                Place::Kept(from, to) => match (sent[from].take(), after[to].take()) {
                    (Some(sent), Some(after)) => Some(carry(sent, &before[from], after)),
                    (_, after) => after,
                },
                Place::Removed(_) => None,
            });
            Value::Array(carried.collect())
        }
        (_, _, after) => after,
    }
}

/// Which elements of `old` are which of `new`, in the order of both.
fn align(old: &[Value], new: &[Value]) -> Vec<Place> {
    let shorter = old.len().min(new.len());
    let head = (0..shorter).take_while(|at| old[*at] == new[*at]).count();
    let tail = (1..=shorter - head).take_while(|back| old[old.len() - back] == new[new.len() - back]).count();
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let mut places: Vec<Place> = (0..head).map(|at| Place::Kept(at, at)).collect();
    let (mut from, mut to) = (head, head);
    let equal = common(&old[head..old_end], &new[head..new_end], |a, b| a == b);
    for (a, b) in equal.into_iter().map(|(a, b)| (head + a, head + b)).chain([(old_end, new_end)]) {
        align_changed(old, new, (from, a), (to, b), &mut places);
        if a < old_end {
            places.push(Place::Kept(a, b));
        }
        (from, to) = (a + 1, b + 1);
    }
    places.extend((0..tail).map(|at| Place::Kept(old_end + at, new_end + at)));
    places
}

/// Aligns parts of two lists that have no equal elements: by name, and in between one by one where there are as many.
fn align_changed(
    old: &[Value],
    new: &[Value],
    (old_start, old_end): (usize, usize),
    (new_start, new_end): (usize, usize),
    places: &mut Vec<Place>,
) {
    let named =
        common(&old[old_start..old_end], &new[new_start..new_end], |a, b| name(a).is_some() && name(a) == name(b));
    let (mut from, mut to) = (old_start, new_start);
    let ends = named.into_iter().map(|(a, b)| (old_start + a, new_start + b)).chain([(old_end, new_end)]);
    for (a, b) in ends {
        let is_paired = a - from == b - to;
        let are_unnamed = || (from..a).zip(to..b).all(|(a, b)| name(&old[a]).is_none() && name(&new[b]).is_none());
        if is_paired && are_unnamed() {
            places.extend((from..a).zip(to..b).map(|(a, b)| Place::Kept(a, b)));
        } else {
            places.extend((from..a).map(Place::Removed));
            places.extend((to..b).map(Place::Added));
        }
        if a < old_end {
            places.push(Place::Kept(a, b));
        }
        (from, to) = (a + 1, b + 1);
    }
}

fn name(value: &Value) -> Option<&str> {
    value.get("name").and_then(Value::as_str)
}

/// The longest common subsequence, as pairs of rising indices; empty where finding it would take too long.
fn common(old: &[Value], new: &[Value], is_same: impl Fn(&Value, &Value) -> bool) -> Vec<(usize, usize)> {
    let (rows, columns) = (old.len(), new.len());
    if rows == 0 || columns == 0 || rows.saturating_mul(columns) > PAIRS_MAX {
        return Vec::new();
    }
    let width = columns + 1;
    // By (i, j): the length of what old[i..] and new[j..] have in common.
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
