//! The pilot against a control plane in the process of the test.

#![expect(clippy::unwrap_used, reason = "a failed unwrap here is a failed test")]

mod pilot;
