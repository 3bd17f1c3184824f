//! Data computed from the containers of a pod: its total resources, and its quality of service class.

pub mod qos;
pub mod totals;
