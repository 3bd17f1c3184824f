//! A key, a line feed, and a value as another API server may have stored it. What can be read can be written, and reads the same after
//! that.

use bytes::Bytes;
use steersman_server::RuntimeConfig;
use steersman_storage::kv::transformed::Transformer as _;
use steersman_storage_kubernetes::{Layout, Values};

pub fn run(data: &[u8]) {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let (key, stored) = (&data[..end], Bytes::copy_from_slice(&data[end + 1..]));
    let values = Values::new(Layout::Kubernetes, &RuntimeConfig::default());
    let Ok(opened) = values.open(key, &stored) else { return };
    let sealed = values.seal(key, &opened.value).expect("an object that was read can be written");
    let again = values.open(key, &sealed).expect("what was written can be read");
    assert_eq!(again.value, opened.value);
}
