//! Bounds of what is read of a dump.

/// Bounds of what is read of a dump. A dump that is beyond one of them is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The bytes of one file with objects, unpacked.
    pub file_bytes: u64,
    /// The number of files of a directory or a tar.
    pub files: usize,
    /// The bytes of the logs that are unpacked.
    pub log_bytes: u64,
    /// The number of kinds for which a definition is made up.
    pub made_up: usize,
    /// The bytes of all objects, as JSON.
    pub object_bytes: u64,
    /// The number of objects.
    pub objects: usize,
    /// The bytes of a tar after unpacking, whatever is in it.
    pub unpacked_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            file_bytes: 512 << 20,
            files: 1_000_000,
            log_bytes: 8 << 30,
            made_up: 2_000,
            object_bytes: 2 << 30,
            objects: 2_000_000,
            unpacked_bytes: 32 << 30,
        }
    }
}
