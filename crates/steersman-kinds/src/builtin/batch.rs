//! Jobs, which end, and CronJobs, which begin them by the clock.

pub mod cron_job;
pub mod job;

mod policy;
