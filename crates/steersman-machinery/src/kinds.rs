//! Values that several crates compute from objects of built-in kinds: a Pod's requests, the use of quotas, bootstrap tokens.

pub mod bootstrap_token;
pub mod pod;
pub mod quota;
pub mod usage;
