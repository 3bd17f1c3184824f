//! The allocated node ports, as one stored object for all servers: upstream's RangeAllocation, a range and a bitmap of
//! it. It changes in the same transaction as the Service whose ports they are.

use crate::shared::status::Failure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use steersman_machinery::value::str_at;
use steersman_machinery::{Draft, GroupResource, ObjectKey, Value};

/// Allocated node ports.
pub(crate) type NodePorts = BTreeSet<u16>;

pub(crate) fn resource() -> GroupResource {
    GroupResource::new("", "ranges")
}

pub(crate) fn key() -> ObjectKey {
    ObjectKey::cluster("servicenodeports")
}

/// Reads a stored bitmap. Its bits are a big-endian number, as Go's `big.Int` writes them: bit 0 is the first port of the
/// range.
pub(crate) fn read(object: &Value) -> Option<NodePorts> {
    let (first, _) = str_at(object, &["range"])?.split_once('-')?;
    let first: u16 = first.parse().ok()?;
    let bytes = STANDARD.decode(str_at(object, &["data"]).unwrap_or_default()).ok()?;
    let mut ports = NodePorts::new();
    for (index, byte) in bytes.iter().rev().enumerate() {
        for bit in 0..8 {
            if byte & (1 << bit) != 0 {
                let offset = u16::try_from(8 * index + bit).ok()?;
                ports.insert(first.checked_add(offset)?);
            }
        }
    }
    Some(ports)
}

/// The ports as an object to store. The stored range is wider than `range` if ports are outside of it, which a server with
/// another range has allocated.
pub(crate) fn draft(range: &RangeInclusive<u16>, ports: &NodePorts) -> Result<Draft, Failure> {
    let first = ports.first().map_or(*range.start(), |port| *port.min(range.start()));
    let last = ports.last().map_or(*range.end(), |port| *port.max(range.end()));
    let mut bytes = vec![0_u8; usize::from(last.saturating_sub(first)) / 8 + 1];
    for port in ports {
        let offset = usize::from(port - first);
        bytes[offset / 8] |= 1 << (offset % 8);
    }
    while bytes.pop_if(|byte| *byte == 0).is_some() {}
    bytes.reverse();
    let object = json!({
        "kind": "RangeAllocation", "apiVersion": "v1", "metadata": {"name": &*key().name},
        "range": format!("{first}-{last}"), "data": STANDARD.encode(&bytes),
    });
    Draft::read(object.to_string().into()).map_err(|error| Failure::internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use steersman_machinery::{Object, Revision};

    fn stored(range: &RangeInclusive<u16>, ports: &NodePorts) -> Value {
        let bytes = draft(range, ports).unwrap().encode();
        let object = Object::decode(key(), Revision(1), &bytes).unwrap();
        serde_json::from_slice(object.json()).unwrap()
    }

    /// Go: `new(big.Int).SetBit(SetBit(0, 0, 1), 9, 1).Bytes()` is `[0x02, 0x01]`.
    #[test]
    fn the_bitmap_has_the_form_of_upstream() {
        let object = stored(&(30_000..=32_767), &NodePorts::from([30_000, 30_009]));
        assert_eq!((&object["range"], &object["data"]), (&json!("30000-32767"), &json!("AgE=")));
        assert_eq!(stored(&(30_000..=32_767), &NodePorts::new())["data"], "");
    }

    proptest! {
        #[test]
        fn ports_are_read_as_they_were_written(first in 1..60_000_u16, offsets in prop::collection::btree_set(0..3_000_u16, 0..40)) {
            let range = first..=first + 3_000;
            let ports: NodePorts = offsets.into_iter().map(|offset| first + offset).collect();
            prop_assert_eq!(read(&stored(&range, &ports)), Some(ports));
        }
    }

    #[test]
    fn ports_of_another_range_are_kept() {
        let ports = NodePorts::from([29_000, 30_001, 33_000]);
        let object = stored(&(30_000..=32_767), &ports);
        assert_eq!((&object["range"], read(&object)), (&json!("29000-33000"), Some(ports)));
    }

    #[test]
    fn what_is_no_bitmap_is_not_read() {
        for object in [
            json!({}),
            json!({"range": "30000", "data": ""}),
            json!({"range": "a-b", "data": ""}),
            json!({"range": "1-2", "data": "?"}),
            json!({"range": "65535-65535", "data": "/w=="}),
        ] {
            assert_eq!(read(&object), None, "{object}");
        }
    }
}
