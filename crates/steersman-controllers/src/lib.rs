//! The control loops of a Kubernetes control plane.
//!
//! They depend on no server and no store: they access everything through a `kube::Client`, and use only parts of the
//! controller library that a user's controller can use too. [`ControlLoop`] is the table of them.

mod control_loop;
mod identity;
pub mod kubelet;
mod loops;
pub mod scheduler;
mod settings;
mod shared;

pub use crate::control_loop::{Activation, ControlLoop};
pub use crate::identity::Identity;
pub use crate::loops::access::certificates;
pub use crate::settings::{Parts, Settings};
