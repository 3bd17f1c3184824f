//! The built `steersman` binary, tested end to end with its users' tools: stock kubectl, curl, signals, a real Neutron.
//!
//! kubectl is `$KUBECTL`, else `$KUBECTL_1_35`, else the one on PATH; Neutron is installed in `$NEUTRON_VENV`. `cargo
//! xtask test` provides both, and so does `eval "$(cargo xtask tools)"`. A test without its real component says so on
//! standard error, and fails where `CI` is set.

#[cfg(test)]
mod support;

#[cfg(test)]
mod authorization;
#[cfg(test)]
mod campaign;
#[cfg(test)]
mod certificates;
#[cfg(test)]
mod codegen;
#[cfg(test)]
mod controller;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod envtest;
#[cfg(test)]
mod etcd;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod initializers;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod oidc;
#[cfg(test)]
mod operation;
#[cfg(test)]
mod recovery;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod store;
mod streams;
#[cfg(test)]
mod tour;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod webhooks;
#[cfg(test)]
mod workloads;
