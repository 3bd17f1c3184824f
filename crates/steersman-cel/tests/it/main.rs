//! Expressions from text to value: against recordings of a real API server, and against what may go wrong.

mod celgo;
mod hostile;
mod properties;
mod recordings;
mod values;
