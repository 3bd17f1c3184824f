//! Generated code, compiled and used: for the definitions of other projects, whose objects must pass through unchanged.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod build_script;
mod corpus;
mod project;
mod random;
mod samples;
