//! Topology hints: which zone or node should use which endpoint.
//!
//! There are two methods. With `trafficDistribution`, each endpoint is used where it is: upstream's
//! `k8s.io/endpointslice/trafficdist`. With the older annotation `service.kubernetes.io/topology-mode`, the endpoints
//! of a Service are divided among the zones by their CPUs: upstream's `topologycache`.

use crate::loops::network::endpoint_slices::topology::{self, Refusal, Zones};
use crate::shared::note::Note;
use hashbrown::HashSet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForNode, ForZone};
use std::sync::Arc;
use steersman::events::EventType;

/// The slices of one family that get hints. Unchanged slices become updates if their hints change.
pub(crate) struct Hints {
    pub(crate) create: Vec<EndpointSlice>,
    pub(crate) update: Vec<EndpointSlice>,
    pub(crate) unchanged: Vec<Arc<EndpointSlice>>,
}

/// The input of hints besides the Service.
pub(crate) struct Hinting<'a> {
    /// The share of each zone in the CPUs; `None` if too little is known of the nodes.
    pub(crate) zones: Option<Zones>,
    /// The address families in which the Service's endpoints were divided among zones before.
    pub(crate) divided: &'a mut HashSet<String>,
}

/// Where an endpoint should be used according to `trafficDistribution`.
#[derive(Clone, Copy)]
enum Prefer {
    SameNode,
    SameZone,
}

// === impl Hinting ===

impl Hinting<'_> {
    /// Forgets a family of which the Service has no endpoints any more.
    pub(crate) fn forget(&mut self, family: &str) {
        self.divided.remove(family);
    }

    /// Sets or removes the hints of slices.
    pub(crate) fn apply(&mut self, service: &Service, family: &str, slices: &mut Hints, notes: &mut Vec<Note>) {
        if is_divided(service) {
            match topology::divide(self.zones.as_ref(), slices) {
                Ok(()) => {
                    if self.divided.is_empty() {
                        notes.push(note(EventType::Normal, "Topology Aware Hints has been enabled", family));
                    }
                    self.divided.insert(family.to_owned());
                }
                Err(Refusal(message)) => {
                    notes.push(note(EventType::Warning, &message, family));
                    self.divided.clear();
                    slices.remove();
                }
            }
            return;
        }
        if !self.divided.is_empty() {
            notes.push(note(EventType::Warning, "Topology Aware Hints has been disabled", family));
            self.divided.clear();
        }
        match prefer(service) {
            Some(prefer) => slices.keep_close(prefer),
            None => slices.remove(),
        }
    }
}

/// Whether the annotation asks for endpoints to be divided among zones.
pub(crate) fn is_divided(service: &Service) -> bool {
    let annotation = |name: &str| service.metadata.annotations.as_ref()?.get(name);
    let value = annotation("service.kubernetes.io/topology-aware-hints")
        .or_else(|| annotation("service.kubernetes.io/topology-mode"));
    value.is_some_and(|value| value == "Auto" || value == "auto")
}

fn prefer(service: &Service) -> Option<Prefer> {
    match service.spec.as_ref()?.traffic_distribution.as_deref()? {
        "PreferClose" | "PreferSameZone" => Some(Prefer::SameZone),
        "PreferSameNode" => Some(Prefer::SameNode),
        _ => None,
    }
}

pub(crate) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true)
}

fn endpoints(slice: &EndpointSlice) -> &[Endpoint] {
    slice.endpoints.as_deref().unwrap_or_default()
}

// === impl Hints ===

impl Hints {
    /// Moves unchanged slices that need an update to the updates.
    pub(crate) fn touch(&mut self, mut needs_update: impl FnMut(&EndpointSlice) -> bool) {
        let (touched, unchanged) = self.unchanged.drain(..).partition(|slice| needs_update(slice));
        let touched: Vec<Arc<EndpointSlice>> = touched;
        self.update.extend(touched.into_iter().map(Arc::unwrap_or_clone));
        self.unchanged = unchanged;
    }

    /// The endpoints of the slices to write.
    pub(crate) fn written(&mut self) -> impl Iterator<Item = &mut Endpoint> {
        let slices = self.create.iter_mut().chain(&mut self.update);
        slices.flat_map(|slice| slice.endpoints.iter_mut().flatten())
    }

    fn remove(&mut self) {
        self.touch(|slice| endpoints(slice).iter().any(|endpoint| endpoint.hints.is_some()));
        self.written().for_each(|endpoint| endpoint.hints = None);
    }

    fn keep_close(&mut self, prefer: Prefer) {
        let differs = |endpoint: &Endpoint| {
            let (wanted, present) = (close(endpoint, prefer), endpoint.hints.clone());
            let lists = |hints: Option<EndpointHints>| {
                let hints = hints.unwrap_or_default();
                (hints.for_zones.unwrap_or_default(), hints.for_nodes.unwrap_or_default())
            };
            is_ready(endpoint) && lists(wanted) != lists(present)
        };
        self.touch(|slice| endpoints(slice).iter().any(differs));
        for endpoint in self.written().filter(|endpoint| is_ready(endpoint)) {
            endpoint.hints = close(endpoint, prefer);
        }
    }
}

fn close(endpoint: &Endpoint, prefer: Prefer) -> Option<EndpointHints> {
    let for_zones = endpoint.zone.as_ref().map(|zone| vec![ForZone { name: zone.clone() }]);
    let node = endpoint.node_name.as_ref().filter(|_| matches!(prefer, Prefer::SameNode));
    let for_nodes = node.map(|node| vec![ForNode { name: node.clone() }]);
    (for_zones.is_some() || for_nodes.is_some()).then_some(EndpointHints { for_nodes, for_zones })
}

/// The Event about the hints of a Service.
fn note(type_: EventType, message: &str, family: &str) -> Note {
    let reason = match type_ {
        EventType::Normal => "TopologyAwareHintsEnabled",
        EventType::Warning => "TopologyAwareHintsDisabled",
    };
    Note { type_, reason, text: format!("{message}, addressType: {family}") }
}
