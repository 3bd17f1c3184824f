//! What the schema crate promises, held against the recorded answers.
