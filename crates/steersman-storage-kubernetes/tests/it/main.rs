//! The forms of stored values.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod corpus;
mod forms;
