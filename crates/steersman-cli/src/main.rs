//! The steersman binary.
fn main() {}
