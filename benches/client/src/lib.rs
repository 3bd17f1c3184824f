//! The parts of a load client that do not depend on what it measures: the server of a kubeconfig, requests to it as
//! bytes, and the resources of processes.

pub mod kubeconfig;
pub mod process;
pub mod target;
pub mod wire;
