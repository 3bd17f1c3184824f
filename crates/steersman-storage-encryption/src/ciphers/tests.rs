//! Values that upstream's code has encrypted are read, and properties hold for any value.

use crate::ciphers::{AesCbc, AesGcm, Cipher, Fault, Secretbox, Unopened};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

const KEY: &[u8] = b"/secrets/default/a";
const PLAIN: &[u8] = br#"{"kind":"Secret","metadata":{"name":"a"}}"#;
const UPSTREAM: &str = include_str!("../../testdata/upstream.txt");

/// The key and the stored value of a vector, without its prefix.
fn vector(name: &str) -> (Vec<u8>, Vec<u8>) {
    let row = UPSTREAM.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    let (key, stored) = row.split_once(' ').unwrap();
    let stored = STANDARD.decode(stored).unwrap();
    let prefix = format!("k8s:enc:{}:v1:k:", name.trim_end_matches(char::is_numeric));
    (STANDARD.decode(key).unwrap(), stored.strip_prefix(prefix.as_bytes()).unwrap().to_vec())
}

fn seal(cipher: &dyn Cipher, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    cipher.seal(KEY, value, &mut out).unwrap();
    out
}

fn fault(cipher: &dyn Cipher, key: &[u8], body: &[u8]) -> Fault {
    match cipher.open(key, body) {
        Err(Unopened::Fault(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check(name: &str, new: fn(&[u8]) -> Option<Box<dyn Cipher>>) {
    let (key, body) = vector(name);
    let cipher = new(&key).unwrap();
    assert_eq!(cipher.open(KEY, &body).unwrap().0, PLAIN, "{name}");
    let ours = seal(&*cipher, PLAIN);
    assert_eq!((ours.len(), ours == body), (body.len(), false), "{name}: its first bytes are random");
    for length in 0..body.len().min(32) {
        assert!(cipher.open(KEY, &body[..length]).is_err(), "{name}: {length} bytes");
    }
}

fn aes_cbc(key: &[u8]) -> Option<Box<dyn Cipher>> {
    AesCbc::new(key).map(|cipher| Box::new(cipher) as Box<dyn Cipher>)
}

fn aes_gcm(key: &[u8]) -> Option<Box<dyn Cipher>> {
    AesGcm::new(key).map(|cipher| Box::new(cipher) as Box<dyn Cipher>)
}

fn secretbox(key: &[u8]) -> Option<Box<dyn Cipher>> {
    Secretbox::new(key).map(|cipher| Box::new(cipher) as Box<dyn Cipher>)
}

#[test]
fn what_upstream_has_encrypted_is_read() {
    for name in ["aescbc16", "aescbc24", "aescbc32"] {
        check(name, aes_cbc);
    }
    for name in ["aesgcm16", "aesgcm24", "aesgcm32"] {
        check(name, aes_gcm);
    }
    check("secretbox", secretbox);
}

#[test]
fn gcm_refuses_a_value_that_was_moved_to_another_key() {
    let (key, body) = vector("aesgcm32");
    assert_eq!(fault(&*aes_gcm(&key).unwrap(), b"/secrets/default/b", &body), Fault::NotAuthentic);
}

#[test]
fn another_key_opens_nothing() {
    for (name, new) in [("aesgcm16", aes_gcm as fn(&[u8]) -> _), ("aesgcm32", aes_gcm), ("secretbox", secretbox)] {
        let (mut key, body) = vector(name);
        key[0] ^= 1;
        assert_eq!(fault(&*new(&key).unwrap(), KEY, &body), Fault::NotAuthentic, "{name}");
    }
    // Without authentication only the padding tells.
    let (mut key, body) = vector("aescbc32");
    key[0] ^= 1;
    assert_eq!(fault(&*aes_cbc(&key).unwrap(), KEY, &body), Fault::Padding);
}

#[test]
fn every_flipped_bit_is_an_error_in_the_modes_that_authenticate() {
    for (name, new) in [("aesgcm24", aes_gcm as fn(&[u8]) -> _), ("secretbox", secretbox)] {
        let (key, body) = vector(name);
        let cipher = new(&key).unwrap();
        for bit in 0..8 * body.len() {
            let mut flipped = body.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(fault(&*cipher, KEY, &flipped), Fault::NotAuthentic, "{name}: bit {bit}");
        }
    }
}

#[test]
fn keys_have_the_lengths_of_their_ciphers() {
    for length in 0..40 {
        let key = vec![1; length];
        let is_aes = [16, 24, 32].contains(&length);
        assert_eq!((aes_cbc(&key).is_some(), aes_gcm(&key).is_some()), (is_aes, is_aes), "{length}");
        assert_eq!(secretbox(&key).is_some(), length == 32, "{length}");
    }
}

proptest! {
    #[test]
    fn every_value_comes_back(
        value in proptest::collection::vec(any::<u8>(), 0..200), secret in any::<[u8; 32]>(), length in 0..3usize,
    ) {
        let aes = &secret[..[16, 24, 32][length]];
        for cipher in [aes_cbc(aes), aes_gcm(aes), secretbox(&secret)].into_iter().flatten() {
            let sealed = seal(&*cipher, &value);
            let (opened, _) = cipher.open(KEY, &sealed).map_err(|_| TestCaseError::fail("not opened"))?;
            prop_assert_eq!(&opened, &value);
        }
    }

    #[test]
    fn no_bytes_make_a_cipher_panic(body in proptest::collection::vec(any::<u8>(), 0..100), secret in any::<[u8; 32]>()) {
        prop_assert!(aes_gcm(&secret).unwrap().open(KEY, &body).is_err());
        prop_assert!(secretbox(&secret).unwrap().open(KEY, &body).is_err());
        let _ = aes_cbc(&secret).unwrap().open(KEY, &body);
    }
}
