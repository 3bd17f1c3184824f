//! Compares the schema crate with recorded answers.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod budgets;
mod custom_resources;
mod decode;
mod definitions;
mod openapi;
mod patches;
mod recorded;
mod values;
