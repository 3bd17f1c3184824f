//! What follows from the containers of a pod: what it asks for as a whole, and the quality of service that it is promised.

pub mod qos;
pub mod totals;
