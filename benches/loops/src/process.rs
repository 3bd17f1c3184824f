//! Resources of a process from the kernel: memory in MB of 10^6 bytes, processor time in seconds.

use std::fs;
use std::io;

/// The unit in which the kernel reports processor time, whatever it uses internally: 10 ms.
const TICKS_PER_S: f64 = 100.0;

/// The processor time of all threads of a process since its start.
pub(crate) fn cpu_s(id: u32) -> io::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The name of the program, in parentheses, may contain anything; utime and stime are the 12th and 13th field after
    // it.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / TICKS_PER_S)
}

pub(crate) fn resident_mb(id: u32) -> io::Result<f64> {
    memory_mb(id, "VmRSS:")
}

/// The peak of resident memory since the start.
pub(crate) fn peak_mb(id: u32) -> io::Result<f64> {
    memory_mb(id, "VmHWM:")
}

fn memory_mb(id: u32, name: &str) -> io::Result<f64> {
    let path = format!("/proc/{id}/status");
    let text = fs::read_to_string(&path)?;
    let kilobytes = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse::<f64>().ok())
        .ok_or_else(|| io::Error::other(format!("no {name} in {path}")))?;
    Ok(kilobytes * 1_024.0 / 1e6)
}
