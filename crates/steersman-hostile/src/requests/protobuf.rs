//! Messages of no bytes, many of them: the cheapest item that there is, at two bytes each.

use bytes::Bytes;
use rand::Rng as _;

use crate::client::Request;
use crate::requests::Material;

const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The number of the field `spec` in a Pod and in most other kinds.
const SPEC: u8 = 2;
const CONTAINERS: u32 = 2;
/// The kinds whose fields are tried, with where they are created.
const KINDS: [(&str, &str, &str); 7] = [
    ("v1", "Pod", "pods"),
    ("v1", "Service", "services"),
    ("v1", "ConfigMap", "configmaps"),
    ("v1", "Endpoints", "endpoints"),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("v1", "ReplicationController", "replicationcontrollers"),
    ("v1", "Event", "events"),
];

pub(crate) fn pod(material: &mut Material<'_>) -> Request {
    let n_items = material.rng.random_range(300_000..1_400_000);
    let path = format!("{}?dryRun=All", material.core("pods"));
    Request::new("", "POST", path, CONTENT_TYPE, object("v1", "Pod", CONTAINERS, n_items))
}

/// Short enough to pass for a light request, with half a message to each byte.
pub(crate) fn small_pod(material: &mut Material<'_>) -> Request {
    let n_items = material.rng.random_range(10_000..32_000);
    let path = format!("{}?dryRun=All", material.core("pods"));
    Request::new("", "POST", path, CONTENT_TYPE, object("v1", "Pod", CONTAINERS, n_items))
}

pub(crate) fn any_field(material: &mut Material<'_>) -> Request {
    let (api_version, kind, resource) = KINDS[material.rng.random_range(0..KINDS.len())];
    let (field, n_items) = (material.rng.random_range(1..40), material.rng.random_range(300_000..900_000));
    let path = format!("{}?dryRun=All", material.core(resource));
    Request::new("", "POST", path, CONTENT_TYPE, object(api_version, kind, field, n_items))
}

/// An object with empty messages as one field of its spec.
pub fn object(api_version: &str, kind: &str, field: u32, n_items: usize) -> Bytes {
    let mut item = Vec::new();
    varint(u64::from(field << 3 | 2), &mut item);
    item.push(0);
    let spec = item.repeat(n_items);
    let metadata = nested(1, &nested(1, b"hostile"));
    let raw = [metadata, nested(SPEC, &spec)].concat();
    let type_meta = [nested(1, api_version.as_bytes()), nested(2, kind.as_bytes())].concat();
    [b"k8s\0".as_slice(), &nested(1, &type_meta), &nested(2, &raw)].concat().into()
}

/// A field that holds a message or a string.
fn nested(field: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![field << 3 | 2];
    varint(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_an_envelope_around_its_message() {
        let got = object("v1", "Pod", 2, 2);
        let want = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x11\x0a\x09\x0a\x07hostile\x12\x04\x12\x00\x12\x00";
        assert_eq!(got, want.as_slice());
    }
}
