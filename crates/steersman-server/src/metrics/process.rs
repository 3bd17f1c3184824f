//! What the process takes from its machine, under the names that Prometheus' client libraries agree on.
//!
//! This crate does not look at its process: who runs the server passes in how to ([`crate::Server::report_process`]).

use crate::metrics::text::{Text, Type};

/// What a process takes.
#[derive(Clone, Copy, Debug)]
pub struct ProcessUsage {
    /// Processor time since its start, in user and system mode together.
    pub cpu_seconds: f64,
    /// File descriptors that may be open.
    pub fds_max: u64,
    /// File descriptors that are open.
    pub fds_open: u64,
    /// Memory in RAM.
    pub resident_bytes: u64,
    /// When it was started, in seconds since 1970.
    pub start_seconds: f64,
    /// Address space.
    pub virtual_bytes: u64,
}

/// Reads what the process takes now; `None` on a system that does not tell.
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
