//! A process as the kernel counts it: memory in MB of 10^6 bytes, time on a processor in seconds.

use std::{fs, io};

/// The kernel counts ticks of 10 ms for its readers, whatever it counts itself.
const TICKS_PER_S: f64 = 100.0;

/// The process of a server.
#[derive(Clone, Copy, Debug)]
pub struct Process(pub u32);

impl Process {
    /// # Errors
    /// When the process has ended.
    pub fn resident_mb(self) -> io::Result<f64> {
        self.status_mb("VmRSS:")
    }

    /// The most that was resident since the start, or since [`Process::reset_peak`].
    ///
    /// # Errors
    /// When the process has ended.
    pub fn peak_mb(self) -> io::Result<f64> {
        self.status_mb("VmHWM:")
    }

    /// Lets the peak begin anew at what is resident now: 5 is the kernel's word for it, see proc_pid_clear_refs(5).
    ///
    /// # Errors
    /// When the process has ended.
    pub fn reset_peak(self) -> io::Result<()> {
        fs::write(format!("/proc/{}/clear_refs", self.0), "5")
    }

    /// Time on a processor since the start, of all threads.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn cpu_s(self) -> io::Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.0))?;
        // The name of the program, in parentheses, may hold anything; utime and stime are the 12th and 13th after it.
        let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        Ok(ticks / TICKS_PER_S)
    }

    fn status_mb(self, name: &str) -> io::Result<f64> {
        let path = format!("/proc/{}/status", self.0);
        let text = fs::read_to_string(&path)?;
        let kilobytes = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse::<f64>().ok())
            .ok_or_else(|| io::Error::other(format!("no {name} in {path}")))?;
        Ok(kilobytes * 1_024.0 / 1e6)
    }
}
