//! Resources of processes from the kernel: memory in MB of 10^6 bytes, processor time in seconds.

use std::fs;
use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The unit in which the kernel reports processor time, whatever it uses internally: 10 ms.
const TICKS_PER_S: f64 = 100.0;
/// A process that uses less than this part of a processor is idle.
const IDLE_SHARE: f64 = 0.03;
const IDLE_WINDOW: Duration = Duration::from_millis(500);
const IDLE_WINDOWS: u32 = 3;
const IDLE_WAIT_MAX: Duration = Duration::from_secs(30);

/// The processes of a server, whose figures are summed: kube-apiserver and etcd, or one.
#[derive(Clone, Debug)]
pub struct Processes {
    pub ids: Vec<u32>,
}

impl Processes {
    /// The processor time of all threads since the start.
    pub fn cpu_s(&self) -> io::Result<f64> {
        self.sum(|id| cpu_s(&id.to_string()))
    }

    pub fn resident_mb(&self) -> io::Result<f64> {
        self.sum(|id| status_mb(id, "VmRSS:"))
    }

    /// The peak of resident memory since the start, or since [`Processes::reset_peak`].
    pub fn peak_mb(&self) -> io::Result<f64> {
        self.sum(|id| status_mb(id, "VmHWM:"))
    }

    /// Resets the peak to the current resident memory; 5 is the kernel's code for that, see proc_pid_clear_refs(5).
    pub fn reset_peak(&self) -> io::Result<()> {
        self.ids.iter().try_for_each(|id| fs::write(format!("/proc/{id}/clear_refs"), "5"))
    }

    /// Waits until the processes are idle, at most for half a minute.
    pub async fn settle(&self) -> io::Result<()> {
        let start = Instant::now();
        let mut n_idle = 0;
        while n_idle < IDLE_WINDOWS && start.elapsed() < IDLE_WAIT_MAX {
            let before = self.cpu_s()?;
            sleep(IDLE_WINDOW).await;
            let share = (self.cpu_s()? - before) / IDLE_WINDOW.as_secs_f64();
            n_idle = if share < IDLE_SHARE { n_idle + 1 } else { 0 };
        }
        Ok(())
    }

    fn sum(&self, each: impl Fn(u32) -> io::Result<f64>) -> io::Result<f64> {
        self.ids.iter().map(|id| each(*id)).sum()
    }
}

/// The processor time of a process since its start; `id` is a number or `self`.
pub fn cpu_s(id: &str) -> io::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The name of the program, in parentheses, may contain anything; utime and stime are the 12th and 13th field after
    // it.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / TICKS_PER_S)
}

fn status_mb(id: u32, name: &str) -> io::Result<f64> {
    let path = format!("/proc/{id}/status");
    let text = fs::read_to_string(&path)?;
    let kilobytes = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB")?.trim().parse::<f64>().ok())
        .ok_or_else(|| io::Error::other(format!("no {name} in {path}")))?;
    Ok(kilobytes * 1_024.0 / 1e6)
}
