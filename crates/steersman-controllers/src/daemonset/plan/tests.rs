//! Plans of DaemonSets.
