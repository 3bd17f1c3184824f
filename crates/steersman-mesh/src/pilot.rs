//! The pilot: what each proxy should have.

#[rustfmt::skip]
pub mod gateway_api;
pub mod resources;
pub mod scope;
pub mod world;
