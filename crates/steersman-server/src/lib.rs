//! A Kubernetes-compatible API server as a tower service.
