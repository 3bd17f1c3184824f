//! The resources of Neutron, as requests and answers have them.

pub(crate) mod address;
pub(crate) mod id;
pub(crate) mod network;
pub(crate) mod subnet;
pub(crate) mod text;
