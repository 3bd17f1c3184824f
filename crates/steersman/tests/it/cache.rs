//! Caches: how they are filled, read and followed.

pub(crate) mod compact;
pub(crate) mod converge;
pub(crate) mod dynamic;
pub(crate) mod informer;
pub(crate) mod reader;
pub(crate) mod reflector;
pub(crate) mod streams;
pub(crate) mod transform;
