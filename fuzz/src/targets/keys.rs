//! Keys and certificates: PEM texts, DER, keys of a JSON Web Key Set, keys in the server's stored form.

use steersman_server::authn::{PublicKey, SigningKey, StoredKey, certificate_end, certificate_user};
use steersman_server::fuzzing;

pub fn run(data: &[u8]) {
    if let Some(user) = certificate_user(data) {
        assert!(certificate_end(data).is_some(), "{user:?}: a certificate ends");
    }
    let _ = certificate_end(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(keys) = PublicKey::read_all(text) {
        for key in fuzzing::web_keys(&keys) {
            assert_eq!(fuzzing::web_key(&key).as_ref(), Some(&key), "a key that was written is read");
        }
    }
    let _ = SigningKey::read(text);
    if let Ok(key) = StoredKey::parse(text) {
        let written = key.to_text();
        let again = StoredKey::parse(&written).unwrap_or_else(|error| panic!("{error}: {written}"));
        assert_eq!(again.to_text(), written);
    }
    if let Ok(json) = serde_json::from_str(text)
        && let Some(key) = fuzzing::web_key(&json)
    {
        assert_eq!(fuzzing::web_key(&key).as_ref(), Some(&key), "{key}");
    }
}
