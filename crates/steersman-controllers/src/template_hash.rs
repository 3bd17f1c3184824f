//! The hash of a template of Pods, by which Deployments and DaemonSets name what they make of it.

use k8s_openapi::api::core::v1::PodTemplateSpec;

/// What upstream writes hashes with: no vowels, so that no words come about.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The hash of a template, other ones for other numbers of collisions.
pub(crate) fn compute(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let mut hasher = Fnv::new();
    hasher.write(serde_json::to_string(template).unwrap_or_default().as_bytes());
    if let Some(collisions) = collisions {
        hasher.write(&u64::from(collisions.cast_unsigned()).to_le_bytes());
    }
    safe(&hasher.0.to_string())
}

/// Writes a text in letters that make no words.
fn safe(text: &str) -> String {
    text.bytes().map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])).collect()
}

/// FNV-1a of 32 bits.
struct Fnv(u32);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0x811c_9dc5)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
}
