//! How many proxies have what a route says.

use std::collections::HashMap;
use std::sync::Arc;

use steersman_xds::{Kind, View};

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
    /// Names and words of the resources that a proxy refuses; such a proxy is a group of its own.
    refused: Vec<(Arc<str>, Arc<str>)>,
    pod: String,
}

impl Tallies {
    pub(crate) fn of(standings: &[Standing]) -> Tallies {
        let mut groups: Vec<Group> = Vec::new();
        let mut known: HashMap<(*const View, Option<*const View>), usize> = HashMap::new();
        for standing in standings {
            let report = standing.report.as_ref();
            let settled = report.and_then(|report| report.settled.clone());
            let rejections = report.map(|report| report.rejections.as_ref()).unwrap_or_default();
            let key = (Arc::as_ptr(&standing.wanted), settled.as_ref().map(Arc::as_ptr));
            if let Some(place) = known.get(&key).filter(|_| rejections.is_empty()) {
                groups[*place].n_proxies += 1;
                continue;
            }
            if rejections.is_empty() {
                known.insert(key, groups.len());
            }
            let refused = rejections.iter().map(|one| (Arc::clone(one.resource.name()), Arc::clone(&one.error)));
            groups.push(Group {
                wanted: Arc::clone(&standing.wanted),
                settled,
                n_proxies: 1,
                refused: refused.collect(),
                pod: standing.pod.key.to_string(),
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
                    let error = error.chars().take(ERROR_MAX).collect();
                    tally.refusal.get_or_insert_with(|| (group.pod.clone(), error));
                }
                None if is_settled => tally.n_in_force += group.n_proxies,
                None => {}
            }
        }
        tally
    }
}
