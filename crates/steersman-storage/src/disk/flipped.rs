//! Finds the one bit of some bytes that is flipped, with the help of their checksum.
//!
//! Memory and disks that go bad mostly flip single bits. A checksum of 64 bits or more is right for the bytes that were written, and for
//! other bytes by a chance that none has to reckon with: whatever has the checksum is what was written.

/// No bit is looked for in more bytes than this: the time grows with the square of the length, and is some 100 ms for as many.
pub(super) const BYTES_MAX: usize = 16 * 1024;
/// No bit is looked for in more pages of a file than this. With more damage than that it is not single bits that are flipped.
pub(super) const TRIES_MAX: usize = 64;

/// Flips one bit of the bytes so that they are right. Otherwise leaves them as they are. `length` is the number of bytes that the
/// checksum is of, which may depend on what is in them.
pub(super) fn correct(bytes: &mut [u8], length: impl Fn(&[u8]) -> usize, is_right: impl Fn(&[u8]) -> bool) -> bool {
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            let length = length(bytes).min(bytes.len());
            if at < length && is_right(&bytes[..length]) {
                return true;
            }
            bytes[at] ^= 1 << bit;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use twox_hash::XxHash3_64;

    proptest! {
        #[test]
        fn one_bit_is_put_right_and_two_are_left_alone(
            written in proptest::collection::vec(any::<u8>(), 2..60),
            first in any::<proptest::sample::Index>(),
            second in any::<proptest::sample::Index>(),
        ) {
            let checksum = XxHash3_64::oneshot(&written);
            let n_bits = written.len() * 8;
            let (first, second) = (first.index(n_bits), second.index(n_bits));
            let flip = |bytes: &mut [u8], bit: usize| bytes[bit / 8] ^= 1 << (bit % 8);
            let mut bytes = written.clone();
            flip(&mut bytes, first);
            prop_assert!(correct(&mut bytes, <[u8]>::len, |bytes| XxHash3_64::oneshot(bytes) == checksum));
            prop_assert_eq!(&bytes, &written);
            prop_assume!(first != second);
            flip(&mut bytes, first);
            flip(&mut bytes, second);
            let damaged = bytes.clone();
            prop_assert!(!correct(&mut bytes, <[u8]>::len, |bytes| XxHash3_64::oneshot(bytes) == checksum));
            prop_assert_eq!(bytes, damaged);
        }
    }
}
