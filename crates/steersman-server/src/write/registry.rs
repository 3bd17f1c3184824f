//! Writes of every kind: one loop that computes the new object from the current one and stores it.
//!
//! [`crate::strategy`] describes the stages of a write and the forms of an object in them. Rules of a single kind are
//! in its [`Strategy`](crate::strategy::Strategy), never here. Nothing here depends on HTTP: an endpoint reads the
//! request, and turns the [`Outcome`] into an answer.

mod commit;
mod create;
mod current;
mod decode;
mod delete;
mod identity;
mod initialization;
mod judging;
mod managed;
mod metadata;
mod patch;
mod plan;
/// The rights that a write needs besides the permission for its verb.
mod rights {
    pub(super) mod admin_access;
    pub(super) mod escalation;
}
/// Addresses and ports of Services.
pub(crate) mod service_addresses {
    pub(crate) mod addresses;
    pub(crate) mod allocation;
    pub(crate) mod allocator;
    pub(crate) mod follower;
    pub(crate) mod node_ports;
    pub(crate) mod repair;
}
mod update;
mod write;

pub(crate) use self::commit::Outcome;
pub(crate) use self::current::Current;
pub(crate) use self::decode::{Body, decode, parse};
pub(crate) use self::delete::{check_preconditions, is_done_waiting};
pub(crate) use self::identity::{check_given_name, check_name, set_namespace};
pub(crate) use self::initialization::remove as remove_failed;
pub(crate) use self::managed::{apply, apply_scale, record};
pub(crate) use self::metadata::{text, validate_scale as validate_scale_metadata};
pub(crate) use self::patch::{Format, Patch};
pub(crate) use self::write::{Change, write};
