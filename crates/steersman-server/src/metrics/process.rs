//! The resource usage of the process, under the common names of Prometheus' client libraries.
//!
//! This crate does not read its process: the embedder passes in a function that does
//! ([`crate::Server::report_process`]).

use crate::metrics::text::{Text, Type};

/// The resource usage of a process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessUsage {
    /// Processor time since its start, in user and system mode together.
    pub cpu_seconds: f64,
    /// The most file descriptors that may be open.
    pub fds_max: u64,
    /// The file descriptors that are open.
    pub fds_open: u64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// The start time, in seconds since 1970.
    pub start_seconds: f64,
    /// The size of the address space.
    pub virtual_bytes: u64,
}

/// Reads the current usage; `None` on a system that does not report it.
pub type ReadProcess = fn() -> Option<ProcessUsage>;

pub(super) fn process(text: &mut Text, usage: &ProcessUsage) {
    let cpu = "process_cpu_seconds_total";
    text.family(cpu, Type::Counter, "Total user and system CPU time spent in seconds.");
    text.value(cpu, &[], usage.cpu_seconds);
    let gauges = [
        ("process_max_fds", "Maximum number of open file descriptors.", usage.fds_max),
        ("process_open_fds", "Number of open file descriptors.", usage.fds_open),
        ("process_resident_memory_bytes", "Resident memory size in bytes.", usage.resident_bytes),
        ("process_virtual_memory_bytes", "Virtual memory size in bytes.", usage.virtual_bytes),
    ];
    for (name, help, value) in gauges {
        text.family(name, Type::Gauge, help);
        text.value(name, &[], value);
    }
    let start = "process_start_time_seconds";
    text.family(start, Type::Gauge, "Start time of the process since unix epoch in seconds.");
    text.value(start, &[], usage.start_seconds);
}
