//! Users: who they are, what they may do, and what is recorded of them.

pub(crate) mod access;
pub(crate) mod audit;
pub(crate) mod certificates;
pub(crate) mod reviews;
pub(crate) mod roles;
pub(crate) mod tokens;
pub(crate) mod watch_permission;
pub(crate) mod webhooks;
