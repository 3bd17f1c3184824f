//! Every write on every kind: one loop that makes the new object from the one that is there and stores it.
//!
//! The stages of a write and the forms an object takes in them are described in [`crate::strategy`]; what is particular
//! about a kind is asked of its [`Strategy`](crate::strategy::Strategy), never decided here. Nothing here knows of HTTP: an
//! endpoint has read the request, and makes an answer of the [`Outcome`].

mod allocation;
mod commit;
mod create;
mod current;
mod decode;
mod delete;
mod identity;
mod managed;
mod metadata;
mod patch;
mod plan;
mod update;
mod write;

pub(crate) use self::allocation::observe;
pub(crate) use self::commit::Outcome;
pub(crate) use self::current::Current;
pub(crate) use self::decode::{Body, decode, parse};
pub(crate) use self::delete::is_done_waiting;
pub(crate) use self::identity::{check_given_name, check_name, set_namespace};
pub(crate) use self::managed::record;
pub(crate) use self::metadata::text;
pub(crate) use self::patch::{Format, Patch};
pub(crate) use self::write::{Change, write};
