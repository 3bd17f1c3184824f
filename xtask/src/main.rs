//! Automation for this workspace: `cargo xtask help` lists it.
fn main() {}
