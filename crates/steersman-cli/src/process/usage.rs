//! The resource usage of this process, for `/metrics`, read from Linux's `/proc`; elsewhere nothing is reported.

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use std::fs;
use steersman_server::ProcessUsage;

/// The current usage.
pub(crate) fn read() -> Option<ProcessUsage> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot_seconds: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    // The directory itself is open while it is read.
    let fds_open = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64;
    let fds_max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let times = Stat::parse(&stat)?;
    Some(ProcessUsage {
        cpu_seconds: seconds(times.cpu_ticks),
        fds_max,
        fds_open,
        resident_bytes: times.resident_pages * page_size() as u64,
        start_seconds: boot_seconds + seconds(times.start_ticks),
        virtual_bytes: times.virtual_bytes,
    })
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / clock_ticks_per_second() as f64
}

/// Fields of `/proc/self/stat` (`man 5 proc`).
#[derive(Debug, Eq, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    resident_pages: u64,
    /// Ticks after the boot.
    start_ticks: u64,
    virtual_bytes: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        // The name of the program may contain spaces and parentheses; field 3 follows the last of them.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Stat {
            cpu_ticks: field(14)? + field(15)?,
            resident_pages: field(24)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_is_no_field() {
        let text = "42 (a) b (c)) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 123456 99000000 2500 18446744073709551615";
        let want = Stat { cpu_ticks: 300, resident_pages: 2500, start_ticks: 123_456, virtual_bytes: 99_000_000 };
        assert_eq!(Stat::parse(text), Some(want));
        assert_eq!(Stat::parse("42 (a) S 1"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_and_files() {
        let usage = read().unwrap();
        assert!(100_000 < usage.resident_bytes && usage.resident_bytes < usage.virtual_bytes, "{usage:?}");
        assert!(2 < usage.fds_open && usage.fds_open <= usage.fds_max, "{usage:?}");
        let now = jiff::Timestamp::now().as_second() as f64;
        assert!(now - 86_400.0 < usage.start_seconds && usage.start_seconds <= now + 2.0, "{usage:?}");
    }
}
