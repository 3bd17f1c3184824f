//! Pages of a snapshot of etcd, of which the last is the uppermost bucket. The reader names what is damaged, reads no page without end, and
//! never panics.

use steersman_storage_etcd::fuzz_snapshot;

pub fn run(data: &[u8]) {
    let n_objects = fuzz_snapshot(data).unwrap_or(0);
    assert!(n_objects <= data.len(), "an object has at least one byte");
}
