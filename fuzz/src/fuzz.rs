//! The program that libFuzzer drives. The variable `STEERSMAN_FUZZ_TARGET` selects the target, so that all targets are
//! linked once.

#![no_main]

use std::sync::OnceLock;
use steersman_fuzz::{Target, find, targets};

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fn choose() {
    let name = std::env::var("STEERSMAN_FUZZ_TARGET").unwrap_or_default();
    match find(&name) {
        Some(target) => drop(TARGET.set(target)),
        None => {
            let names: Vec<_> = targets::ALL.iter().map(|target| target.name).collect();
            panic!("STEERSMAN_FUZZ_TARGET={name:?} is no target; there are {}", names.join(", "));
        }
    }
}

libfuzzer_sys::fuzz_target!(
    init: choose(),
    |data: &[u8]| {
        if let Some(target) = TARGET.get() {
            (target.run)(data);
        }
    }
);
