//! Support bundles of Troubleshoot (`kubectl support-bundle`).
//!
//! ```text
//! cluster-resources/KINDS.json                            objects of the cluster
//! cluster-resources/KINDS/NS.json                         objects of a namespace
//! cluster-resources/custom-resources/PLURAL.GROUP.json    or PLURAL.GROUP/NS.json, also as YAML
//! cluster-resources/pods/logs/NS/POD/CONTAINER.log        or CONTAINER-previous.log
//! ```
//! KINDS is mostly a plural with hyphens. Some files are arrays whose items do not say what they are.

use crate::logs::{Container, Lines, Run};
use crate::source::documents::Hint;
use crate::source::layout::{Layout, Place, behind, has_objects, stem};

pub(super) struct Troubleshoot;

const PREVIOUS: &str = "-previous";

impl Layout for Troubleshoot {
    fn name(&self) -> &'static str {
        "a support bundle"
    }

    fn place(&self, path: &[&str]) -> Option<Place> {
        let rest = behind(path, "cluster-resources")?;
        if let ["pods", "logs", namespace, pod, file] = rest {
            let container = file.strip_suffix(".log")?;
            let (container, run) = match container.strip_suffix(PREVIOUS) {
                Some(container) => (container, Run::Previous),
                None => (container, Run::Current),
            };
            return Some(Place::Log(Container::new(namespace, pod, container, run), Lines::Plain));
        }
        if !has_objects(path) {
            return None;
        }
        let (resource, is_namespaced) = match rest {
            ["custom-resources", _] => {
                let (resource, group) = stem(path)?.split_once('.')?;
                let (resource, group) = (Some(resource.into()), Some(group.into()));
                return Some(Place::Objects(Hint { resource, group, is_namespaced: None }));
            }
            ["custom-resources", definition, _] => {
                let (resource, group) = definition.split_once('.')?;
                let (resource, group) = (Some(resource.into()), Some(group.into()));
                return Some(Place::Objects(Hint { resource, group, is_namespaced: Some(true) }));
            }
            [_] => (stem(path)?, None),
            [kinds, _] => (*kinds, Some(true)),
            _ => return None,
        };
        Some(Place::Objects(Hint { resource: Some(plain(resource)), group: None, is_namespaced }))
    }
}

/// A plural as Kubernetes has it.
fn plain(kinds: &str) -> std::sync::Arc<str> {
    let plain = kinds.replace(['-', '_'], "").to_lowercase();
    match &*plain {
        "pvcs" => "persistentvolumeclaims".into(),
        "pvs" => "persistentvolumes".into(),
        "ingress" => "ingresses".into(),
        "networkpolicy" => "networkpolicies".into(),
        "resourcequota" => "resourcequotas".into(),
        _ => plain.into(),
    }
}
