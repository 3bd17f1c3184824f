//! Formats of strings: quantities, durations, times, schedules, selectors.

pub mod cron;
pub mod duration;
pub mod quantity;
pub mod selector;
pub mod time;
