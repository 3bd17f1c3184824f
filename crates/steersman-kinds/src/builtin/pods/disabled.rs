//! Fields of a pod's spec whose features Kubernetes 1.36 does not enable: they are dropped, unless the old object has them.

use steersman_machinery::Value;
use steersman_machinery::value::{Map, at, object_at};

/// The sources of projected volumes whose features are not enabled.
const PROJECTIONS: [&str; 2] = ["clusterTrustBundle", "podCertificate"];

/// Drops them from the spec at a path, if the kind has one.
pub fn drop(path: &[&str], new: &mut Value, old: &Value) {
    if path.is_empty() || !at(new, path).is_some_and(Value::is_object) {
        return;
    }
    let old = at(old, path).unwrap_or(&Value::Null);
    let Some(spec) = object_at(new, path) else { return };
    if old.get("schedulingGroup").is_none() {
        spec.remove("schedulingGroup");
    }
    if !containers(old).any(|container| container.pointer("/lifecycle/stopSignal").is_some()) {
        drop_stop_signals(spec);
    }
    let dropped = PROJECTIONS.map(|name| (name, is_projected(old, name)));
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten();
    for volume in volumes {
        let sources = volume.pointer_mut("/projected/sources").and_then(Value::as_array_mut).into_iter().flatten();
        for source in sources.filter_map(Value::as_object_mut) {
            for (name, _) in dropped.iter().filter(|(_, is_used)| !is_used) {
                source.remove(*name);
            }
        }
    }
}

/// The lists of containers of a spec.
const CONTAINERS: [&str; 3] = ["containers", "ephemeralContainers", "initContainers"];

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    CONTAINERS.iter().filter_map(|list| spec.get(list)?.as_array()).flatten()
}

/// Drops the signals that end containers, and lifecycles that have nothing else.
fn drop_stop_signals(spec: &mut Map) {
    for list in CONTAINERS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) else { continue };
            if lifecycle.remove("stopSignal").is_some() && lifecycle.is_empty() {
                container.remove("lifecycle");
            }
        }
    }
}

/// Whether a projected volume of a spec has such a source.
fn is_projected(spec: &Value, name: &str) -> bool {
    let volumes = spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    let mut sources = volumes.filter_map(|volume| volume.pointer("/projected/sources")?.as_array()).flatten();
    sources.any(|source| source.get(name).is_some())
}
