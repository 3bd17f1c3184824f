//! `oc adm must-gather` and `oc adm inspect`.
//!
//! ```text
//! cluster-scoped-resources/GROUP/RESOURCE/NAME.yaml    or GROUP/RESOURCE.yaml; the core group is `core`
//! namespaces/NS/GROUP/RESOURCE.yaml                    or GROUP/RESOURCE/NAME.yaml
//! namespaces/NS/pods/POD/POD.yaml
//! namespaces/NS/pods/POD/CONTAINER/CONTAINER/logs/current.log
//! ```
//! below any directories: a must-gather has one for each image that gathered.

use crate::logs::{Container, Lines, Run};
use crate::source::documents::Hint;
use crate::source::layout::{Layout, Place, behind, has_objects, stem};

pub(super) struct MustGather;

/// The core group.
const CORE: &str = "core";

impl Layout for MustGather {
    fn name(&self) -> &'static str {
        "a must-gather"
    }

    fn place(&self, path: &[&str]) -> Option<Place> {
        if let Some([group, resource, rest @ ..]) = behind(path, "cluster-scoped-resources") {
            return objects(path, group, resource, rest, false);
        }
        // A namespace may itself be called `namespaces`.
        let at = path.iter().position(|segment| *segment == "namespaces")?;
        // Velero has such a directory too, behind the resource.
        if path[..at].contains(&"resources") {
            return None;
        }
        match &path[at + 1..] {
            [namespace, "pods", pod, container, _, "logs", file] => {
                let run = match *file {
                    "current.log" => Run::Current,
                    "previous.log" => Run::Previous,
                    _ => return None,
                };
                Some(Place::Log(Container::new(namespace, pod, container, run), Lines::Timed))
            }
            [_, "pods", _, _] if has_objects(path) => Some(Place::Objects(hint(CORE, "pods", true))),
            [_, _] if has_objects(path) => Some(Place::Objects(hint(CORE, "namespaces", false))),
            [_, group, resource, rest @ ..] => objects(path, group, resource, rest, true),
            _ => None,
        }
    }
}

/// A file of one object of a resource, or of all of them.
fn objects(path: &[&str], group: &str, resource: &str, rest: &[&str], is_namespaced: bool) -> Option<Place> {
    let name = stem(path)?;
    match rest {
        [] => Some(Place::Objects(hint(group, name, is_namespaced))),
        [_] => Some(Place::Objects(hint(group, resource, is_namespaced))),
        _ => None,
    }
}

fn hint(group: &str, resource: &str, is_namespaced: bool) -> Hint {
    let group = if group == CORE { "" } else { group };
    Hint { resource: Some(resource.into()), group: Some(group.into()), is_namespaced: Some(is_namespaced) }
}
