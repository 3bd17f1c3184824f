//! `kubectl cluster-info dump --output-directory`.
//!
//! ```text
//! nodes.json
//! NS/pods.json, NS/events.json, ...
//! NS/POD/logs.txt                     the logs of all containers, with marks between them
//! ```

use crate::logs::{Container, Lines};
use crate::source::documents::Hint;
use crate::source::layout::{Layout, Place, stem};

pub(super) struct ClusterInfo;

/// The files of a namespace.
const FILES: [&str; 7] =
    ["daemonsets", "deployments", "events", "pods", "replicasets", "replication-controllers", "services"];

impl Layout for ClusterInfo {
    fn name(&self) -> &'static str {
        "the directory of kubectl cluster-info dump"
    }

    fn place(&self, path: &[&str]) -> Option<Place> {
        if let [.., namespace, pod, "logs.txt"] = path {
            return Some(Place::Log(Container::all_of(namespace, pod), Lines::Plain));
        }
        let name = stem(path)?;
        let is_of_namespace = 2 <= path.len() && FILES.contains(&name);
        // The files of lists; their items do not say what they are, but the lists do.
        (is_of_namespace || name == "nodes").then(|| Place::Objects(Hint::default()))
    }
}
