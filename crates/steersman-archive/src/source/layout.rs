//! Where tools put objects and logs in the directories that they make: a function from the path of a file to what is in it.
//!
//! A file belongs to the first layout that knows its place. Files of objects that no layout knows are read all the same, since every object
//! says what it is; what is lost is a hint at its plural.

mod cluster_info;
mod must_gather;
mod troubleshoot;
mod velero;

use crate::logs::{Container, Lines};
use crate::source::documents::Hint;

/// The layout of a directory that a tool makes.
pub trait Layout: Sync {
    /// The name of the format, for people.
    fn name(&self) -> &'static str;

    /// The contents of the file at a path, given as its segments; `None` if the place is none of this layout's.
    fn place(&self, path: &[&str]) -> Option<Place>;
}

/// The contents of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// The log of a container, or of all containers of a Pod with marks between them.
    Log(Container, Lines),
    /// Objects.
    Objects(Hint),
}

/// The layouts, in the order in which they are asked.
pub static LAYOUTS: [&dyn Layout; 4] =
    [&must_gather::MustGather, &velero::Velero, &troubleshoot::Troubleshoot, &cluster_info::ClusterInfo];

/// The contents of a file that no layout knows.
pub fn plain_place(path: &[&str]) -> Option<Place> {
    has_objects(path).then(|| Place::Objects(Hint::default()))
}

/// Whether a file is one of objects by its ending.
fn has_objects(path: &[&str]) -> bool {
    stem(path).is_some()
}

/// The name of a file of objects, without its ending.
fn stem<'a>(path: &[&'a str]) -> Option<&'a str> {
    let name = path.last()?;
    [".json", ".yaml", ".yml"].iter().find_map(|ending| name.strip_suffix(ending)).filter(|stem| !stem.is_empty())
}

/// The segments behind the last one of this name that has any.
fn behind<'p, 'a>(path: &'p [&'a str], name: &str) -> Option<&'p [&'a str]> {
    let at = path.iter().take(path.len().saturating_sub(1)).rposition(|segment| *segment == name)?;
    Some(&path[at + 1..])
}

#[cfg(test)]
mod tests;
