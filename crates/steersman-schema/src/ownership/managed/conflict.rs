//! Conflicts of an apply, with kube-apiserver's messages, which kubectl and scripts parse.

use crate::ownership::fields::{FieldSet, Path, Room};
use crate::ownership::managed::record::{Manager, Operation};
use std::collections::BTreeMap;
use std::fmt;
use steersman_machinery::status::Cause;

const REASON: &str = "FieldManagerConflict";

/// Further conflicts are counted and not listed.
const TOLD_MAX: usize = 1000;
/// The maximum size of the listed paths together.
const TOLD_BYTES_MAX: usize = 1 << 20;

/// The fields that the apply would change, by the other managers that own them.
pub(crate) struct Conflicts(Vec<(Manager, FieldSet)>);

// === impl Conflicts ===

impl Conflicts {
    pub(crate) fn new(contested: &BTreeMap<Manager, FieldSet>) -> Conflicts {
        Conflicts(contested.iter().map(|(manager, fields)| (manager.clone(), fields.clone())).collect())
    }

    /// The conflicts about fields that are not in a set.
    pub(crate) fn outside(self, allowed: &FieldSet) -> Conflicts {
        let outside = self.0.into_iter().map(|(manager, mut fields)| {
            fields.subtract(allowed);
            (manager, fields)
        });
        Conflicts(outside.filter(|(_, fields)| !fields.is_empty()).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One cause for each field of each manager.
    pub(crate) fn causes(&self) -> Vec<Cause> {
        let cause = |manager: &Manager, path: &Path| Cause {
            reason: REASON.to_owned(),
            message: format!("conflict with {}", describe(manager)),
            field: path.to_string(),
        };
        let told = self.told();
        told.iter().flat_map(|(manager, paths)| paths.iter().map(move |path| cause(manager, path))).collect()
    }

    /// The listed paths, by manager.
    fn told(&self) -> Vec<(&Manager, Vec<Path>)> {
        let mut room = Room { n_paths: TOLD_MAX, n_bytes: TOLD_BYTES_MAX };
        self.0.iter().map(|(manager, fields)| (manager, fields.first_paths(&mut room))).collect()
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.told();
        let count: usize = self.0.iter().map(|(_, fields)| fields.len()).sum();
        if let (1, [(manager, paths)]) = (count, told.as_slice())
            && let [path] = paths.as_slice()
        {
            return write!(f, "Apply failed with 1 conflict: conflict with {}: {path}", describe(manager));
        }
        write!(f, "Apply failed with {count} conflicts: ")?;
        let n_told: usize = told.iter().map(|(_, paths)| paths.len()).sum();
        for (place, (manager, paths)) in told.iter().enumerate().filter(|(_, (_, paths))| !paths.is_empty()) {
            if place > 0 {
                f.write_str("\n")?;
            }
            write!(f, "conflicts with {}:", describe(manager))?;
            paths.iter().try_for_each(|path| write!(f, "\n- {path}"))?;
        }
        if n_told < count {
            write!(f, "\nand {} more", count - n_told)?;
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
