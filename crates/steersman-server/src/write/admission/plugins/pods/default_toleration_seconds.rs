//! `DefaultTolerationSeconds`: lets a pod stay on an unreachable node for five minutes, unless it has its own
//! tolerations.

use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, is_about_pod};
use futures::future::{self, BoxFuture};
use serde_json::json;
use steersman_machinery::Value;
use steersman_machinery::value::{object_at, str_at};

#[derive(Debug)]
pub(crate) struct DefaultTolerationSeconds;

impl Plugin for DefaultTolerationSeconds {
    fn handles(&self, phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        phase == Phase::Mutate && matches!(action, Action::Create | Action::Update) && is_about_pod(attributes)
    }

    fn mutate<'a>(
        &'a self,
        _review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        if let Some(pod) = new {
            tolerate(pod);
        }
        Box::pin(future::ready(Ok(())))
    }
}

/// Adds the default tolerations.
fn tolerate(pod: &mut Value) {
    const SECONDS: i64 = 300;
    let Some(spec) = object_at(pod, &["spec"]) else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
        let Some(tolerations) = tolerations.as_array_mut() else { return };
        let speaks_of_it = |toleration: &Value| {
            let text = |field| str_at(toleration, &[field]).unwrap_or_default();
            (text("key") == key || text("key").is_empty()) && matches!(text("effect"), "NoExecute" | "")
        };
        if !tolerations.iter().any(speaks_of_it) {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_pod_tolerates_a_silent_node_for_a_while() {
        let mut pod = json!({"spec": {}});
        tolerate(&mut pod);
        assert_eq!(pod["spec"]["tolerations"][0]["key"], "node.kubernetes.io/not-ready");
        assert_eq!(pod["spec"]["tolerations"][1]["tolerationSeconds"], 300);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_pod_that_tolerates_all_gets_nothing_more() {
        let mut pod = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        tolerate(&mut pod);
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 1);
    }
}
