//! The name of this host.

/// The name that the system has for this host.
pub(crate) fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
