//! Decides whether a history could have been made by one server that never fails.
//!
//! Versions give writes a total order, so this takes no search: the events of all watches together are the log of what
//! was written. Then each watch must have had every event of the log once and in order, each acknowledged write must be in
//! the log at its version, each entry of the log must be what somebody wrote, and each read must be the state at some
//! point between its begin and its end: not older than what was acknowledged or seen before it began, not newer than what
//! had begun when it ended.

use crate::history::{Action, Event, History, Listing, Operation, Outcome, State, Version, Watched};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// A sentence about what must not have happened.
pub(crate) type Violation = String;

/// The log of one object: its states in order. The first one is the absence before everything.
struct Log<'a> {
    /// Version and value; `None`: absent from that version on.
    states: Vec<(Version, Option<&'a str>)>,
    /// When the write of each state began.
    began: Vec<Duration>,
}

/// The positions in the log of one object that operations have shown, by the ends of these.
#[derive(Default)]
struct Seen {
    /// The end of an operation, and the position in the log that it has shown at least. Sorted by time; positions grow.
    steps: Vec<(Duration, usize)>,
}

/// Returns the faults of a history, none if it is right.
pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut faults = Vec::new();
    let log = merged(&history.watches, &mut faults);
    for (number, watch) in history.watches.iter().enumerate() {
        check_watch(number, watch, &log, &mut faults);
    }
    let mut by_key: BTreeMap<&str, Log<'_>> = BTreeMap::new();
    let keys = history.operations.iter().map(|operation| operation.key.as_str());
    for key in keys.chain(log.values().map(|event| event.key.as_str())) {
        by_key.entry(key).or_insert_with(|| Log { states: vec![(0, None)], began: Vec::new() });
    }
    for event in log.values() {
        if let Some(of_key) = by_key.get_mut(event.key.as_str()) {
            of_key.states.push((event.version, event.value.as_deref()));
        }
    }
    for (key, of_key) in &mut by_key {
        let operations: Vec<&Operation> = history.operations.iter().filter(|operation| operation.key == *key).collect();
        find_writers(key, of_key, &operations, &mut faults);
        check_key(key, of_key, &operations, &history.listings, &mut faults);
    }
    faults
}

/// The events of all watches, by version.
fn merged<'a>(watches: &'a [Watched], faults: &mut Vec<Violation>) -> BTreeMap<Version, &'a Event> {
    let mut log: BTreeMap<Version, &Event> = BTreeMap::new();
    for event in watches.iter().flat_map(|watch| &watch.events) {
        match log.get(&event.version) {
            Some(known) if *known != event => {
                faults.push(format!("watches disagree about version {}: {known:?} and {event:?}", event.version));
            }
            Some(_) => {}
            None => {
                log.insert(event.version, event);
            }
        }
    }
    log
}

fn check_watch(number: usize, watch: &Watched, log: &BTreeMap<Version, &Event>, faults: &mut Vec<Violation>) {
    for pair in watch.events.windows(2) {
        if pair[1].version <= pair[0].version {
            faults.push(format!("watch {number} had version {} after version {}", pair[1].version, pair[0].version));
        }
    }
    let Some(through) = watch.through.or(watch.events.last().map(|event| event.version)) else { return };
    let had: BTreeSet<Version> = watch.events.iter().map(|event| event.version).collect();
    if watch.after < through {
        for (version, event) in log.range(watch.after + 1..=through).filter(|(version, _)| !had.contains(version)) {
            faults.push(format!("watch {number} missed version {version}: {event:?}"));
        }
    }
}

/// Finds when the write of each state began, and the states that nobody has written.
fn find_writers(key: &str, log: &mut Log<'_>, operations: &[&Operation], faults: &mut Vec<Violation>) {
    let mut writers: HashMap<&str, &Operation> = HashMap::new();
    for operation in operations {
        if let Action::Create(value) | Action::Patch(value) | Action::Update(value, _) = &operation.action {
            writers.insert(value, operation);
        }
    }
    for (position, (version, value)) in log.states.iter().enumerate() {
        let began = match (position, value) {
            (0, _) => Some(Duration::ZERO),
            (_, Some(value)) => {
                let writer = writers.get(value);
                if let Some(writer) = writer
                    && matches!(writer.outcome, Outcome::Conflict | Outcome::Absent)
                {
                    faults.push(format!(
                        "{key} was {value:?} at version {version}, but its writer was refused: {writer:?}"
                    ));
                }
                let (before, overwritten) = log.states[position - 1];
                let is_right = writer.is_none_or(|writer| match &writer.action {
                    Action::Create(_) => overwritten.is_none(),
                    Action::Update(_, expected) => before == *expected && overwritten.is_some(),
                    Action::Patch(_) => overwritten.is_some(),
                    Action::Delete(_) | Action::Get => false,
                });
                if !is_right {
                    faults.push(format!(
                        "{key} was {value:?} at version {version} after {:?}, which its writer did not mean: {writer:?}",
                        log.states[position - 1]
                    ));
                }
                writer.map(|writer| writer.began)
            }
            (_, None) => {
                let (before, deleted) = log.states[position - 1];
                let is_this = |operation: &&&Operation| match (&operation.action, &operation.outcome) {
                    (Action::Delete(state), Outcome::Deleted | Outcome::Unknown) => {
                        state.version == before && Some(&*state.value) == deleted
                    }
                    _ => false,
                };
                operations.iter().filter(is_this).map(|operation| operation.began).min()
            }
        };
        if began.is_none() {
            faults.push(format!("{key} was {value:?} at version {version}, which nobody wrote"));
        }
        log.began.push(began.unwrap_or_default());
    }
}

