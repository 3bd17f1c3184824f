//! Replaces the metrics where the feature `metrics` is off: nothing is collected, so that the code that reports is the
//! same with the feature and without.

use std::sync::Arc;

use crate::cache::factory::InformerFactory;
use crate::control::controller::stats::ControllerStats;
use crate::control::queue::{Key, WorkQueue};
#[cfg(feature = "election")]
use crate::leadership::election::Leadership;

/// Metrics without content.
#[derive(Clone, Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn observe_queue<T: Key>(&self, _: &WorkQueue<T>) {}

    #[cfg(feature = "election")]
    pub(crate) fn observe_leadership(&self, _: &Arc<Leadership>) {}

    #[cfg(feature = "shard")]
    pub(crate) fn observe_shards(&self, _: &crate::leadership::shard::Shards) {}

    pub(crate) fn observe_informers(&self, _: &str, _: &InformerFactory) {}

    pub(crate) fn observe_controller(&self, _: &str, _: usize, _: &Arc<ControllerStats>) {}
}
