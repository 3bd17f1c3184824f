//! Lookups by index compared with a `HashMap` of the same objects, and nothing else.
//!
//! 20,000 objects under 1,000 values. Both return the objects as `Vec<Arc<_>>`. Each is measured in many short turns,
//! alternating, and the fastest turn counts, so that other load on the machine affects neither.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steersman::cache::Indexer;
use steersman::reflector::{Delta, Entry};
use steersman::{LookupError, ObjectKey, Scope, index_by};
use tokio::time::Instant;

const OBJECTS: usize = 20_000;
const VALUES: usize = 1_000;
const TURNS: usize = 40;
const TURN: Duration = Duration::from_millis(20);

fn main() -> Result<(), LookupError> {
    let objects: Vec<Arc<ConfigMap>> = (0..OBJECTS).map(object).collect();
    let values: Vec<String> = (0..VALUES).map(value).collect();
    let mut by_value: HashMap<String, Vec<Arc<ConfigMap>>> = HashMap::new();
    for (number, object) in objects.iter().enumerate() {
        by_value.entry(value(number)).or_default().push(Arc::clone(object));
    }
    let indexer = Indexer::new();
    let by_app = indexer.add_metadata_index(index_by::label("app"));
    let added = |object: Arc<ConfigMap>| Delta::Added(Entry { key: ObjectKey::of(&*object), object: object.into() });
    let listed = Delta::ListEnded { scope: Scope::All, resource_version: OBJECTS.to_string() };
    let mut deltas = std::iter::once(Delta::ListBegun { scope: Scope::All })
        .chain(objects.into_iter().map(added))
        .chain([listed])
        .collect();
    indexer.apply(&mut deltas, &mut Vec::new());

    let mut of_map = Fastest::default();
    let mut of_index = Fastest::default();
    let mut of_keys = Fastest::default();
    for _ in 0..TURNS {
        of_map.turn(&values, |value| by_value.get(value).cloned().map_or(0, |found| found.len()));
        of_index.turn(&values, |value| by_app.get(value).map_or(0, |found| found.len()));
        of_keys.turn(&values, |value| by_app.keys(value).map_or(0, |found| found.len()));
    }
    for (what, fastest) in [("HashMap", &of_map), ("objects by index", &of_index), ("keys by index", &of_keys)] {
        let (nanoseconds, times) = (fastest.0 * 1e9, fastest.0 / of_map.0);
        println!("{what}: {nanoseconds:.0} ns for {} objects, {times:.2} times the HashMap", OBJECTS / VALUES);
    }
    Ok(())
}

/// Seconds of a lookup in the fastest turn.
struct Fastest(f64);

impl Default for Fastest {
    fn default() -> Self {
        Self(f64::INFINITY)
    }
}

impl Fastest {
    /// Looks values up for [`TURN`]; each lookup must find all objects of its value.
    fn turn(&mut self, values: &[String], lookup: impl Fn(&str) -> usize) {
        let (started, mut n_lookups) = (Instant::now(), 0_u32);
        while started.elapsed() < TURN {
            for value in values {
                assert_eq!(black_box(lookup(black_box(value))), OBJECTS / VALUES, "{value}");
                n_lookups += 1;
            }
        }
        self.0 = self.0.min(started.elapsed().as_secs_f64() / f64::from(n_lookups));
    }
}

fn value(number: usize) -> String {
    format!("app-{:04}", number % VALUES)
}

fn object(number: usize) -> Arc<ConfigMap> {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("default".to_owned());
    object.metadata.name = Some(format!("object-{number}"));
    object.metadata.resource_version = Some((number + 1).to_string());
    object.metadata.labels = Some([("app".to_owned(), value(number))].into());
    Arc::new(object)
}
