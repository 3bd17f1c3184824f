//! The errors of a read which say that a part of the file is damaged, and not that the file is out of reach.

use std::io;

/// The cause of an error when a block is not what it was.
#[derive(Debug, thiserror::Error)]
#[error("the block at byte {offset} of the file is no longer what was written")]
pub(super) struct Changed {
    pub(super) offset: u64,
}

/// The numbers of the system's errors for a sector that the disk cannot read, for which the standard library has no stable kind:
/// ERROR_CRC and ERROR_IO_DEVICE on Windows, EIO elsewhere.
const UNREADABLE: &[i32] = if cfg!(windows) { &[23, 1_117] } else { &[5] };

/// Whether a read failed because a part of the file is damaged. An error that is about the file as a whole, such as a missing permission,
/// is no damage.
pub(in crate::disk) fn is_damage(error: &io::Error) -> bool {
    let is_changed = error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Changed>);
    let is_unreadable = error.raw_os_error().is_some_and(|number| UNREADABLE.contains(&number));
    is_changed || is_unreadable || error.kind() == io::ErrorKind::UnexpectedEof
}
