//! Sets of completion indexes in the format of a Job's status: `0-2,4`.
//!
//! The size of a set depends on the number of its gaps, not on the number of completions. Follows upstream's
//! `orderedIntervals`.

use std::fmt;

/// A set of indexes: intervals in order, which neither overlap nor touch.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Intervals {
    /// The first and the last index of each interval.
    all: Vec<(i32, i32)>,
}

impl Intervals {
    /// Parses the set in a status or a policy, up to the number of completions. Invalid intervals are skipped.
    pub(crate) fn parse(text: &str, completions: i32) -> Intervals {
        let mut all = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first @ 0..), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>())
                && first <= last
                && first < completions
            {
                all.push((first, last.min(completions - 1)));
            }
        }
        Intervals::of(all)
    }

    fn of(mut all: Vec<(i32, i32)>) -> Intervals {
        all.sort_unstable();
        let mut merged: Vec<(i32, i32)> = Vec::with_capacity(all.len());
        for (first, last) in all {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Intervals { all: merged }
    }

    /// This set with more indexes.
    pub(crate) fn with(&self, indexes: impl IntoIterator<Item = i32>) -> Intervals {
        let more = indexes.into_iter().map(|index| (index, index));
        Intervals::of(self.all.iter().copied().chain(more).collect())
    }

    pub(crate) fn union(&self, other: &Intervals) -> Intervals {
        Intervals::of(self.all.iter().chain(&other.all).copied().collect())
    }

    pub(crate) fn has(&self, index: i32) -> bool {
        let at = self.all.partition_point(|&(_, last)| last < index);
        self.all.get(at).is_some_and(|&(first, _)| first <= index)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of indexes.
    pub(crate) fn total(&self) -> i32 {
        self.all.iter().fold(0i32, |total, (first, last)| total.saturating_add(last - first).saturating_add(1))
    }

    /// The number of indexes that are in both sets.
    pub(crate) fn n_common(&self, other: &Intervals) -> i32 {
        let (mut mine, mut others) = (self.all.iter().peekable(), other.all.iter().peekable());
        let mut n_common = 0i32;
        while let (Some(a), Some(b)) = (mine.peek(), others.peek()) {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last {
                n_common = n_common.saturating_add(last - first).saturating_add(1);
            }
            if a.1 <= b.1 {
                mine.next()
            } else {
                others.next()
            };
        }
        n_common
    }

    /// The first indexes below `end` that are not in the set, at most `n_max` of them.
    pub(crate) fn first_missing(&self, n_max: usize, end: i32) -> Vec<i32> {
        let mut missing = Vec::new();
        let mut from = 0;
        for (first, last) in self.all.iter().copied().chain([(end, end)]) {
            missing.extend((from..first.min(end)).take(n_max - missing.len()));
            from = from.max(last.saturating_add(1));
        }
        missing
    }
}

impl fmt::Display for Intervals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.all.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn three_in_a_row_are_an_interval_and_two_are_not() {
        let of = |indexes: &[i32]| Intervals::default().with(indexes.iter().copied()).to_string();
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[3, 1, 4, 5, 7]), "1,3-5,7");
        assert_eq!(of(&[0, 1, 3, 4]), "0,1,3,4");
    }

    #[test]
    fn what_is_no_interval_or_beyond_the_completions_is_left_out() {
        let read = |text: &str, completions| Intervals::parse(text, completions).to_string();
        assert_eq!(read("0-2,x,4-y,9", 10), "0-2,9");
        assert_eq!(read("0-8,9", 5), "0-4");
        assert_eq!(read("5-1,-3,2147483647-2147483648", i32::MAX), "");
        assert_eq!(read("0-2147483646", i32::MAX), "0-2147483646");
        assert_eq!(Intervals::parse("0-2147483646", i32::MAX).total(), i32::MAX);
        assert_eq!(read("0-3", 0), "");
    }

    proptest! {
        #[test]
        fn intervals_are_sets(
            a in prop::collection::btree_set(0..40i32, 0..30),
            b in prop::collection::btree_set(0..40i32, 0..30),
            n_max in 0usize..50,
        ) {
            let (left, right) = (Intervals::default().with(a.clone()), Intervals::default().with(b.clone()));
            prop_assert_eq!(&Intervals::parse(&left.to_string(), 40), &left);
            let union: BTreeSet<i32> = a.union(&b).copied().collect();
            prop_assert_eq!(&left.union(&right), &Intervals::default().with(union.clone()));
            prop_assert_eq!(left.n_common(&right) as usize, a.intersection(&b).count());
            prop_assert_eq!(left.total() as usize, a.len());
            for index in 0..40 {
                prop_assert_eq!(left.has(index), a.contains(&index));
            }
            let missing: Vec<i32> = (0..40).filter(|index| !union.contains(index)).take(n_max).collect();
            prop_assert_eq!(left.union(&right).first_missing(n_max, 40), missing);
        }
    }
}