fn check_key(key: &str, log: &Log<'_>, operations: &[&Operation], listings: &[Listing], faults: &mut Vec<Violation>) {
    // The position that each operation has shown for certain: of its own write, or of the state that it read.
    let mut shown: Vec<(Duration, usize)> = Vec::new();
    for operation in operations {
        match position_of(key, log, operation) {
            Ok(Some(position)) => shown.push((operation.ended, position)),
            Ok(None) => {}
            Err(fault) => faults.push(fault),
        }
    }
    for listing in listings {
        let position = log.at(listing.version);
        shown.push((listing.ended, position));
        let listed = listing.states.iter().find(|(listed, _)| listed == key).map(|(_, state)| state);
        let expected = log.states[position];
        let is_right = match (listed, expected) {
            (None, (_, None)) => true,
            (Some(state), (version, Some(value))) => state.version == version && state.value == value,
            _ => false,
        };
        if !is_right {
            faults.push(format!(
                "the list of server {} at version {} has {listed:?} of {key}, which was {expected:?}",
                listing.server, listing.version
            ));
        }
    }
    let seen = Seen::new(shown);
    for operation in operations {
        let least = seen.before(operation.began);
        check_freshness(key, log, operation, least, faults);
    }
    for listing in listings {
        let (least, position) = (seen.before(listing.began), log.at(listing.version));
        if position < least {
            faults.push(format!(
                "the list of server {} at version {} is older than what was known of {key} before it began: {:?}",
                listing.server, listing.version, log.states[least]
            ));
        }
    }
}

/// The position in the log that an operation has shown: of its own write, or of the state that it read.
fn position_of(key: &str, log: &Log<'_>, operation: &Operation) -> Result<Option<usize>, Violation> {
    let server = operation.server;
    match (&operation.action, &operation.outcome) {
        (_, Outcome::Done(state)) => match log.find(state) {
            Some(position) => Ok(Some(position)),
            None if operation.action == Action::Get => {
                Err(format!("server {server} read {state:?} of {key}, which it never was"))
            }
            None => Err(format!("server {server} acknowledged {state:?} of {key}, which is lost")),
        },
        (Action::Delete(state), Outcome::Deleted) => match log.find(state) {
            None => Err(format!("server {server} deleted {state:?} of {key}, which it never was")),
            Some(position) => match log.states.get(position + 1) {
                Some((_, None)) => Ok(Some(position + 1)),
                other => Err(format!(
                    "server {server} acknowledged the deletion of {state:?} of {key}, which is lost: {other:?} came next"
                )),
            },
        },
        (_, Outcome::Deleted) => Err(format!("server {server} answered {:?} of {key} as a deletion", operation.action)),
        (_, Outcome::Absent | Outcome::Conflict | Outcome::Unknown) => Ok(None),
    }
}

