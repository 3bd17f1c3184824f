//! How many proxies have what a route says.

use std::collections::HashMap;
use std::sync::Arc;

use steersman::ObjectKey;
use steersman_xds::{Kind, Rejection, View};

use crate::pilot::proxies::Standing;
use crate::pilot::resources::EXPLICIT;
use crate::pilot::scope::Snapshot;
use crate::pilot::world::Attachment;

/// The most characters of a proxy's words that are shown.
const ERROR_MAX: usize = 500;

/// How many proxies have what a route says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tally {
    /// The proxies that should have it.
    pub(crate) n_proxies: usize,
    /// The proxies that have it.
    pub(crate) n_in_force: usize,
    /// The Pod of the first one that refuses it, and its words.
    pub(crate) refusal: Option<(String, String)>,
}

/// All proxies, those that stand alike together: there may be thousands of them and a handful of groups.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    wanted: Arc<View>,
    settled: Option<Arc<View>>,
    n_proxies: usize,
    /// Names and words of the resources that the proxies refuse.
    refused: Vec<(Arc<str>, Arc<str>)>,
    /// The first of its Pods.
    pod: String,
}

/// A proxy's Pod, the views that it should have and has, and what it refuses.
type Proxy<'s> = (&'s ObjectKey, &'s Arc<View>, Option<&'s Arc<View>>, &'s [Rejection]);

impl Tallies {
    pub(crate) fn of(standings: &[Standing]) -> Tallies {
        Tallies::grouped(standings.iter().map(|standing| {
            let report = standing.report.as_ref();
            let rejections = report.map(|report| report.rejections.as_ref()).unwrap_or_default();
            let settled = report.and_then(|report| report.settled.as_ref());
            (&standing.pod.key, &standing.wanted, settled, rejections)
        }))
    }

    /// Groups proxies by their views and by what they refuse in which words.
    fn grouped<'s>(proxies: impl Iterator<Item = Proxy<'s>>) -> Tallies {
        let mut groups: Vec<Group> = Vec::new();
        let mut known: HashMap<_, usize> = HashMap::new();
        for (pod, wanted, settled, rejections) in proxies {
            let refused: Vec<_> =
                rejections.iter().map(|one| (one.resource.name(), one.resource.version(), &one.error)).collect();
            let key = (Arc::as_ptr(wanted), settled.map(Arc::as_ptr), refused);
            if let Some(place) = known.get(&key) {
                groups[*place].n_proxies += 1;
                continue;
            }
            known.insert(key, groups.len());
            let refused = rejections.iter().map(|one| (Arc::clone(one.resource.name()), Arc::clone(&one.error)));
            groups.push(Group {
                wanted: Arc::clone(wanted),
                settled: settled.cloned(),
                n_proxies: 1,
                refused: refused.collect(),
                pod: pod.to_string(),
            });
        }
        Tallies { groups }
    }

    /// How many proxies have the routes of an attachment.
    pub(crate) fn count(&self, attachment: &Attachment, snapshot: &Snapshot) -> Tally {
        let consumer = attachment.consumer.as_deref();
        let routes: Vec<_> = attachment
            .ports
            .iter()
            .filter_map(|port| snapshot.routes(port, consumer))
            .map(|resource| (resource.name(), resource.version()))
            .collect();
        let mut tally = Tally::default();
        for group in &self.groups {
            let version = |view: &View, name: &str| view.get(Kind::Route, name).map(|resource| resource.version());
            // Clients with another table for a port, or without it, are none of this route's.
            let mine = |(name, wanted): &&(&Arc<str>, _)| version(&group.wanted, name) == Some(*wanted);
            let mut names: Vec<&str> = routes.iter().filter(mine).map(|(name, _)| &***name).collect();
            if names.is_empty() {
                continue;
            }
            if group.wanted.get(Kind::Route, EXPLICIT).is_some() {
                names.push(EXPLICIT);
            }
            tally.n_proxies += group.n_proxies;
            let refused = group.refused.iter().find(|(refused, _)| names.contains(&&**refused));
            let settled = group.settled.as_deref();
            let is_settled =
                names.iter().all(|name| settled.and_then(|view| version(view, name)) == version(&group.wanted, name));
            match refused {
                Some((_, error)) => {
                    let error = error.chars().take(ERROR_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
                    tally.refusal.get_or_insert_with(|| (group.pod.clone(), error));
                }
                None if is_settled => tally.n_in_force += group.n_proxies,
                None => {}
            }
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use steersman_xds::resources::RouteConfiguration;
    use steersman_xds::{Certainty, Resource};

    use super::*;

    #[test]
    fn a_thousand_equal_rejections_make_one_group() {
        let view = Arc::new(View::new());
        let refused = |words: &str| {
            let table = Resource::new(Kind::Route, "shop/web:80", &RouteConfiguration::default());
            let (error, at) = (words.into(), SystemTime::UNIX_EPOCH);
            vec![Rejection { resource: Arc::new(table), error, certainty: Certainty::Named, at }]
        };
        let mut proxies: Vec<(ObjectKey, Vec<Rejection>)> =
            (0..1_000).map(|n| (ObjectKey::namespaced("shop", &format!("p{n}")), refused("bad"))).collect();
        let groups = |proxies: &[(ObjectKey, Vec<Rejection>)]| {
            Tallies::grouped(proxies.iter().map(|(pod, refused)| (pod, &view, Some(&view), refused.as_slice()))).groups
        };
        let one = groups(&proxies);
        assert_eq!((one.len(), one[0].n_proxies, one[0].pod.as_str()), (1, 1_000, "shop/p0"));
        proxies.push((ObjectKey::namespaced("shop", "other"), refused("other words")));
        assert_eq!(groups(&proxies).len(), 2);
    }
}
