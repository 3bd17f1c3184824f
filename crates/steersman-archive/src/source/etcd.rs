//! Snapshots of etcd: of a kube-apiserver, whose keys are below `/registry` or, in OpenShift, below `/kubernetes.io`, and of a server of
//! Steersman.

use crate::error::OpenError;
use crate::logs::Logs;
use crate::source::{Found, Source, Stored};
use std::path::Path;
use std::sync::Arc;
use steersman_machinery::Revision;
use steersman_storage::kv::Entry;
use steersman_storage_etcd::{Keys, REGISTRY_PREFIX, STEERSMAN_PREFIX, State, StateObjects};
use steersman_storage_kubernetes as kubernetes;

/// The prefix of OpenShift's kube-apiserver, and that of the server beside it for OpenShift's own kinds.
const OPENSHIFT_KUBERNETES: &str = "/kubernetes.io";
const OPENSHIFT: &str = "/openshift.io";

pub(super) fn read(path: &Path, at: Option<Revision>) -> Result<Source, OpenError> {
    let mut state = State::read(path, at)?;
    let registry = Keys::Registry(Arc::new(kubernetes::keys()));
    let (mut entries, mut foreign, mut revision) = (Vec::new(), Vec::new(), state.at);
    for (prefix, keys) in [
        (STEERSMAN_PREFIX, &Keys::Steersman),
        (REGISTRY_PREFIX, &registry),
        (OPENSHIFT_KUBERNETES, &registry),
        (OPENSHIFT, &registry),
    ] {
        let StateObjects { entries: found, foreign: others, shift } = state.objects(prefix, keys);
        entries.extend(found);
        foreign.extend(others.into_iter().filter_map(|entry| behind(prefix, entry)));
        revision = revision.max(Revision(state.at.0.saturating_add(shift)));
    }
    if entries.is_empty() && foreign.is_empty() {
        return Err(OpenError::NoObjects { path: path.to_owned() });
    }
    let note = state.is_unsigned.then(|| {
        "it has no checksum, as a copy of the file of an etcd: if that etcd was running, the copy may be torn"
            .to_owned()
    });
    Ok(Source {
        format: "a snapshot of etcd",
        found: Found::Stored(Stored { entries, foreign, revision }),
        logs: Logs::default(),
        history: Some((state.oldest, state.newest)),
        notes: note.into_iter().collect(),
    })
}

/// An entry under its key without the prefix.
fn behind(prefix: &str, entry: Entry) -> Option<Entry> {
    let at = prefix.len() + 1;
    (at <= entry.key.len()).then(|| Entry { key: entry.key.slice(at..), ..entry })
}
