//! A key, a line feed, and a value as another API server may have stored it. What can be read can be written, and reads the same after
//! that. No API server stores a definition without its group and versions, and such a one may lose its empty fields when it is written.

use bytes::Bytes;
use serde_json::Value;
use steersman_machinery::Object;
use steersman_server::RuntimeConfig;
use steersman_storage::kv::transformed::Transformer as _;
use steersman_storage_kubernetes::{Layout, Values};

const DEFINITIONS: &[u8] = b"apiextensions.k8s.io/customresourcedefinitions/";

pub fn run(data: &[u8]) {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
    let (key, stored) = (&data[..end], Bytes::copy_from_slice(&data[end + 1..]));
    let values = Values::new(Layout::Kubernetes, &RuntimeConfig::default());
    let Ok(opened) = values.open(key, &stored) else { return };
    let sealed = values.seal(key, &opened.value).expect("an object that was read can be written");
    let again = values.open(key, &sealed).expect("what was written can be read");
    if key.starts_with(DEFINITIONS) && !is_whole_definition(&opened.value) {
        return;
    }
    assert_eq!(again.value, opened.value);
}

fn is_whole_definition(value: &[u8]) -> bool {
    // An encrypted value has no document.
    let Ok(json) = Object::json_of(value) else { return false };
    let definition: Value = serde_json::from_slice(json).expect("its document is JSON");
    let spec = &definition["spec"];
    spec["group"].as_str().is_some_and(|group| !group.is_empty())
        && spec["versions"].as_array().is_some_and(|versions| !versions.is_empty())
}
