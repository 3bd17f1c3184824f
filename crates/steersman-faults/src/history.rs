//! The record of a run: operations with their times and outcomes, lists, and the events of watches.
//!
//! Every written value is unique, so that a value says which operation wrote it. Times are those of one clock in this
//! process: an operation that ended before another one began came before it.

use std::time::Duration;

/// A resource version.
pub(crate) type Version = u64;

/// An operation of a client on one object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Operation {
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
    pub(crate) key: String,
    pub(crate) action: Action,
    pub(crate) outcome: Outcome,
    /// The number of the server that was asked.
    pub(crate) server: usize,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Action {
    Create(String),
    /// If the object is still in this state.
    Delete(State),
    Get,
    /// Whatever the object is.
    Patch(String),
    /// If the object is still at this version.
    Update(String, Version),
}

/// The answer that a client got.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// A write was made at this version, or a read found this object.
    Done(State),
    /// The deletion was acknowledged.
    Deleted,
    /// There is no object.
    Absent,
    /// The object exists, or is not at the version that the client named.
    Conflict,
    /// Nothing is known: no answer, or one that says so.
    Unknown,
}

/// An object at a version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct State {
    pub(crate) version: Version,
    pub(crate) value: String,
}

/// A list of all objects, by key, as of a version.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
    pub(crate) version: Version,
    pub(crate) states: Vec<(String, State)>,
    pub(crate) server: usize,
}

/// An event of a watch.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Event {
    pub(crate) version: Version,
    pub(crate) key: String,
    /// The new value; `None` for a deletion.
    pub(crate) value: Option<String>,
}

/// The events of a watch in the order of their arrival, over as many servers as it took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    /// The version after which it began.
    pub(crate) after: Version,
    pub(crate) events: Vec<Event>,
    /// The version of the end, if the watch has seen it: it must have had everything before.
    pub(crate) through: Option<Version>,
}

/// Everything that was recorded in a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) operations: Vec<Operation>,
    pub(crate) listings: Vec<Listing>,
    pub(crate) watches: Vec<Watched>,
}
