//! Fields of a pod's spec whose features Kubernetes 1.36 does not enable: they are dropped, unless the old object has them.

use steersman_machinery::Value;
use steersman_machinery::value::{at, object_at};

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

/// Whether a projected volume of a spec has such a source.
fn is_projected(spec: &Value, name: &str) -> bool {
    let volumes = spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    let mut sources = volumes.filter_map(|volume| volume.pointer("/projected/sources")?.as_array()).flatten();
    sources.any(|source| source.get(name).is_some())
}
