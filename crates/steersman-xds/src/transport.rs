//! The messages of the discovery service, written by hand after Envoy's `discovery.proto` and `base.proto` (Apache-2.0), with the fields
//! that are used, and the frames of gRPC around them.
//!
//! Requests are read with prost. A response is made of what is encoded already: a resource is in both variants of the protocol a field with
//! the number 2, so that [`crate::Resource`] holds these bytes once, and a response is small pieces between them.

#[cfg(test)]
mod tests;

use crate::field::{field_bytes, put_string};
use crate::kind::Kind;
use crate::resource::Resource;
#[cfg(test)]
use crate::resources::Any;
use crate::resources::core::Locality;
use crate::subscriber;
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;

/// Resources of at least this size are sent as they are in memory; smaller ones are copied, since a frame of HTTP/2 for each costs more.
const SHARED_BYTES_MIN: usize = 4096;
/// Small resources are joined up to this size, that of a frame of HTTP/2. A piece counts as taken when HTTP/2 has it, so that of a larger one nobody
/// would notice that the peer takes nothing.
const PIECE_BYTES: usize = 16 * 1024;
/// As much of a text as is kept of what a proxy says of itself, but for its id.
const TEXT_BYTES_MAX: usize = 256;
/// The head of a gRPC message: whether it is compressed, and its length.
pub(crate) const HEAD_BYTES: usize = 5;

/// The node of a [`DiscoveryRequest`] and nothing else, so that nothing is made of the rest.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeOfRequest {
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) node: Option<Bytes>,
}

/// The node of a [`DeltaDiscoveryRequest`] and nothing else.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeOfDeltaRequest {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(crate) node: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DiscoveryRequest {
    /// The last version that was taken over, also from before the stream.
    #[prost(string, tag = "1")]
    pub(crate) version_info: String,
    /// A [`Node`], which is read apart.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(crate) node: Option<Bytes>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) resource_names: Vec<String>,
    #[prost(string, tag = "4")]
    pub(crate) type_url: String,
    #[prost(string, tag = "5")]
    pub(crate) response_nonce: String,
    #[prost(message, optional, tag = "6")]
    pub(crate) error_detail: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeltaDiscoveryRequest {
    /// A [`Node`], which is read apart.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(crate) node: Option<Bytes>,
    #[prost(string, tag = "2")]
    pub(crate) type_url: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) resource_names_subscribe: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) resource_names_unsubscribe: Vec<String>,
    #[prost(map = "string, string", tag = "5")]
    pub(crate) initial_resource_versions: HashMap<String, String>,
    #[prost(string, tag = "6")]
    pub(crate) response_nonce: String,
    #[prost(message, optional, tag = "7")]
    pub(crate) error_detail: Option<Status>,
}

/// Read by tests only; [`Response::encode`] writes it.
#[cfg(test)]
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DiscoveryResponse {
    #[prost(string, tag = "1")]
    pub(crate) version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) resources: Vec<Any>,
    #[prost(string, tag = "4")]
    pub(crate) type_url: String,
    #[prost(string, tag = "5")]
    pub(crate) nonce: String,
}

/// Read by tests only; [`Response::encode`] writes it.
#[cfg(test)]
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeltaDiscoveryResponse {
    #[prost(string, tag = "1")]
    pub(crate) system_version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) resources: Vec<DeltaResource>,
    #[prost(string, tag = "4")]
    pub(crate) type_url: String,
    #[prost(string, tag = "5")]
    pub(crate) nonce: String,
    #[prost(string, repeated, tag = "6")]
    pub(crate) removed_resources: Vec<String>,
}

#[cfg(test)]
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeltaResource {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) resource: Option<Any>,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Node {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) cluster: String,
    /// A map that nothing is made of.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(crate) metadata: Option<Bytes>,
    #[prost(message, optional, tag = "4")]
    pub(crate) locality: Option<Locality>,
    #[prost(string, tag = "6")]
    pub(crate) user_agent_name: String,
}

/// A response of either variant.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) kind: Kind,
    pub(crate) variant: crate::report::Variant,
    pub(crate) version: String,
    pub(crate) nonce: String,
    pub(crate) resources: Vec<Arc<Resource>>,
    /// Empty in state-of-the-world responses, which have no such field.
    pub(crate) removed: Vec<Arc<str>>,
}

// === impl Response ===

impl Response {
    /// The bytes of the gRPC message, in pieces.
    pub(crate) fn encode(&self) -> Vec<Bytes> {
        let is_delta = self.variant == crate::report::Variant::Delta;
        let part = |resource: &Arc<Resource>| if is_delta { resource.delta_field() } else { resource.any_field() };
        let fields: Vec<Bytes> = self.resources.iter().map(part).collect();
        let removed: &[Arc<str>] = if is_delta { &self.removed } else { &[] };
        let texts = [&self.version, self.kind.type_url(), &self.nonce];
        let length = fields.iter().map(Bytes::len).sum::<usize>()
            + texts
                .into_iter()
                .chain(removed.iter().map(|name| &**name))
                .map(|text| field_bytes(text.len()))
                .sum::<usize>();
        let shared: usize = fields.iter().map(Bytes::len).filter(|length| *length >= SHARED_BYTES_MIN).sum();
        let mut buffer = BytesMut::with_capacity(HEAD_BYTES + length - shared);
        buffer.put_u8(0);
        buffer.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        put_string(&mut buffer, 1, &self.version);
        let mut pieces = Vec::new();
        for field in fields {
            if field.len() < SHARED_BYTES_MIN {
                buffer.extend_from_slice(&field);
                if buffer.len() >= PIECE_BYTES {
                    pieces.push(buffer.split().freeze());
                }
            } else {
                pieces.push(buffer.split().freeze());
                pieces.push(field);
            }
        }
        put_string(&mut buffer, 4, self.kind.type_url());
        put_string(&mut buffer, 5, &self.nonce);
        for name in removed {
            put_string(&mut buffer, 6, name);
        }
        pieces.push(buffer.freeze());
        pieces
    }
}

// === impl Node ===

impl From<Node> for subscriber::Node {
    fn from(node: Node) -> subscriber::Node {
        let locality = node.locality.unwrap_or_default();
        subscriber::Node {
            id: node.id,
            cluster: shortened(node.cluster),
            locality: subscriber::Locality {
                region: shortened(locality.region),
                zone: shortened(locality.zone),
                sub_zone: shortened(locality.sub_zone),
            },
            user_agent: shortened(node.user_agent_name),
        }
    }
}

/// The beginning of a text that is kept as long as the stream.
fn shortened(text: String) -> String {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    if end == text.len() { text } else { text[..end].to_owned() }
}
