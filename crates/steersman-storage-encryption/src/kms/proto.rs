//! The messages of the KMS v2 API and the envelope of a value, written by hand after upstream's `kms/apis/v2/api.proto` and
//! `envelope/kmsv2/v2/api.proto` (Apache-2.0), so that nobody who builds this needs a protobuf compiler.

use bytes::Bytes;
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StatusResponse {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(string, tag = "2")]
    pub(crate) healthz: String,
    #[prost(string, tag = "3")]
    pub(crate) key_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DecryptRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) ciphertext: Bytes,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
    #[prost(string, tag = "3")]
    pub(crate) key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(crate) annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DecryptResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) plaintext: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct EncryptRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) plaintext: Bytes,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct EncryptResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) ciphertext: Bytes,
    #[prost(string, tag = "2")]
    pub(crate) key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub(crate) annotations: BTreeMap<String, Vec<u8>>,
}

/// The message that is stored after the prefix.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct EncryptedObject {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) encrypted_data: Bytes,
    #[prost(string, tag = "2")]
    pub(crate) key_id: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) encrypted_dek_source: Bytes,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(crate) annotations: BTreeMap<String, Vec<u8>>,
    #[prost(enumeration = "SourceType", tag = "5")]
    pub(crate) encrypted_dek_source_type: i32,
}

/// The kind of secret that the service has encrypted.
#[derive(Clone, Copy, Debug, Eq, PartialEq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum SourceType {
    /// The key of the value. Written by releases of Kubernetes before 1.29.
    AesGcmKey = 0,
    /// A seed, from which each value's key is derived.
    HkdfSeed = 1,
}

impl EncryptedObject {
    pub(crate) fn source_type(&self) -> SourceType {
        self.encrypted_dek_source_type()
    }
}
