//! Hostile requests made of the schemas that a server serves, and a client that sends them.
//!
//! The tests of the binary and `cargo xtask bench hostile` share this. It knows a server by its address, its CA and the tokens of
//! three users, and judges it from outside: by its answers and by what the kernel says of its process. The requests are those of
//! users with few rights, who may write in a namespace of their own.

pub mod attack;
pub mod client;
pub mod process;
pub mod report;
pub mod requests;
pub mod schema;
pub mod stage;
pub mod watches;
