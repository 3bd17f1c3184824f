//! Controllers and managers.

pub(crate) mod clusters;
pub(crate) mod consistency;
pub(crate) mod controller;
pub(crate) mod errors;
pub(crate) mod manager;
pub(crate) mod parallel;
pub(crate) mod sources;
