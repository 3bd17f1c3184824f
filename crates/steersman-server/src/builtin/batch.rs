//! Jobs, which end, and CronJobs, which begin them by the clock.

pub(crate) mod cron_job;
pub(crate) mod job;

mod policy;
