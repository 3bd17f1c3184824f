//! Fuzz targets: one function per reader of foreign bytes. Each asserts more than the absence of panics.
//!
//! A target is a function from bytes, in a separate file below `targets/`. Two programs call it: `fuzz.rs`, libFuzzer's
//! loop, which `cargo xtask fuzz` builds with coverage counters; and `tests/replay.rs`, which runs every file of
//! `corpus/TARGET` as an ordinary test, so that an input that once crashed stays a regression test. Targets that take
//! trees read them through [`input`].

pub mod input;
pub mod kinds;
pub mod targets;

/// One target: its name in corpora, dictionaries and on the command line, and its function.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
}

/// The target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    targets::ALL.iter().find(|target| target.name == name)
}
