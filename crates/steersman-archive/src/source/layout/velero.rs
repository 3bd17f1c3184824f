//! Backups of Velero.
//!
//! ```text
//! resources/RESOURCE.GROUP/cluster/NAME.json
//! resources/RESOURCE.GROUP/namespaces/NS/NAME.json
//! resources/RESOURCE.GROUP/VERSION-preferredversion/...     the same once more, by version
//! ```

use crate::source::documents::Hint;
use crate::source::layout::{Layout, Place, behind, has_objects};

pub(super) struct Velero;

impl Layout for Velero {
    fn name(&self) -> &'static str {
        "a backup of Velero"
    }

    fn place(&self, path: &[&str]) -> Option<Place> {
        let at = path.iter().position(|segment| *segment == "resources")?;
        let [resource, rest @ ..] = behind(&path[at..], "resources")? else { return None };
        let rest = match rest {
            ["cluster" | "namespaces", ..] => rest,
            [_, rest @ ..] => rest,
            [] => return None,
        };
        let is_namespaced = match rest {
            ["cluster", _] => false,
            ["namespaces", _, _] => true,
            _ => return None,
        };
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let (resource, group) = (Some(resource.into()), Some(group.into()));
        has_objects(path).then_some(Place::Objects(Hint { resource, group, is_namespaced: Some(is_namespaced) }))
    }
}
