//! Dumps as tools make them, opened: which objects and logs are found, and what is said of those that cannot be opened.

#![expect(clippy::unwrap_used, reason = "everything here is a test; clippy recognises only the functions marked so")]

mod damaged;
mod dumps;
mod hostile;
mod kinds;
mod support;
