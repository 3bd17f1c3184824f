//! Conflicts of an apply, with the messages of kube-apiserver: kubectl and scripts parse them.

use crate::fields::{FieldSet, Path};
use crate::managed::record::{Manager, Operation};
use std::collections::BTreeMap;
use std::fmt;
use steersman_machinery::status::Cause;

const REASON: &str = "FieldManagerConflict";

/// The fields that the apply would change, by the other managers that own them.
pub(crate) struct Conflicts(Vec<(Manager, Vec<Path>)>);

// === impl Conflicts ===

impl Conflicts {
    pub(crate) fn new(contested: &BTreeMap<Manager, FieldSet>) -> Conflicts {
        Conflicts(contested.iter().map(|(manager, fields)| (manager.clone(), fields.paths())).collect())
    }

    /// The conflicts about fields that a set does not have.
    pub(crate) fn outside(self, allowed: &FieldSet) -> Conflicts {
        let outside = self.0.into_iter().map(|(manager, mut paths)| {
            paths.retain(|path| !allowed.contains(&path.0));
            (manager, paths)
        });
        Conflicts(outside.filter(|(_, paths)| !paths.is_empty()).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One cause for each field of each owner.
    pub(crate) fn causes(&self) -> Vec<Cause> {
        let cause = |manager: &Manager, path: &Path| Cause {
            reason: REASON.to_owned(),
            message: format!("conflict with {}", describe(manager)),
            field: path.to_string(),
        };
        self.0.iter().flat_map(|(manager, paths)| paths.iter().map(move |path| cause(manager, path))).collect()
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(manager, paths)] = self.0.as_slice()
            && let [path] = paths.as_slice()
        {
            return write!(f, "Apply failed with 1 conflict: conflict with {}: {path}", describe(manager));
        }
        let count: usize = self.0.iter().map(|(_, paths)| paths.len()).sum();
        write!(f, "Apply failed with {count} conflicts: ")?;
        for (place, (manager, paths)) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_str("\n")?;
            }
            write!(f, "conflicts with {}:", describe(manager))?;
            paths.iter().try_for_each(|path| write!(f, "\n- {path}"))?;
        }
        Ok(())
    }
}

fn describe(manager: &Manager) -> String {
    let mut text = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", manager.subresource));
    }
    if manager.operation == Operation::Update {
        text.push_str(&format!(" using {}", manager.api_version));
    }
    text
}
