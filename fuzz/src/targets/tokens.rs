//! Signed tokens (JWS): only a token that the key has signed is accepted.

use std::sync::LazyLock;
use steersman_server::authn::PublicKey;
use steersman_server::fuzzing;

/// The public key of `seeds/token.txt`, whose private key does not exist any more.
static KEYS: LazyLock<Vec<PublicKey>> =
    LazyLock::new(|| PublicKey::read_all(include_str!("../../seeds/public-key.pem")).expect("the seed is a key"));
/// The only token that was signed.
const SIGNED: &str = include_str!("../../seeds/token.txt");

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let text = text.trim_end();
    match fuzzing::is_token_signed(text, &KEYS) {
        Some(true) => assert_eq!(without_signature(text), without_signature(SIGNED.trim_end()), "only that was signed"),
        Some(false) | None => assert_ne!(text, SIGNED.trim_end(), "it was signed"),
    }
}

fn without_signature(token: &str) -> &str {
    token.rsplit_once('.').map_or(token, |(signed, _)| signed)
}
