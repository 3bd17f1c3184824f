//! Schedules of CronJobs, durations, and the order of versions in discovery, which is a total order.

use steersman_machinery::{cron, duration};
use steersman_server::fuzzing;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = cron::split_zone(text);
    let _ = cron::parse(text);
    let _ = duration::parse(text);
    let _ = duration::parse_lenient(text);
    let words: Vec<&str> = text.split_whitespace().take(3).collect();
    for a in &words {
        for b in &words {
            let order = fuzzing::compare_versions(a, b);
            assert_eq!(order, fuzzing::compare_versions(b, a).reverse(), "{a:?} {b:?}");
            for c in &words {
                if order.is_le() && fuzzing::compare_versions(b, c).is_le() {
                    assert!(fuzzing::compare_versions(a, c).is_le(), "{a:?} {b:?} {c:?}");
                }
            }
        }
    }
}
