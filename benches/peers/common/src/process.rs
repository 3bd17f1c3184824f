//! Resources of this process from the kernel: memory in MB of 10^6 bytes, processor time in seconds.

use std::fs;
use std::io;

/// The resident memory.
///
/// # Errors
///
/// If the kernel does not report it.
pub(crate) fn resident_mb() -> io::Result<f64> {
    status("VmRSS:")
}

/// The peak of resident memory since the start, or since [`reset_peak`].
///
/// # Errors
///
/// If the kernel does not report it.
pub(crate) fn peak_mb() -> io::Result<f64> {
    status("VmHWM:")
}

/// Resets the peak to the current resident memory; 5 is the kernel's code for that, see proc_pid_clear_refs(5).
///
/// # Errors
///
/// If the kernel cannot.
pub(crate) fn reset_peak() -> io::Result<()> {
    fs::write("/proc/self/clear_refs", "5")
}

/// The processor time of all threads since the start.
///
/// # Errors
///
/// If the kernel does not report it.
pub(crate) fn cpu_s() -> io::Result<f64> {
    /// The unit in which the kernel reports processor time, whatever it uses internally: 10 ms.
    const TICKS_PER_S: f64 = 100.0;
    let text = fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in parentheses, may contain anything; utime and stime are the 12th and 13th field after
    // it.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / TICKS_PER_S)
}

fn status(name: &str) -> io::Result<f64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let kilobytes = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse::<f64>().ok())
        .ok_or_else(|| io::Error::other(format!("no {name} in /proc/self/status")))?;
    Ok(kilobytes * 1_024.0 / 1e6)
}
