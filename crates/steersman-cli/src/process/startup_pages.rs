//! Returns the pages of the binary that only the start needs to the system.
//!
//! The start runs most of the program once: flags, schemas, the objects of the bootstrap, the first list of every
//! control loop. The kernel maps sixteen pages at each fault, so that nearly all of the text is resident afterwards,
//! although an idle server uses a small part of it. Dropping a clean page of a file costs no write, and a page that is
//! needed again comes from the page cache.

use rustix::mm::{Advice, madvise};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// The times after the start by which the control loops have listed their resources: on most machines after the first, and
/// on a busy one after the second. An idle server references less than 4 MB of its text in a minute.
const SETTLED_AFTER: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(60)];

/// Waits until the start has settled, and drops the pages of the program's text. They are loaded again when they are
/// used.
pub(crate) async fn drop_when_settled() {
    let start = Instant::now();
    for settled_after in SETTLED_AFTER {
        tokio::time::sleep_until(start + settled_after).await;
        match drop_text() {
            Ok(n_bytes) => tracing::debug!(n_bytes, "gave back the text of the program that starting needed"),
            Err(error) => tracing::debug!(%error, "the text of the program stays resident"),
        }
    }
}

/// Drops every resident page of the program's text from this process, and returns the size of the text.
fn drop_text() -> std::io::Result<usize> {
    let program = fs::read_link("/proc/self/exe")?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mut n_bytes = 0;
    for range in maps.lines().filter_map(|line| text_of(line, &program)) {
        n_bytes += range.len();
        drop_pages(range)?;
    }
    Ok(n_bytes)
}

/// The addresses of a line of `/proc/PID/maps` (`man 5 proc`) if it maps the program's text. Other mappings of the file
/// may have pages that relocation has written to.
fn text_of(line: &str, program: &Path) -> Option<Range<usize>> {
    let mut fields = line.split_whitespace();
    let (addresses, permissions) = (fields.next()?, fields.next()?);
    // The path is the sixth field and may contain spaces.
    let path = line.split_once('/').map(|(_, path)| path)?;
    if permissions != "r-xp" || Path::new("/").join(path) != program {
        return None;
    }
    let (start, end) = addresses.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[expect(unsafe_code, reason = "advice about a mapping by its address; nothing safe drops single mappings")]
fn drop_pages(range: Range<usize>) -> std::io::Result<()> {
    let address = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: the mapping is private, backed by the program's file and neither writable nor written (`r-xp`), so that every dropped
    // page is read from the file again, with the same content, when it is next used.
    unsafe { madvise(address, range.len(), Advice::LinuxDontNeed) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_of_the_program_itself_is_dropped() {
        let program = Path::new("/usr/bin/a program");
        let check = |line: &str, want: Option<Range<usize>>| assert_eq!(text_of(line, program), want, "{line}");
        check("1000-3000 r-xp 00001000 fe:00 77    /usr/bin/a program", Some(0x1000..0x3000));
        check("1000-3000 r--p 00001000 fe:00 77    /usr/bin/a program", None);
        check("1000-3000 rw-p 00001000 fe:00 77    /usr/bin/a program", None);
        check("1000-3000 r-xp 00001000 fe:00 77    /usr/lib/libc.so.6", None);
        check("1000-3000 r-xp 00000000 00:00 0     [vdso]", None);
        check("1000-3000 r-xp 00000000 00:00 0", None);
        check("", None);
    }

    #[test]
    fn the_program_runs_on_after_its_text_was_dropped() {
        assert!(0 < drop_text().unwrap(), "this program has text");
        let sum: u64 = (0..1_000).map(|number| number.to_string().parse::<u64>().unwrap()).sum();
        assert_eq!(sum, 499_500);
    }
}
