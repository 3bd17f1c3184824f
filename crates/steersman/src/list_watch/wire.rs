//! The byte path: from response chunks to single JSON objects, without a string per line and without ever holding a
//! whole list.
//!
//! Pure functions and push parsers over bytes. [`lines`] frames a watch, [`list`] cuts a list into its items, [`scan`]
//! finds and removes members before anything is decoded, [`meta`] finds name, uid and version of an object, [`event`]
//! parses a watch event. Nothing here waits, logs or depends on a Kubernetes type.

pub(crate) mod event;
pub(crate) mod lines;
pub(crate) mod list;
pub(crate) mod meta;
pub(crate) mod scan;

/// The largest single object that is read, in bytes. Servers refuse far smaller ones (etcd: 1.5 MB by default); this
/// only keeps a broken peer from growing our buffers for ever.
pub(crate) const OBJECT_BYTES_MAX: usize = 32 << 20;

/// A single object is larger than [`OBJECT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("one object of the answer is larger than {OBJECT_BYTES_MAX} bytes")]
pub(crate) struct TooLarge;
