//! The commands of the binary, a module each.

pub(crate) mod cluster;
pub(crate) mod development;
pub(crate) mod drop_in;
pub(crate) mod forward;
pub(crate) mod mesh;
pub(crate) mod network;
pub(crate) mod node;
mod standalone;
pub(crate) mod store;
pub(crate) mod up;
