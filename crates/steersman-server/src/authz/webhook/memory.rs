//! Verdicts of a webhook that are remembered for a while.

use crate::authz::Verdict;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// The most verdicts; beyond that the oldest is forgotten.
const VERDICTS_MAX: usize = 8192;

/// The digest of a question, so that a long one takes no more memory than a short one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Key([u8; 32]);

#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    verdicts: HashMap<Key, Kept>,
    /// Every key with its number, in the order in which they were kept. A number that the key no longer has is of a verdict
    /// that was replaced.
    order: VecDeque<(Key, u64)>,
    number: u64,
}

#[derive(Debug)]
struct Kept {
    verdict: Verdict,
    until: Instant,
    number: u64,
}

impl Key {
    pub(super) fn of(question: &[u8]) -> Key {
        Key(Sha256::digest(question).into())
    }
}

impl Memory {
    /// The verdict on a question, if it is remembered.
    pub(super) fn find(&self, key: &Key) -> Option<Verdict> {
        let remembered = self.0.lock();
        let kept = remembered.verdicts.get(key)?;
        (Instant::now() < kept.until).then(|| kept.verdict.clone())
    }

    /// Remembers a verdict for so long.
    pub(super) fn keep(&self, key: Key, verdict: Verdict, time: Duration) {
        if time.is_zero() {
            return;
        }
        let mut remembered = self.0.lock();
        remembered.number += 1;
        let number = remembered.number;
        remembered.verdicts.insert(key, Kept { verdict, until: Instant::now() + time, number });
        remembered.order.push_back((key, number));
        while remembered.order.len() > VERDICTS_MAX {
            let Some((oldest, number)) = remembered.order.pop_front() else { break };
            if remembered.verdicts.get(&oldest).is_some_and(|kept| kept.number == number) {
                remembered.verdicts.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_verdict_is_forgotten_when_its_time_is_over_or_many_came_after_it() {
        let memory = Memory::default();
        let key = |number: usize| Key::of(&number.to_le_bytes());
        memory.keep(key(0), Verdict::ALLOW, Duration::from_secs(10));
        memory.keep(key(1), Verdict::ALLOW, Duration::ZERO);
        assert_eq!((memory.find(&key(0)), memory.find(&key(1))), (Some(Verdict::ALLOW), None));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(memory.find(&key(0)).is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(memory.find(&key(0)), None);
        for number in 0..=VERDICTS_MAX {
            memory.keep(key(number), Verdict::ALLOW, Duration::from_secs(10));
        }
        assert_eq!((memory.find(&key(0)), memory.0.lock().verdicts.len()), (None, VERDICTS_MAX));
    }
}
