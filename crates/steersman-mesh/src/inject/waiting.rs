//! Pods that wait for the initializer.
//!
//! The types of today's clients have no field for initializers. Of a Pod that does not wait for this initializer only
//! the metadata that a cache needs are kept, so that a watch of all Pods costs little.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::inject::INITIALIZER;

/// A Pod, of which the content is known while it waits.
#[derive(Clone, Debug)]
pub(crate) struct WaitingPod {
    metadata: ObjectMeta,
    /// The whole Pod, if it is this initializer's turn.
    pub(crate) pod: Option<Arc<Value>>,
}

/// Whether it is this initializer's turn.
pub(crate) fn is_next(pod: &Value) -> bool {
    pod.pointer("/metadata/initializers/pending/0/name").and_then(Value::as_str) == Some(INITIALIZER)
}

impl<'de> Deserialize<'de> for WaitingPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WaitingPod, D::Error> {
        let pod = Value::deserialize(deserializer)?;
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("/metadata/name"),
            namespace: text("/metadata/namespace"),
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
            ..ObjectMeta::default()
        };
        let pod = is_next(&pod).then(|| Arc::new(pod));
        Ok(WaitingPod { metadata, pod })
    }
}

impl Resource for WaitingPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
