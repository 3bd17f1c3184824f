//! The pilot against a control plane in the process of the test.

mod pilot;
