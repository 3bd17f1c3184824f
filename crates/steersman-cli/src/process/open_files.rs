//! The number of connections that the operating system lets this process hold.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use steersman_server::OUTGOING_STREAMS_MAX;

/// Open files other than connections of clients: the store, the log, the controllers' own sockets, and where streams of clients lead.
const OTHERS: u64 = 256 + OUTGOING_STREAMS_MAX as u64;

/// Raises the limit of open files as far as possible, for this many connections, and returns how many then have room.
///
/// Shells set a low limit for programs that use `select`; this one does not, and may use the hard limit, as Go programs
/// do.
pub(crate) fn room(connections_max: usize) -> usize {
    let wanted = u64::try_from(connections_max).unwrap_or(u64::MAX).saturating_add(OTHERS);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit }) {
            tracing::debug!(%error, "the limit on open files stays as it is");
        }
    }
    connections(getrlimit(Resource::Nofile).current, connections_max)
}

fn connections(files_max: Option<u64>, connections_max: usize) -> usize {
    let Some(files_max) = files_max else { return connections_max };
    // If even the other files do not fit, connections get half of the limit.
    let free = files_max.saturating_sub(OTHERS).max(files_max / 2).max(1);
    usize::try_from(free).unwrap_or(usize::MAX).min(connections_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_other_files() {
        for (files_max, want) in
            [(None, 1000), (Some(0), 1), (Some(100), 50), (Some(1024), 512), (Some(5000), 1000), (Some(u64::MAX), 1000)]
        {
            assert_eq!(connections(files_max, 1000), want, "{files_max:?}");
        }
    }
}
