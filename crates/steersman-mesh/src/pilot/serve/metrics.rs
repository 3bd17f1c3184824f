//! The pilot's metrics, besides those of every manager.

use std::fmt;
use std::sync::{Arc, Weak};

use steersman::metrics::Metrics;
use steersman::metrics::prometheus_client::collector::Collector;
use steersman::metrics::prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use steersman::metrics::prometheus_client::metrics::counter::ConstCounter;
use steersman::metrics::prometheus_client::metrics::gauge::ConstGauge;

use crate::pilot::proxies::Proxies;

/// Counts the proxies when somebody asks.
struct Counted(Weak<Proxies>);

/// Registers the metrics with those of a manager.
pub(crate) fn register(metrics: &Metrics, proxies: &Arc<Proxies>) {
    let counted = Counted(Arc::downgrade(proxies));
    metrics.register(|registry| registry.register_collector(Box::new(counted)));
}

impl Collector for Counted {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(proxies) = self.0.upgrade() else { return Ok(()) };
        let standings = proxies.standings();
        let number = |count: usize| ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
        let n_settled = standings.iter().filter(|standing| standing.is_settled()).count();
        let n_rejections = standings
            .iter()
            .filter_map(|standing| standing.report.as_ref())
            .map(|report| report.rejections.len())
            .sum();
        let n_routes = proxies.snapshot().map_or(0, |snapshot| snapshot.world.verdicts.len());
        let (n_views, n_made) = proxies.views();
        let gauges = [
            ("mesh_pilot_proxies", "Proxies that are connected", standings.len()),
            ("mesh_pilot_proxies_settled", "Of these, proxies that have everything they should have", n_settled),
            ("mesh_pilot_rejections", "Resources that a proxy refuses", n_rejections),
            ("mesh_pilot_views", "Groups of proxies with the same scope", n_views),
            ("mesh_pilot_routes", "Routes with a Service among their parents", n_routes),
        ];
        for (name, help, count) in gauges {
            let gauge = number(count);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let help = "Views that were made, of which each is shared by all proxies with the same scope";
        let made = ConstCounter::new(n_made);
        made.encode(encoder.encode_descriptor("mesh_pilot_views_made", help, None, made.metric_type())?)
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}
