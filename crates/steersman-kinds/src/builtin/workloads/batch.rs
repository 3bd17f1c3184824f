//! Jobs, which run to completion, and CronJobs, which create them on a schedule.

pub mod cron_job;
pub mod job;

mod policy;
