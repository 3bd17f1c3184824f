//! The built `steersman` binary, tested end to end with its users' tools: stock kubectl, curl, signals, a real Neutron.
//!
//! kubectl is `$KUBECTL`, else `$KUBECTL_1_35`, else the one on PATH; Neutron is installed in `$NEUTRON_VENV`. `cargo
//! xtask test` provides both, and so does `eval "$(cargo xtask tools)"`. A test without its real component says so on
//! standard error, and fails where `CI` is set.

#[cfg(test)]
mod durability;
#[cfg(test)]
mod running;
#[cfg(test)]
mod scenes;
#[cfg(test)]
mod security;
#[cfg(test)]
mod support;

#[cfg(test)]
mod campaign;
#[cfg(test)]
mod codegen;
#[cfg(test)]
mod controller;
#[cfg(test)]
mod envtest;
