//! The library on a real server.

pub(crate) mod apply;
pub(crate) mod controller;
pub(crate) mod election;
pub(crate) mod events;
pub(crate) mod informer;
pub(crate) mod sharding;
pub(crate) mod sources;
pub(crate) mod writes;
