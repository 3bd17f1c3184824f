//! The request side of a stream: messages of gRPC out of the pieces in which they come.

use crate::kind::Kind;
use crate::report::Variant;
use crate::server::status::{Code, Status};
use crate::session::{Change, Request};
use crate::subscriber;
use crate::transport::{DeltaDiscoveryRequest, DiscoveryRequest, HEAD_BYTES, Node, NodeOfDeltaRequest, NodeOfRequest};
use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use prost::Message;

/// The most bytes of a node. That of an Envoy has a few thousand, mostly metadata and extensions.
const NODE_BYTES_MAX: usize = 64 * 1024;
/// The most bytes of the id of a node.
const NODE_ID_BYTES_MAX: usize = 1024;
/// Below this size the buffer is kept for the next message.
const KEPT_BYTES: usize = 4096;

/// Reads the requests of a stream.
#[derive(Debug)]
pub(crate) struct Reader<B> {
    body: B,
    buffer: BytesMut,
    bytes_max: usize,
}

// === impl Reader ===

impl<B> Reader<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    pub(crate) fn new(body: B, bytes_max: usize) -> Reader<B> {
        Reader { body, buffer: BytesMut::new(), bytes_max }
    }

    /// The next request, as it came. `None` when the peer has ended its side, or the connection is gone.
    ///
    /// # Cancel safety
    /// The buffer keeps the bytes that were read, so a read that is cancelled loses none.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = take_message(&mut self.buffer, self.bytes_max)? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
}

/// Takes the first message out of the buffer, if it is complete.
fn take_message(buffer: &mut BytesMut, bytes_max: usize) -> Result<Option<Bytes>, Status> {
    if buffer.len() < HEAD_BYTES {
        return Ok(None);
    }
    if buffer[0] != 0 {
        return Err(Status::new(Code::Unimplemented, "the request is compressed, which is not supported"));
    }
    let length = u32::from_be_bytes([buffer[1], buffer[2], buffer[3], buffer[4]]);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > bytes_max {
        let message = format!("the request has {length} bytes, and {bytes_max} are allowed");
        return Err(Status::new(Code::ResourceExhausted, message));
    }
    if buffer.len() < HEAD_BYTES + length {
        return Ok(None);
    }
    buffer.advance(HEAD_BYTES);
    let message = buffer.split_to(length).freeze();
    // Stays small between messages, of which the first is by far the largest.
    if buffer.is_empty() && length > KEPT_BYTES {
        *buffer = BytesMut::new();
    }
    Ok(Some(message))
}

/// Reads the node of a request, and nothing else: whose stream it is may not be known yet.
pub(crate) fn decode_node(variant: Variant, message: Bytes) -> Result<subscriber::Node, Status> {
    let node = match variant {
        Variant::Delta => NodeOfDeltaRequest::decode(message).map_err(invalid)?.node,
        Variant::StateOfTheWorld => NodeOfRequest::decode(message).map_err(invalid)?.node,
    };
    let Some(node) = node else {
        return Err(Status::new(Code::InvalidArgument, "the first request of a stream must have a node"));
    };
    let too_large = |what: &str, length: usize, max: usize| {
        Status::new(Code::ResourceExhausted, format!("{what} has {length} bytes, and {max} are allowed"))
    };
    if node.len() > NODE_BYTES_MAX {
        return Err(too_large("the node of the request", node.len(), NODE_BYTES_MAX));
    }
    let node = Node::decode(node).map_err(invalid)?;
    if node.id.len() > NODE_ID_BYTES_MAX {
        return Err(too_large("the id of the node", node.id.len(), NODE_ID_BYTES_MAX));
    }
    Ok(node.into())
}

/// Reads the message of a variant. `None` for types that are not served.
pub(crate) fn decode(variant: Variant, message: Bytes) -> Result<Option<Request>, Status> {
    let (type_url, nonce, error, change) = match variant {
        Variant::Delta => {
            let request = DeltaDiscoveryRequest::decode(message).map_err(invalid)?;
            let change = Change::Delta {
                subscribe: request.resource_names_subscribe,
                unsubscribe: request.resource_names_unsubscribe,
                has: request.initial_resource_versions.into_iter().collect(),
            };
            (request.type_url, request.response_nonce, request.error_detail, change)
        }
        Variant::StateOfTheWorld => {
            let request = DiscoveryRequest::decode(message).map_err(invalid)?;
            let change = Change::Names { names: request.resource_names, version: request.version_info };
            (request.type_url, request.response_nonce, request.error_detail, change)
        }
    };
    if type_url.is_empty() {
        return Err(Status::new(Code::InvalidArgument, "the request names no type of resources"));
    }
    let kind = Kind::from_type_url(&type_url);
    let error = error.map(|error| error.message);
    Ok(kind.map(|kind| Request { kind, nonce, error, change }))
}