/// Whether there is a point between the begin and the end of an operation at which its answer was right.
fn check_freshness(key: &str, log: &Log<'_>, operation: &Operation, least: usize, faults: &mut Vec<Violation>) {
    let known = log.states[least];
    let server = operation.server;
    // A state can have been there until the operation ended only if its writer had begun by then.
    let has_begun = |position: usize| log.began[position] <= operation.ended;
    let possible = || (least..log.states.len()).take_while(|position| has_begun(*position));
    match (&operation.action, &operation.outcome) {
        (_, Outcome::Unknown) => {}
        (Action::Get, Outcome::Done(state)) => match log.find(state) {
            Some(position) if position < least => faults.push(format!(
                "server {server} read {state:?} of {key}, although {known:?} was known before the read began"
            )),
            Some(position) if !has_begun(position) => {
                faults.push(format!("server {server} read {state:?} of {key} before its write began"));
            }
            Some(_) | None => {}
        },
        (Action::Delete(state), Outcome::Deleted) => {
            let position = log.find(state).map(|position| position + 1);
            if position.is_some_and(|position| position <= least) {
                faults.push(format!(
                    "server {server} deleted {state:?} of {key}, although {known:?} was known before that began"
                ));
            }
        }
        (_, Outcome::Deleted) => {}
        (_, Outcome::Done(state)) => {
            if log.find(state).is_some_and(|position| position <= least && least != 0) {
                faults.push(format!(
                    "server {server} wrote {state:?} of {key}, although {known:?} was known before the write began"
                ));
            }
        }
        (_, Outcome::Absent) => {
            if !possible().any(|position| log.states[position].1.is_none()) {
                faults.push(format!(
                    "server {server} had no {key} for {:?}, although {known:?} was known before it began and nothing deleted it",
                    operation.action
                ));
            }
        }
        (Action::Create(_), Outcome::Conflict) => {
            if !possible().any(|position| log.states[position].1.is_some()) {
                faults.push(format!("server {server} refused to create {key}, which did not exist"));
            }
        }
        (Action::Update(_, version) | Action::Delete(State { version, .. }), Outcome::Conflict) => {
            let is_other = |position: usize| log.states[position].0 != *version;
            if !possible().any(is_other) {
                faults.push(format!("server {server} refused to change {key} at version {version}, which it had"));
            }
        }
        (Action::Get | Action::Patch(_), Outcome::Conflict) => {
            faults.push(format!("server {server} answered {:?} of {key} with a conflict", operation.action));
        }
    }
}

impl Log<'_> {
    /// The position of a state.
    fn find(&self, state: &State) -> Option<usize> {
        let position = self.states.binary_search_by_key(&state.version, |(version, _)| *version).ok()?;
        (self.states[position].1 == Some(&state.value)).then_some(position)
    }

    /// The position of the state at a version.
    fn at(&self, version: Version) -> usize {
        self.states.partition_point(|(at, _)| *at <= version).saturating_sub(1)
    }
}

impl Seen {
    fn new(mut shown: Vec<(Duration, usize)>) -> Seen {
        shown.sort_unstable();
        let mut highest = 0;
        for (_, position) in &mut shown {
            highest = highest.max(*position);
            *position = highest;
        }
        Seen { steps: shown }
    }

