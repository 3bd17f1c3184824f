//! Which providers a storage key has.
//!
//! The most specific rule holds, wherever it stands in the file: the resource, all of its group, all. A resource without
//! a rule is stored as it is; an encrypted value found there cannot be read.

use crate::chain::{Chain, Link};
use std::collections::HashMap;
use std::fmt;

/// The group of entries that are no objects of the API: the keys of ServiceAccount tokens, and the CA. They are as secret as Secrets.
const OWN_GROUP: &str = "steersman";
const ANY: &str = "*";

/// A resource of a group; either may be `*`.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Named {
    pub(crate) group: String,
    pub(crate) resource: String,
}

#[derive(Debug)]
pub(crate) struct Rules {
    by_group: HashMap<String, HashMap<String, Chain>>,
    plain: Chain,
}

impl Named {
    /// Reads `resource` or `resource.group`.
    pub(crate) fn parse(text: &str) -> Named {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Named { group: group.to_owned(), resource: resource.to_owned() }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.resource, &*self.group) {
            (ANY, "") => f.write_str("*."),
            (resource, "") => f.write_str(resource),
            (resource, group) => write!(f, "{resource}.{group}"),
        }
    }
}

impl Rules {
    pub(crate) fn new() -> Rules {
        let mut plain = Chain::default();
        plain.extend(&[Link::Identity]);
        Rules { by_group: HashMap::new(), plain }
    }

    /// Adds the providers of an entry to those of a resource.
    ///
    /// # Errors
    /// With the earlier rule that leaves no value to this one.
    pub(crate) fn add(&mut self, named: &Named, links: &[Link]) -> Result<(), Named> {
        for (group, resource) in [(&*named.group, ANY), (ANY, ANY)] {
            if self.chain(group, resource).is_some() {
                return Err(Named { group: group.to_owned(), resource: resource.to_owned() });
            }
        }
        let resources = self.by_group.entry(named.group.clone()).or_default();
        resources.entry(named.resource.clone()).or_default().extend(links);
        Ok(())
    }

    fn chain(&self, group: &str, resource: &str) -> Option<&Chain> {
        self.by_group.get(group)?.get(resource)
    }

    /// The providers of a key of the form `group/resource/key`. Other keys are of no resource.
    pub(crate) fn of(&self, key: &[u8]) -> &Chain {
        let Some((group, resource)) = resource(key) else { return &self.plain };
        let (group, resource) = if group == OWN_GROUP { ("", "secrets") } else { (group, resource) };
        let found = self.chain(group, resource).or_else(|| self.chain(group, ANY)).or_else(|| self.chain(ANY, ANY));
        found.unwrap_or(&self.plain)
    }
}

fn resource(key: &[u8]) -> Option<(&str, &str)> {
    let (group, rest) = std::str::from_utf8(key).ok()?.split_once('/')?;
    let (resource, _) = rest.split_once('/')?;
    Some((group, resource))
}
