//! The times at which the schedules of CronJobs changed, as far as the change was observed.
//!
//! Times of a new schedule that had passed before the change are not made up for. The object does not record when its
//! schedule changed, so it is kept in memory. After a start nothing is known, and all times since the last Job count.

use hashbrown::HashMap;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::CronJob;
use parking_lot::Mutex;
use steersman::ObjectKey;

/// Bounded by the number of CronJobs.
#[derive(Default)]
pub(crate) struct Changes(Mutex<HashMap<ObjectKey, KnownSchedule>>);

struct KnownSchedule {
    uid: Option<String>,
    schedule: String,
    time_zone: Option<String>,
    changed: Option<Timestamp>,
}

impl Changes {
    /// When the CronJob got its schedule in place of another one, and whether the change is new.
    pub(crate) fn last(&self, key: &ObjectKey, cron_job: &CronJob, now: Timestamp) -> (Option<Timestamp>, bool) {
        let mut all = self.0.lock();
        let known = all.get(key).filter(|known| known.uid == cron_job.metadata.uid);
        let is_same = |known: &KnownSchedule| {
            known.schedule == cron_job.spec.schedule && known.time_zone == cron_job.spec.time_zone
        };
        let (changed, is_new) = match known {
            Some(known) if is_same(known) => return (known.changed, false),
            Some(_) => (Some(now), true),
            None => (None, false),
        };
        let known = KnownSchedule {
            uid: cron_job.metadata.uid.clone(),
            schedule: cron_job.spec.schedule.clone(),
            time_zone: cron_job.spec.time_zone.clone(),
            changed,
        };
        all.insert(key.clone(), known);
        (changed, is_new)
    }

    /// Forgets a CronJob that is gone.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_remembered_for_the_object_that_had_another_schedule_before() {
        let (changes, key) = (Changes::default(), ObjectKey::namespaced("n", "c"));
        let cron_job = |uid: &str, schedule: &str| {
            let mut cron_job = CronJob::default();
            cron_job.metadata.uid = Some(uid.to_owned());
            cron_job.spec.schedule = schedule.to_owned();
            cron_job
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(changes.last(&key, &cron_job("a", "@daily"), at(1)), (None, false));
        assert_eq!(changes.last(&key, &cron_job("a", "@hourly"), at(2)), (Some(at(2)), true));
        assert_eq!(changes.last(&key, &cron_job("a", "@hourly"), at(3)), (Some(at(2)), false));
        assert_eq!(changes.last(&key, &cron_job("b", "@daily"), at(4)), (None, false));
        changes.forget(&key);
        assert!(changes.0.lock().is_empty());
    }
}