    /// The position that was known before a time.
    fn before(&self, time: Duration) -> usize {
        let n_before = self.steps.partition_point(|(ended, _)| *ended < time);
        n_before.checked_sub(1).map_or(0, |last| self.steps[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn operation(began: u64, ended: u64, action: Action, outcome: Outcome) -> Operation {
        Operation { began: at(began), ended: at(ended), key: "a".to_owned(), action, outcome, server: 0 }
    }

    fn state(version: Version, value: &str) -> State {
        State { version, value: value.to_owned() }
    }

    fn done(version: Version, value: &str) -> Outcome {
        Outcome::Done(state(version, value))
    }

    fn event(version: Version, value: Option<&str>) -> Event {
        Event { version, key: "a".to_owned(), value: value.map(str::to_owned) }
    }

    /// Created, updated, deleted and created again, each write at an even second.
    fn right() -> History {
        let events = vec![event(10, Some("v1")), event(20, Some("v2")), event(30, None), event(40, Some("v4"))];
        let operations = vec![
            operation(2, 3, Action::Create("v1".to_owned()), done(10, "v1")),
            operation(4, 5, Action::Update("v2".to_owned(), 10), done(20, "v2")),
            operation(4, 7, Action::Get, done(10, "v1")),
            operation(6, 7, Action::Get, done(20, "v2")),
            operation(8, 9, Action::Delete(state(20, "v2")), Outcome::Deleted),
            operation(10, 11, Action::Get, Outcome::Absent),
            operation(12, 20, Action::Create("v4".to_owned()), Outcome::Unknown),
            operation(12, 13, Action::Update("v5".to_owned(), 20), Outcome::Absent),
            operation(14, 15, Action::Get, done(40, "v4")),
            operation(14, 16, Action::Create("v6".to_owned()), Outcome::Conflict),
        ];
        let watches = vec![
            Watched { after: 0, events: events.clone(), through: Some(50) },
            Watched { after: 10, events: events[1..3].to_vec(), through: None },
        ];
        let listings = vec![Listing {
            began: at(6),
            ended: at(7),
            version: 25,
            states: vec![("a".to_owned(), state(20, "v2"))],
            server: 1,
        }];
        History { operations, listings, watches }
    }

    #[test]
    fn a_right_history_has_no_fault() {
        assert_eq!(check(&right()), Vec::<Violation>::new());
        assert_eq!(check(&History::default()), Vec::<Violation>::new());
    }

    #[track_caller]
    fn found(change: impl FnOnce(&mut History), sentence: &str) {
        let mut history = right();
        change(&mut history);
        let faults = check(&history);
        assert!(faults.iter().any(|fault| fault.contains(sentence)), "{faults:#?}");
    }

    #[test]
    fn a_stale_read_is_found() {
        let read = operation(6, 7, Action::Get, done(10, "v1"));
        found(|history| history.operations.push(read), "although (20, Some(\"v2\")) was known before the read began");
        // Nobody had been told of v2 before this one began.
        let mut history = right();
        history.operations.push(operation(4, 5, Action::Get, done(10, "v1")));
        assert_eq!(check(&history), Vec::<Violation>::new());
        let early = operation(6, 7, Action::Get, Outcome::Absent);
        found(|history| history.operations.push(early), "nothing deleted it");
        // Another client has read the newer state.
        let reads = [operation(4, 4, Action::Get, done(20, "v2")), operation(5, 6, Action::Get, done(10, "v1"))];
        found(|history| history.operations.extend(reads), "was known before the read began");
    }

    #[test]
    fn a_read_of_the_future_is_found() {
        found(
            |history| history.operations.push(operation(1, 1, Action::Get, done(10, "v1"))),
            "before its write began",
        );
    }

    #[test]
    fn a_lost_write_is_found() {
        let lost = operation(16, 17, Action::Patch("v7".to_owned()), done(50, "v7"));
        found(|history| history.operations.push(lost), "which is lost");
        let overwritten = |history: &mut History| {
            for watch in &mut history.watches {
                watch.events.retain(|event| event.version != 20);
            }
        };
        found(overwritten, "acknowledged State { version: 20");
        let undeleted = |history: &mut History| {
            for watch in &mut history.watches {
                watch.events.retain(|event| event.version != 30);
            }
        };
        found(undeleted, "acknowledged the deletion");
    }

    #[test]
    fn a_write_that_was_refused_or_never_made_is_found() {
        let refused = |history: &mut History| {
            history.watches[0].events.push(event(50, Some("v6")));
        };
        found(refused, "but its writer was refused");
        found(|history| history.watches[0].events.push(event(50, Some("v9"))), "which nobody wrote");
    }

    #[test]
    fn an_update_over_another_one_is_found() {
        let overwrites = |history: &mut History| {
            for watch in &mut history.watches {
                watch.events.insert(1, event(15, Some("v3")));
            }
            history.watches[1].events.swap(0, 1);
            history.watches[1].events.sort();
            history.operations.push(operation(3, 4, Action::Patch("v3".to_owned()), done(15, "v3")));
        };
        found(overwrites, "which its writer did not mean");
    }

    #[test]
    fn an_end_that_is_missing_is_found() {
        let cut = |history: &mut History| {
            let last = history.watches[0].events.pop().unwrap();
            history.watches.push(Watched { after: 35, events: vec![last], through: None });
        };
        found(cut, "watch 0 missed version 40");
    }

    #[test]
    fn skipped_doubled_and_turned_events_are_found() {
        found(|history| drop(history.watches[0].events.remove(1)), "watch 0 missed version 20");
        found(|history| drop(history.watches[1].events.remove(0)), "watch 1 missed version 20");
        found(|history| history.watches[0].events.insert(1, event(10, Some("v1"))), "had version 10 after version 10");
        found(|history| history.watches[0].events.swap(0, 1), "had version 10 after version 20");
        found(
            |history| history.watches[1].events[0].value = Some("v3".to_owned()),
            "watches disagree about version 20",
        );
    }

    #[test]
    fn a_wrong_or_an_old_list_is_found() {
        found(|history| history.listings[0].states[0].1.version = 10, "the list of server 1 at version 25 has");
        found(|history| history.listings[0].states.clear(), "the list of server 1 at version 25 has");
        let old = |history: &mut History| {
            history.listings[0].version = 15;
            history.listings[0].states[0].1 = state(10, "v1");
        };
        found(old, "is older than what was known");
    }

    #[test]
    fn an_unjust_conflict_is_found() {
        let update = operation(6, 7, Action::Update("v8".to_owned(), 20), Outcome::Conflict);
        found(|history| history.operations.push(update), "refused to change");
        let create = operation(0, 1, Action::Create("v8".to_owned()), Outcome::Conflict);
        found(|history| history.operations.push(create), "which did not exist");
    }
}
