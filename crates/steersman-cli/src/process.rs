//! The resources of the process: memory, threads, file descriptors, signals, standard output.

pub(crate) mod compute_threads;
pub(crate) mod host;
pub(crate) mod logging;
pub(crate) mod memory;
pub(crate) mod open_files;
pub(crate) mod output;
pub(crate) mod signals;
#[cfg(target_os = "linux")]
pub(crate) mod startup_pages;
pub(crate) mod usage;
