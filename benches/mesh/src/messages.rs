//! The messages of delta discovery, as much of them as a proxy must read to answer: names, versions, nonces.

use bytes::{BufMut, Bytes, BytesMut};

/// The bytes before each message of gRPC.
pub(crate) const HEAD_BYTES: usize = 5;

/// A type of resources, in the order in which an Envoy asks for them when it starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Cluster,
    Endpoints,
    Listener,
    Route,
}

/// A response, with its resources as they came.
#[derive(Debug, Default)]
pub(crate) struct Response<'a> {
    pub(crate) kind: Option<Kind>,
    pub(crate) nonce: &'a [u8],
    pub(crate) resources: Vec<Resource<'a>>,
    pub(crate) removed: Vec<&'a [u8]>,
}

#[derive(Debug, Default)]
pub(crate) struct Resource<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) version: &'a [u8],
    pub(crate) any: &'a [u8],
}

// === impl Kind ===

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Cluster, Kind::Endpoints, Kind::Listener, Kind::Route];

    pub(crate) fn url(self) -> &'static str {
        match self {
            Kind::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Kind::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Kind::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Kind::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }
}

/// The fields of a message, in turn: the number, and the content of those that have a length.
fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let key = varint(&mut bytes)?;
            let length = match key & 7 {
                0 => {
                    varint(&mut bytes)?;
                    continue;
                }
                1 => 8,
                2 => usize::try_from(varint(&mut bytes)?).ok()?,
                5 => 4,
                _ => return None,
            };
            let (content, rest) = bytes.split_at_checked(length)?;
            bytes = rest;
            if key & 7 == 2 {
                return Some((key >> 3, content));
            }
        }
    })
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn field(bytes: &[u8], number: u64) -> Option<&[u8]> {
    fields(bytes).find(|(found, _)| *found == number).map(|(_, content)| content)
}

impl<'a> Response<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Response<'a> {
        let mut response = Response::default();
        for (number, content) in fields(bytes) {
            match number {
                2 => {
                    let mut resource = Resource::default();
                    for (number, content) in fields(content) {
                        match number {
                            1 => resource.version = content,
                            2 => resource.any = content,
                            3 => resource.name = content,
                            _ => {}
                        }
                    }
                    response.resources.push(resource);
                }
                4 => response.kind = Kind::ALL.into_iter().find(|kind| kind.url().as_bytes() == content),
                5 => response.nonce = content,
                6 => response.removed.push(content),
                _ => {}
            }
        }
        response
    }
}

impl Resource<'_> {
    /// The table of routes that a listener names: the one thing that a proxy must look for inside.
    pub(crate) fn table(&self) -> Option<&[u8]> {
        let listener = field(self.any, 2)?;
        let filter = field(field(listener, 3)?, 3)?;
        let manager = field(field(filter, 4)?, 2)?;
        field(field(manager, 3)?, 2)
    }
}

fn put(out: &mut BytesMut, number: u8, content: &[u8]) {
    out.put_u8(number << 3 | 2);
    let mut length = content.len();
    while length >= 0x80 {
        // The low seven bits; more follow.
        out.put_u8((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.put_u8(length as u8);
    out.put_slice(content);
}

/// A request. The first one of a stream has a node, and the first one of a type the versions that the proxy has.
pub(crate) fn request<'a>(
    kind: Kind,
    node: Option<&str>,
    nonce: &[u8],
    subscribe: impl IntoIterator<Item = &'a [u8]>,
    has: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Bytes {
    let mut out = BytesMut::zeroed(HEAD_BYTES);
    if let Some(id) = node {
        let mut node = BytesMut::new();
        put(&mut node, 1, id.as_bytes());
        put(&mut node, 2, b"bench");
        put(&mut node, 6, b"envoy");
        put(&mut out, 1, &node);
    }
    put(&mut out, 2, kind.url().as_bytes());
    for name in subscribe {
        put(&mut out, 3, name);
    }
    let mut entry = BytesMut::new();
    for (name, version) in has {
        entry.clear();
        put(&mut entry, 1, name);
        put(&mut entry, 2, version);
        put(&mut out, 5, &entry);
    }
    if !nonce.is_empty() {
        put(&mut out, 6, nonce);
    }
    let length = u32::try_from(out.len() - HEAD_BYTES).unwrap_or(u32::MAX);
    out[1..HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let long = vec![b'x'; 300];
        let bytes = request(Kind::Route, Some("id"), b"7", [long.as_slice(), b"b"], [(&b"n"[..], &b"v"[..])]);
        let read: Vec<_> = fields(&bytes[HEAD_BYTES..]).collect();
        let numbers: Vec<u64> = read.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 2, 3, 3, 5, 6]);
        assert_eq!((read[2].1, read[5].1), (long.as_slice(), &b"7"[..]));
        let response = Response::read(&[0x2a, 1, b'9', 0x32, 1, b'a', 0x12, 3, 0x1a, 1, b'c']);
        assert_eq!((response.nonce, &response.removed[..]), (&b"9"[..], &[&b"a"[..]][..]));
        assert_eq!(response.resources[0].name, b"c");
    }
}
