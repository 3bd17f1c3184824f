//! Envelopes that upstream's code has made, and the rules for them.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const KEY: &[u8] = b"/secrets/default/a";
const PLAIN: &[u8] = br#"{"kind":"Secret","metadata":{"name":"a"}}"#;
const UPSTREAM: &str = include_str!("../../testdata/upstream.txt");

/// The decrypted key of a vector, and its envelope.
fn vector(name: &str) -> (Vec<u8>, EncryptedObject) {
    let row = UPSTREAM.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    let (key, stored) = row.split_once(' ').unwrap();
    let stored = STANDARD.decode(stored).unwrap();
    let body = stored.strip_prefix(b"k8s:enc:kms:v2:plugin:".as_slice()).unwrap();
    (STANDARD.decode(key).unwrap(), envelope::read(body).unwrap())
}

#[test]
fn envelopes_of_upstream_are_read() {
    for (name, source_type) in [("kmsv2", SourceType::HkdfSeed), ("kmsv2key", SourceType::AesGcmKey)] {
        let (plain, envelope) = vector(name);
        assert_eq!((&*envelope.key_id, &*envelope.encrypted_dek_source), ("1", b"wrapped".as_slice()));
        assert_eq!(envelope.source_type(), source_type);
        let data_key = DataKey::new(source_type, &plain).unwrap();
        assert_eq!(data_key.open(KEY, &envelope.encrypted_data).unwrap(), PLAIN);
        assert!(data_key.open(b"/secrets/default/b", &envelope.encrypted_data).is_err());
        for bit in 0..8 * envelope.encrypted_data.len() {
            let mut flipped = envelope.encrypted_data.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(data_key.open(KEY, &flipped).is_err(), "{name}: bit {bit}");
        }
    }
}

#[test]
fn a_seed_makes_another_key_for_each_value() {
    let seed = DataKey::seed(&[7; SEED_BYTES]).unwrap();
    let [one, other] = [(); 2].map(|()| seed.seal(KEY, PLAIN).unwrap());
    assert_ne!(one[..SEED_BYTES], other[..SEED_BYTES]);
    assert_eq!((seed.open(KEY, &one).unwrap(), seed.open(KEY, &other).unwrap()), (PLAIN.to_vec(), PLAIN.to_vec()));
    assert!(DataKey::seed(&[7; SEED_BYTES - 1]).is_none());
}

#[test]
fn envelopes_are_checked_by_upstreams_rules() {
    let (_, good) = vector("kmsv2");
    let check = |change: fn(&mut EncryptedObject), wanted: &str| {
        let mut changed = good.clone();
        change(&mut changed);
        let mut body = Vec::new();
        envelope::write(&changed, &mut body);
        assert_eq!(envelope::read(&body).unwrap_err(), wanted);
    };
    check(|envelope| envelope.encrypted_data = Bytes::new(), "encrypted data is empty");
    check(|envelope| envelope.key_id = String::new(), "keyID is empty");
    check(|envelope| envelope.key_id = "k".repeat(1025), "keyID is 1025 bytes, which exceeds the max size of 1024");
    check(|envelope| envelope.encrypted_dek_source = Bytes::new(), "encrypted DEK source is empty");
    check(|envelope| envelope.encrypted_dek_source_type = 2, "unknown encryptedDEKSourceType: 2");
    check(
        |envelope| drop(envelope.annotations.insert("plain".to_owned(), Vec::new())),
        "annotation \"plain\" is no fully qualified domain name",
    );
    check(
        |envelope| drop(envelope.annotations.insert("b.example.com".to_owned(), vec![0; 32 * 1024])),
        "total size of annotations is 32795, which exceeds the max size of 32768",
    );
}
