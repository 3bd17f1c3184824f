//! Rejected responses: which resources are meant, and which the proxy may have taken over.

use crate::kind::Kind;
use crate::report::{Certainty, Rejection, Variant};
use crate::session::track::{Has, Outstanding};
use crate::session::{Novelty, Now, Session};
use std::sync::Arc;

/// The bytes of a proxy's words that are kept and searched for names.
const ERROR_BYTES: usize = 4096;

// === impl Session ===

impl Session {
    pub(crate) fn rejected(&mut self, now: Now, kind: Kind, outstanding: Outstanding, error: &str) {
        let error: Arc<str> = shortened(error).into();
        let is_complete = self.variant == Variant::StateOfTheWorld && kind.is_complete();
        let (repeated, new): (Vec<_>, Vec<_>) =
            outstanding.items.into_iter().partition(|item| item.novelty == Novelty::Known);
        let (new, removals): (Vec<_>, Vec<_>) = new.into_iter().partition(|item| item.resource.is_some());
        let repeats_bad = repeated.iter().any(|item| names(&error, &item.name));
        let is_alone = new.len() == 1 && !repeats_bad;
        let is_named = |name: &str| is_alone || names(&error, name);
        let has_named = repeats_bad || new.iter().any(|item| is_named(&item.name));
        let track = self.track_mut(kind);
        for item in &new {
            let Some(resource) = &item.resource else { continue };
            let blamed = is_named(&item.name);
            if is_complete && has_named && !blamed {
                // Envoy takes over what it does not name, and the rest would be rejected with it once more.
                track.taken_over(item, outstanding.sequence);
                continue;
            }
            let inherits = is_complete && track.inherits;
            // An entry that was unsubscribed in the meantime is gone.
            let Some(entry) = track.entries.get_mut(&item.name) else { continue };
            if blamed && entry.has.is_nothing() {
                entry.sent = 0;
            }
            // Left out of the next response, an older version from before the stream would be deleted.
            if !blamed || inherits && entry.has.is_nothing() {
                entry.perhaps = Some(resource.clone());
            }
            if blamed || inherits && !has_named {
                let certainty = if blamed { Certainty::Named } else { Certainty::Suspected };
                let rejection = Rejection { resource: resource.clone(), error: error.clone(), certainty, at: now.time };
                track.rejections.insert(item.name.clone(), rejection);
                track.suspects.remove(&item.name);
            } else if !has_named {
                track.suspects.insert(item.name.clone());
            }
            track.look_at(item.name.clone());
        }
        for item in removals {
            let Some(entry) = track.entries.get_mut(&item.name) else { continue };
            if new.is_empty() || is_complete {
                // Nothing but removals can be meant, and repeating them changes nothing; or they were made with what was not named.
                (entry.has, entry.perhaps) = (Has::Nothing, None);
            } else {
                // It may be gone or not: it is removed, or sent, once more.
                entry.told_absent = false;
                match std::mem::take(&mut entry.has) {
                    Has::Resource(resource) => entry.perhaps = Some(resource),
                    Has::Known(version) => entry.has = Has::foreign(&version.to_string()),
                    other => entry.has = other,
                }
            }
            track.look_at(item.name);
        }
        self.changes += 1;
        self.progressed(kind);
    }
}

fn shortened(error: &str) -> &str {
    let mut end = error.len().min(ERROR_BYTES);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    &error[..end]
}

/// Whether a text has a name, with nothing before and after it that could be a part of a name.
fn names(text: &str, name: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || "-_.|/".contains(character);
    !name.is_empty()
        && text.match_indices(name).any(|(start, _)| {
            let before = text[..start].chars().next_back();
            let mut after = text[start + name.len()..].chars();
            let next = after.next();
            // A full stop ends a sentence, unless a name goes on after it.
            let goes_on = next
                .is_some_and(|next| next != '.' && is_part(next) || next == '.' && after.next().is_some_and(is_part));
            !before.is_some_and(is_part) && !goes_on
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_as_a_whole() {
        let text = "Error adding/updating cluster(s) web-v2: no endpoints, ns/db|80: bad. Also last.";
        for name in ["web-v2", "ns/db|80", "last", "bad"] {
            assert!(names(text, name), "{name}");
        }
        for name in ["web", "v2", "db", "80", "ns/db", "", "clusters"] {
            assert!(!names(text, name), "{name}");
        }
    }

    #[test]
    fn long_words_are_cut_between_characters() {
        assert_eq!(shortened(&"ä".repeat(3000)).len(), 4096);
        assert_eq!(shortened(&format!("a{}", "ä".repeat(3000))).len(), 4095);
    }
}
