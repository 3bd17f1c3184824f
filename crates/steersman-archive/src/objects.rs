//! From the objects of a dump to entries of a store: which resource each is of, and the form in which it is stored.
//!
//! [`served`] are objects as an API server gives them, [`stored`] those that it keeps in etcd. For custom resources without a definition one
//! is made up ([`made_up`]): the plural and the scope are those of the paths in the dump, or guessed.

mod kinds;
mod made_up;
mod parallel;
mod redacted;
mod served;
mod stored;

use crate::error::OpenError;
use crate::objects::made_up::MadeUp;
use crate::options::Options;
use crate::source::Found;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use steersman_machinery::Revision;
use steersman_storage::kv::Entry;

/// The longest reason.
const REASON_BYTES_MAX: usize = 300;
/// The most reasons that are told apart.
const REASONS_MAX: usize = 50;
/// The latest revision that is believed: others, such as those of servers beside kube-apiserver, are no revisions of one etcd.
const REVISION_MAX: Revision = Revision(1 << 53);

/// The objects of a dump that are not shown: their number by reason.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LeftOut(BTreeMap<String, usize>);

/// The objects of a dump as entries.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) entries: Vec<Entry>,
    pub(crate) revision: Revision,
    pub(crate) made_up: Vec<String>,
    pub(crate) left_out: LeftOut,
}

impl Objects {
    pub(crate) fn of(found: Found, path: &Path, options: &Options) -> Result<Objects, OpenError> {
        let objects = match found {
            Found::Served(found) => served::entries(found, options),
            Found::Stored(found) => stored::entries(found, path, options)?,
        };
        if objects.entries.is_empty() {
            return Err(OpenError::NoObjects { path: path.to_owned() });
        }
        Ok(objects)
    }

    /// Puts everything together. Of several entries of one key the one that counts comes first.
    fn new(mut entries: Vec<Entry>, revision: Revision, made_up: MadeUp, mut left_out: LeftOut) -> Objects {
        let revision = entries.iter().map(|entry| entry.revision).max().unwrap_or_default().max(revision);
        let revision = revision.max(Revision(1));
        let names = made_up.names();
        entries.extend(made_up.into_entries(&mut left_out));
        for entry in &mut entries {
            // One without a revision counts as written last.
            if entry.revision == Revision::ZERO {
                entry.revision = revision;
            }
        }
        // Stable, so that what came first stays first.
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        entries.dedup_by(|later, first| later.key == first.key);
        Objects { entries, revision, made_up: names, left_out }
    }
}

impl LeftOut {
    /// Counts an object that is left out.
    fn count(&mut self, why: String) {
        // Kinds are as long as somebody made them.
        let mut why = why;
        why.truncate(why.floor_char_boundary(REASON_BYTES_MAX));
        let has_room = self.0.len() < REASONS_MAX || self.0.contains_key(&why);
        let why = if has_room { why } else { "for other reasons".to_owned() };
        *self.0.entry(why).or_default() += 1;
    }

    /// The number of objects.
    pub fn n_objects(&self) -> usize {
        self.0.values().sum()
    }

    /// The reasons, each with its number of objects.
    pub fn reasons(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|(why, n)| (&**why, *n))
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons: Vec<String> = self.reasons().map(|(why, n)| format!("{n} {why}")).collect();
        f.write_str(&reasons.join("; "))
    }
}

/// The revision that a number means.
fn revision(number: u64) -> Revision {
    if number <= REVISION_MAX.0 { Revision(number) } else { Revision::ZERO }
}
