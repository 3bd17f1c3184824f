//! Notices that a block of the file is no longer what it was when it was read first or written last.
//!
//! redb trusts the content of its pages. It would follow a damaged one to a page of something else, and write there. A page that goes bad
//! while the store is open is an error here before redb has it. The survey at open reads every page that is in use and verifies it with
//! redb's checksums; later reads are compared with what it read. This costs eight bytes of memory for each block of 4 KiB.

use crate::disk::file::pages::PAGE;
use parking_lot::Mutex;
use twox_hash::XxHash3_64;

/// The checksums of the blocks; zero where none is known.
#[derive(Debug, Default)]
pub(in crate::disk) struct Blocks(Mutex<Vec<u64>>);

impl Blocks {
    /// Compares what was read at an offset with what is known of it. Returns the offset of the first block that differs.
    pub(in crate::disk) fn compare(&self, offset: u64, bytes: &[u8]) -> Result<(), u64> {
        let read: Vec<(usize, u64)> = whole(offset, bytes).collect();
        let mut known = self.0.lock();
        for (number, checksum) in read {
            let known = at(&mut known, number);
            if *known == 0 {
                *known = checksum;
            } else if *known != checksum {
                return Err((number * PAGE) as u64);
            }
        }
        Ok(())
    }

    /// The bytes at an offset are about to be written: nothing is known of their blocks.
    pub(in crate::disk) fn forget(&self, offset: u64, length: usize) {
        let mut known = self.0.lock();
        let first = offset as usize / PAGE;
        let behind = (offset as usize + length).div_ceil(PAGE);
        for number in first..behind.min(known.len()) {
            known[number] = 0;
        }
    }

    /// Bytes were written.
    pub(in crate::disk) fn written(&self, offset: u64, bytes: &[u8]) {
        let written: Vec<(usize, u64)> = whole(offset, bytes).collect();
        let mut known = self.0.lock();
        for (number, checksum) in written {
            *at(&mut known, number) = checksum;
        }
    }

    /// The file has another length.
    pub(in crate::disk) fn set_length(&self, length: u64) {
        self.0.lock().truncate(length as usize / PAGE);
    }
}

/// The checksums of the whole blocks among some bytes. The first block of a file is left out: redb writes it in parts, and keeps its content
/// in memory.
fn whole(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (usize, u64)> {
    let offset = offset as usize;
    let skipped = (offset.next_multiple_of(PAGE) - offset).min(bytes.len());
    let first = offset.div_ceil(PAGE);
    let blocks = bytes[skipped..].chunks_exact(PAGE).enumerate().map(move |(n, block)| (first + n, block));
    blocks.filter(|(number, _)| *number != 0).map(|(number, block)| (number, XxHash3_64::oneshot(block).max(1)))
}

fn at(known: &mut Vec<u64>, number: usize) -> &mut u64 {
    if known.len() <= number {
        known.resize(number + 1, 0);
    }
    &mut known[number]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_compared_with_what_was_read_first_or_written_last() {
        let blocks = Blocks::default();
        let (one, two) = ([1; PAGE], [2; 2 * PAGE]);
        let at = PAGE as u64;
        assert_eq!(blocks.compare(at, &one), Ok(()));
        assert_eq!(blocks.compare(at, &two), Err(at));
        blocks.forget(at, PAGE);
        blocks.written(at, &two);
        assert_eq!(blocks.compare(at, &two), Ok(()));
        assert_eq!(blocks.compare(2 * at, &one), Err(2 * at));
        // A block that was written in part is not compared.
        blocks.forget(2 * at + 7, 1);
        assert_eq!(blocks.compare(2 * at, &one), Ok(()));
        assert_eq!(blocks.compare(at + 9, &two), Err(2 * at));
        blocks.set_length(at);
        assert_eq!(blocks.compare(at, &one), Ok(()));
        // The first block is not compared.
        assert_eq!(blocks.compare(0, &one), Ok(()));
        assert_eq!(blocks.compare(0, &two[..PAGE]), Ok(()));
    }
}
