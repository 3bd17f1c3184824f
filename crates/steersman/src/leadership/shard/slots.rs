//! Slots: the units that a group divides among its members, and the hashes of keys and members to slots.
//!
//! All members must compute the same results here, also across versions: the computations are part of the format that
//! [`Slots::parse`] checks.

use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};

use crate::shared::key::ObjectKey;

/// The number of slots.
pub(crate) const SLOTS: usize = 1_024;

const WORDS: usize = SLOTS / 64;

/// The prefix of an encoded set. Another numbering of slots, or another hash of keys, needs another prefix.
const FORMAT: &str = "v1:";

/// A set of slots.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
pub(crate) struct Slots {
    words: [u64; WORDS],
}

impl Slots {
    pub(crate) const ALL: Self = Self { words: [u64::MAX; WORDS] };
    pub(crate) const NONE: Self = Self { words: [0; WORDS] };

    pub(crate) fn contains(&self, slot: usize) -> bool {
        self.words[slot / 64] & (1 << (slot % 64)) != 0
    }

    pub(crate) fn insert(&mut self, slot: usize) {
        self.words[slot / 64] |= 1 << (slot % 64);
    }

    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// The set as text: the format, then the slots in hexadecimal digits of four, lowest slot first.
    pub(crate) fn encode(&self) -> String {
        let mut text = String::with_capacity(FORMAT.len() + SLOTS / 4);
        text.push_str(FORMAT);
        for word in self.words {
            text.push_str(&format!("{:016x}", word.reverse_bits()));
        }
        text
    }

    /// Reads the output of [`Slots::encode`]. `None`: another version with another division of keys wrote it, or
    /// another program.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(FORMAT)?;
        if digits.len() != SLOTS / 4 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut words = [0; WORDS];
        for (word, digits) in words.iter_mut().zip(digits.as_bytes().chunks(16)) {
            let digits = std::str::from_utf8(digits).ok()?;
            *word = u64::from_str_radix(digits, 16).ok()?.reverse_bits();
        }
        Some(Self { words })
    }

    fn zip(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = self.words;
        for (word, other) in words.iter_mut().zip(other.words) {
            *word = join(*word, other);
        }
        Self { words }
    }
}

impl BitAnd for Slots {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }
}

impl BitOr for Slots {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.zip(other, |a, b| a | b)
    }
}

impl Sub for Slots {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slots", self.len())
    }
}

/// The slot of a key: a hash of its text, whatever its kind.
pub(crate) fn slot_of(key: &ObjectKey) -> usize {
    // The remainder is below SLOTS, so it fits.
    (spread(fnv(key.as_str())) % SLOTS as u64) as usize
}

/// The slots of `member` among `members`: those where its weight is the highest (rendezvous hashing). Empty if it is
/// not one of them.
///
/// A member that joins takes slots from each of the others, and only these move; one that leaves distributes its slots
/// to all the others. Either way about one slot in n moves.
pub(crate) fn share(member: &str, members: &[String]) -> Slots {
    let mut slots = Slots::NONE;
    if !members.iter().any(|id| id == member) {
        return slots;
    }
    let others = members.iter().filter(|id| *id != member);
    let others: Vec<(u64, &str)> = others.map(|id| (fnv(id), id.as_str())).collect();
    let own = fnv(member);
    for slot in 0..SLOTS {
        // Equal weights are ordered by name.
        let weight = (weight(own, slot), member);
        if others.iter().all(|(hash, id)| (self::weight(*hash, slot), *id) < weight) {
            slots.insert(slot);
        }
    }
    slots
}

fn weight(member: u64, slot: usize) -> u64 {
    spread(member ^ spread(slot as u64 + 1))
}

/// FNV-1a.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The finalizer of SplitMix64: every bit of the input turns about half of the output's.
fn spread(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(n: usize) -> Vec<String> {
        (0..n).map(|number| format!("operator-{number:04x}")).collect()
    }

    fn shares(names: &[String]) -> Vec<Slots> {
        names.iter().map(|name| share(name, names)).collect()
    }

    #[test]
    fn every_slot_is_in_exactly_one_share_and_shares_are_fair() {
        for n in 1..=20 {
            let shares = shares(&names(n));
            let mut union = Slots::NONE;
            for share in &shares {
                assert!((union & *share).is_empty());
                union = union | *share;
                let fair = SLOTS as f64 / n as f64;
                assert!(
                    (share.len() as f64 - fair).abs() < 4.0 * fair.sqrt() + 1.0,
                    "{} of {fair} among {n}",
                    share.len()
                );
            }
            assert_eq!(union, Slots::ALL);
        }
    }

    #[test]
    fn who_comes_takes_and_who_goes_leaves_and_nothing_else_moves() {
        for n in 1..12 {
            let (names, few) = (names(n + 1), shares(&names(n)));
            let many = shares(&names);
            for (before, after) in few.iter().zip(&many) {
                assert!((*after - *before).is_empty(), "a member that stays gains nothing when another comes");
                assert!((*before - *after - many[n]).is_empty(), "what it loses goes to the newcomer");
            }
        }
    }

    #[test]
    fn keys_spread_over_all_slots_evenly() {
        let mut counts = [0_u32; SLOTS];
        for number in 0..102_400 {
            counts[slot_of(&ObjectKey::namespaced("default", &format!("object-{number}")))] += 1;
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least > 50 && *most < 160, "{least} to {most}");
    }

    #[test]
    fn the_arithmetic_is_part_of_the_format() {
        // Members of different versions work side by side during an upgrade. If one of these results changes, FORMAT
        // must change.
        let slots = ["default/a", "kube-system/coredns", "node-1"].map(|key| slot_of(&key.parse().unwrap()));
        assert_eq!(slots, [523, 896, 597]);
        let shares = shares(&names(3));
        assert_eq!([shares[0].len(), shares[1].len(), shares[2].len()], [324, 337, 363]);
        assert_eq!(&shares[0].encode()[..19], "v1:030810da64133881");
    }

    #[test]
    fn a_set_survives_its_text_and_other_text_is_no_set() {
        let share = shares(&names(3))[1];
        assert_eq!(Slots::parse(&share.encode()), Some(share));
        let mut first = Slots::NONE;
        first.insert(0);
        assert!(first.encode().starts_with("v1:8000"));
        let long = format!("v1:{}", "0".repeat(SLOTS / 4 + 1));
        let signed = format!("v1:{}", "+123456789abcdef".repeat(WORDS));
        for text in ["", "v1:", "v2:00", &long, &signed, &first.encode().replace('8', "é")] {
            assert_eq!(Slots::parse(text), None, "{text}");
        }
    }
}
