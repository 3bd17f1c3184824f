//! Compares expressions with recordings of a real API server, and tests hostile ones.

mod celgo;
mod hostile;
mod properties;
mod recordings;
mod values;
