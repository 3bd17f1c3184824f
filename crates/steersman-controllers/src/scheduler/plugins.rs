//! The conditions of placement that upstream's scheduler has as plugins.

pub(crate) mod affinity;
pub(crate) mod filters;
pub(crate) mod resources;
pub(crate) mod spread;
pub(crate) mod taints;
pub(crate) mod volumes;
