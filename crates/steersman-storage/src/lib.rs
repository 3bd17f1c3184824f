//! Durable, revisioned key-value storage, the objects over it, and the watch cache.
