//! The library at its boundary: a scripted API server on one side, what users see on the other.