fn invalid(error: prost::DecodeError) -> Status {
    Status::new(Code::InvalidArgument, format!("the request is not a discovery request: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::model::Random;
    use crate::session::model::views::Views;
    use crate::session::{Now, Session};
    use bytes::BufMut;
    use std::time::SystemTime;
    use tokio::time::Instant;

    fn framed(message: &[u8]) -> BytesMut {
        let mut buffer = BytesMut::new();
        buffer.put_u8(0);
        buffer.put_u32(u32::try_from(message.len()).unwrap());
        buffer.extend_from_slice(message);
        buffer
    }

    #[test]
    fn messages_are_cut_where_they_end() {
        let whole = [framed(b"one"), framed(b""), framed(b"three")].concat();
        for cut in 0..whole.len() {
            let mut buffer = BytesMut::from(&whole[..cut]);
            let mut messages = Vec::new();
            while let Some(message) = take_message(&mut buffer, 5).unwrap() {
                messages.push(message);
            }
            buffer.extend_from_slice(&whole[cut..]);
            while let Some(message) = take_message(&mut buffer, 5).unwrap() {
                messages.push(message);
            }
            assert_eq!(messages, ["one", "", "three"], "{cut}");
        }
    }

    #[test]
    fn too_large_and_compressed_messages_are_refused_by_their_head() {
        let mut large = BytesMut::from(&framed(&[0; 6])[..HEAD_BYTES]);
        let status = take_message(&mut large, 5).unwrap_err();
        assert_eq!(status.message(), "the request has 6 bytes, and 5 are allowed");
        let mut compressed = framed(b"a");
        compressed[0] = 1;
        assert!(take_message(&mut compressed, 5).unwrap_err().message().contains("compressed"));
    }

    /// Recorded requests with bytes changed at random are read, or refused, and what is read does not upset a session.
    #[test]
    fn no_request_makes_a_session_panic() {
        let recorded = include_str!("../../testdata/recorded.txt").lines();
        let requests: Vec<(Variant, Vec<u8>)> = recorded
            .filter_map(|line| {
                let (name, digits) = line.split_once("DiscoveryRequest ")?;
                let variant = if name.ends_with("Delta") { Variant::Delta } else { Variant::StateOfTheWorld };
                let byte = |place| u8::from_str_radix(&digits[place..place + 2], 16).unwrap();
                Some((variant, (0..digits.len()).step_by(2).map(byte).collect()))
            })
            .collect();
        assert_eq!(requests.len(), 2);
        let mut random = Random(1);
        let mut n_read = 0;
        for _ in 0..200 {
            let (variant, request) = &requests[usize::from(random.one_in(2))];
            let mut session = Session::new(*variant);
            session.wanted(Views::new(&mut random).current());
            for _ in 0..3 {
                let mut bytes = request.clone();
                for _ in 0..random.below(3) {
                    let place = usize::try_from(random.below(bytes.len() as u64)).unwrap();
                    bytes[place] = u8::try_from(random.below(256)).unwrap();
                }
                n_read += usize::from(decode_node(*variant, bytes.clone().into()).is_ok());
                // A type that is served, in the place of the one of one letter.
                for kind in Kind::ALL {
                    let typed = with_type(*variant, &bytes, kind);
                    let Ok(Some(request)) = decode(*variant, typed) else { continue };
                    let now = Now { instant: Instant::now().into_std(), time: SystemTime::UNIX_EPOCH };
                    session.request(now, request, 100).unwrap();
                    assert!((0..100).any(|_| session.next(now).is_none()), "it ends");
                }
            }
        }
        assert!(n_read > 50, "{n_read}");
    }

    /// Appends a type to a request: of a field that is there twice, the last one counts.
    fn with_type(variant: Variant, request: &[u8], kind: Kind) -> Bytes {
        let field = match variant {
            Variant::Delta => 2,
            Variant::StateOfTheWorld => 4,
        };
        let url = kind.type_url();
        let head = [field << 3 | 2, u8::try_from(url.len()).unwrap()];
        [request, &head, url.as_bytes()].concat().into()
    }

    #[test]
    fn garbage_is_an_error() {
        for variant in [Variant::Delta, Variant::StateOfTheWorld] {
            assert!(decode(variant, Bytes::from_static(&[0xff; 9])).is_err());
            assert!(decode(variant, Bytes::new()).unwrap_err().message().contains("no type"));
        }
    }

    /// A request with a node, and with what cannot be read in the place of its names.
    fn with_node(variant: Variant, node: &Node) -> Bytes {
        let node = Some(node.encode_to_vec().into());
        let mut bytes = match variant {
            Variant::Delta => NodeOfDeltaRequest { node }.encode_to_vec(),
            Variant::StateOfTheWorld => NodeOfRequest { node }.encode_to_vec(),
        };
        bytes.extend([3 << 3 | 2, 1, 0xff]);
        bytes.into()
    }

    #[test]
    fn large_nodes_are_refused_and_others_are_read_alone() {
        for variant in [Variant::Delta, Variant::StateOfTheWorld] {
            let read = |node: &Node| decode_node(variant, with_node(variant, node));
            let longest = Node { id: "x".repeat(1024), ..Node::default() };
            assert_eq!(read(&longest).unwrap().id, longest.id);
            assert!(decode(variant, with_node(variant, &longest)).is_err(), "the names are not text");
            let refused = read(&Node { id: "x".repeat(1025), ..Node::default() }).unwrap_err();
            assert_eq!(refused.message(), "the id of the node has 1025 bytes, and 1024 are allowed");
            let refused = read(&Node { cluster: "x".repeat(80_000), ..Node::default() }).unwrap_err();
            assert_eq!(refused.message(), "the node of the request has 80004 bytes, and 65536 are allowed");
        }
    }
}
