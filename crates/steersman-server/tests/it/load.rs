//! Many requests, and requests that cost much.

pub(crate) mod budgets;
pub(crate) mod concurrency;
pub(crate) mod flow;
pub(crate) mod flowcontrol;
pub(crate) mod heavy;
pub(crate) mod unread;
