//! Jobs, which run to completion, and CronJobs, which create them on a schedule.

pub(crate) mod cron_job;
pub(crate) mod job;

mod policy;
