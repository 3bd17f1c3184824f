//! Entries of the store's log: written entries are read back, and other bytes are refused or read.

use steersman_storage::fuzzing::{decode_entry, encode_entry, split_key};

/// The length of the key is the first byte; the rest of the input is key and value.
pub fn run(data: &[u8]) {
    if let Ok(event) = decode_entry(data) {
        let _ = split_key(&event.key);
        let again = decode_entry(&encode_entry(&event.key, event.value.as_deref())).expect("what was encoded is read");
        assert_eq!((again.key, again.value), (event.key, event.value));
    }
    let Some((length, rest)) = data.split_first() else { return };
    let (key, value) = rest.split_at(usize::from(*length).min(rest.len()));
    let value = (!value.is_empty()).then_some(value);
    let event = decode_entry(&encode_entry(key, value)).expect("what was encoded is read");
    assert_eq!((event.key.as_ref(), event.value.as_deref()), (key, value));
}
