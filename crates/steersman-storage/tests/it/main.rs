//! The store at its boundary: the contract of the engines, the objects against a model, crashes, and concurrent
//! writers.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod crash;
mod damage;
mod engines;
mod faulty;
mod interests;
mod model;
mod objects;
mod rot;
mod shared_engine;
mod stress;
