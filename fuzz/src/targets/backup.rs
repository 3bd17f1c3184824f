//! Backups: bytes in pieces of any size are the same to the decoder, what was encoded is read, and everything else ends in a fault.

use steersman_machinery::Revision;
use steersman_storage::backup::{Decoder, Encoder, Found, Header};
use steersman_storage::kv::Entry;

/// The first byte is the size of the pieces; the rest is the file, and an entry that is encoded.
pub fn run(data: &[u8]) {
    let Some((piece, rest)) = data.split_first() else { return };
    let whole = found(rest, rest.len().max(1));
    assert_eq!(found(rest, usize::from(*piece) + 1), whole);
    let ends = whole.iter().filter(|found| matches!(found, Found::End(_) | Found::Fault(_))).count();
    assert_ne!(ends, 0, "it has an end or a fault");
    let mut out = Vec::new();
    let mut encoder = Encoder::begin(&Header::new("fuzz", Revision(7), None), &mut out);
    let (key, value) = rest.split_at(rest.len().min(usize::from(*piece)));
    let key = [b"k", key].concat();
    let entry = Entry { key: key.into(), revision: Revision(5), value: value.to_vec().into() };
    encoder.entry(&entry, &mut out);
    encoder.end(&mut out);
    let again = found(&out, usize::from(*piece) + 1);
    assert!(matches!(&again[..], [Found::Header(_), Found::Entry(read), Found::End(_)] if *read == entry));
}

fn found(bytes: &[u8], piece: usize) -> Vec<Found> {
    let mut decoder = Decoder::new();
    let mut all = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        all.extend(std::iter::from_fn(|| decoder.next()));
    }
    decoder.finish();
    all.extend(std::iter::from_fn(|| decoder.next()));
    all
}
