//! Recognizes a file by its first bytes: names and endings are whatever people give them.

use steersman_storage::backup::MAGIC;
use steersman_storage_etcd::Snapshot;

const GZIP: &[u8] = &[0x1f, 0x8b];
/// The size of a header in a tar, and the place of its checksum.
const TAR_HEADER: usize = 512;
const TAR_CHECKSUM: std::ops::Range<usize> = 148..156;
/// The mark of UTF-8 that some editors put before a text.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// The kind of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Recognized {
    /// A backup of Steersman.
    Backup,
    /// There is nothing in it.
    Empty,
    /// Something compressed.
    Gzip,
    /// A snapshot of etcd, or a copy of its file.
    Snapshot,
    /// A tar.
    Tar,
    /// Text, which may be JSON or YAML.
    Text,
    /// Anything else.
    Unknown,
}

/// Recognizes a file by its first 4 KiB, or as many as it has.
pub fn recognize(beginning: &[u8]) -> Recognized {
    if beginning.trim_ascii().is_empty() {
        Recognized::Empty
    } else if beginning.starts_with(MAGIC) {
        Recognized::Backup
    } else if beginning.starts_with(GZIP) {
        Recognized::Gzip
    } else if Snapshot::is_one(beginning) {
        Recognized::Snapshot
    } else if is_tar(beginning) {
        Recognized::Tar
    } else if is_text(beginning) {
        Recognized::Text
    } else {
        Recognized::Unknown
    }
}

/// Whether the first header of a tar has the right checksum: the sum of its bytes, with spaces in the place of the checksum.
fn is_tar(beginning: &[u8]) -> bool {
    let Some(header) = beginning.first_chunk::<TAR_HEADER>() else { return false };
    let written =
        header[TAR_CHECKSUM].iter().skip_while(|byte| **byte == b' ').take_while(|byte| byte.is_ascii_digit());
    let written = written.fold(0_u64, |sum, digit| sum * 8 + u64::from(digit - b'0'));
    let bytes = header.iter().enumerate();
    let sum: u64 =
        bytes.map(|(at, byte)| if TAR_CHECKSUM.contains(&at) { u64::from(b' ') } else { u64::from(*byte) }).sum();
    written == sum
}

/// Whether it is UTF-8 without control characters. The last character may be cut.
fn is_text(beginning: &[u8]) -> bool {
    let text = match std::str::from_utf8(beginning) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&beginning[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty() && !text.chars().any(|char| char.is_control() && !matches!(char, '\n' | '\r' | '\t' | '\x1b'))
}

/// A text without the mark of UTF-8 before it.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(MARK).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn files_are_recognized_by_their_first_bytes() {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        builder.append_data(&mut header, "a", &b"x"[..]).unwrap();
        let tar = builder.into_inner().unwrap();
        let mut bolt = vec![0; 64];
        bolt[16..20].copy_from_slice(&0xED0C_DAED_u32.to_le_bytes());
        let cases: [(&[u8], Recognized); 10] = [
            (b"steersman backup\x01", Recognized::Backup),
            (b"", Recognized::Empty),
            (b" \n\n", Recognized::Empty),
            (&[0x1f, 0x8b, 8, 0], Recognized::Gzip),
            (&bolt, Recognized::Snapshot),
            (&tar, Recognized::Tar),
            (b"apiVersion: v1\nkind: List\n", Recognized::Text),
            ("{\"a\": \"\u{fc}".as_bytes().split_last().unwrap().1, Recognized::Text),
            (b"PK\x03\x04", Recognized::Unknown),
            (&tar[..511], Recognized::Unknown),
        ];
        for (bytes, want) in cases {
            assert_eq!(recognize(bytes), want, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_something(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let found = recognize(&bytes);
            prop_assert!(found != Recognized::Text || std::str::from_utf8(&bytes).map_or_else(|error| error.error_len().is_none(), |_| true));
        }
    }
}
