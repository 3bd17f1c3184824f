//! The report on a stream.

use crate::kind::Kind;
use crate::report::{Hurried, Rejection, ResourceReport, Variant};
use crate::session::track::Has;
use crate::session::{Novelty, Session};
use crate::view::View;
use std::sync::Arc;

// === impl Session ===

impl Session {
    pub(crate) fn variant(&self) -> Variant {
        self.variant
    }

    /// A number that changes when a report would be different.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn view(&self) -> Option<&Arc<View>> {
        self.view.as_ref()
    }

    /// The newest view of which nothing is missing, or was when it was the newest.
    pub(crate) fn settled(&self) -> Option<&Arc<View>> {
        self.settled.as_ref()
    }

    pub(crate) fn rejections(&self) -> Arc<[Rejection]> {
        Kind::ALL.into_iter().flat_map(|kind| self.track(kind).rejections.values().cloned()).collect()
    }

    pub(crate) fn hurried(&self) -> Arc<[Hurried]> {
        self.hurried.values().cloned().collect()
    }

    /// Every resource that the proxy has, should have, or is being sent.
    pub(crate) fn resources(&self) -> Vec<ResourceReport> {
        let mut reports = Vec::new();
        for kind in Kind::ALL {
            let track = self.track(kind);
            let on_the_way = track.outstanding().map_or(&[][..], |outstanding| &outstanding.items);
            let set = self.view.as_ref().map(|view| view.set(kind));
            let wanted = set.into_iter().flat_map(|set| set.iter()).filter(|resource| track.wants(resource.name()));
            let mut names: Vec<_> = wanted.map(|resource| resource.name().clone()).collect();
            names.extend(track.entries.keys().cloned());
            names.sort_unstable();
            names.dedup();
            let mut sent = on_the_way.iter().filter(|item| item.novelty == Novelty::New).peekable();
            for name in names {
                // Both are sorted by name.
                while sent.next_if(|item| item.name < name).is_some() {}
                let item = sent.next_if(|item| item.name == name);
                let resource = set.and_then(|set| set.get(&name)).filter(|_| track.wants(&name));
                let in_force = track.entries.get(&name).and_then(|entry| match &entry.has {
                    Has::Nothing => None,
                    Has::Known(version) => Some(version.to_string()),
                    Has::Foreign(version) => Some(version.to_string()),
                    Has::Resource(resource) => Some(resource.version().to_string()),
                });
                reports.push(ResourceReport {
                    kind,
                    wanted: resource.map(|resource| resource.version()),
                    sent: item.and_then(|item| item.resource.as_ref()).map(|resource| resource.version()),
                    in_force,
                    rejected: track.rejections.get(&name).map(|rejection| rejection.resource.version()),
                    name,
                });
            }
        }
        reports
    }
}
