//! Encryption at rest as kube-apiserver has it: an `EncryptionConfiguration` says which resources are encrypted, and how.
//!
//! [`Encryption`] is the [`Transformer`](steersman_storage::kv::transformed::Transformer) that
//! [`Transformed`](steersman_storage::kv::transformed::Transformed) uses over any engine. Layers from below: `ciphers` (one key, the bytes behind a
//! prefix), `kms` (a key management service, and the envelopes that it takes), `chain` (the prefixes of an entry's providers, in their
//! order), `rules` (which chain a key has), `configuration` (the file), `encryption` (what is in force, and its exchange for a newer file).
//!
//! # The stored form
//! It is upstream's, byte for byte: `k8s:enc:PROVIDER:v1:KEY:` and what the provider makes of the value. The modes that authenticate
//! (`aesgcm`, and `kms` within its envelope) include the storage key, so that a value cannot be moved to another key. [`Encryption::bound_to`] makes that
//! the key that kube-apiserver has below a prefix (`/registry/secrets/default/name`), so that each reads the other's values; below another prefix they
//! cannot be read. Without it, it is the key of the `Kv` contract. `aescbc` and `secretbox` do not include it.
//!
//! The server is not known here, nor what values mean.

mod chain;
mod ciphers;
mod configuration;
mod encryption;
mod kms;
mod rules;

pub use crate::configuration::ConfigurationError;
pub use crate::encryption::{Encryption, OpenError, Reload};
