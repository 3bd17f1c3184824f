//! Control loops on a whole control plane: the server in this process, the loops that a test names, and their effects.

#[cfg(test)]
mod documents;
#[cfg(test)]
mod endpoints;
#[cfg(test)]
mod namespaces;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod service_cidrs;
#[cfg(test)]
mod support;
#[cfg(test)]
mod volumes;
#[cfg(test)]
mod workloads;
