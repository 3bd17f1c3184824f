//! The requests that both servers are sent.

pub(crate) mod case;
pub(crate) mod generate;
pub(crate) mod kind;
pub(crate) mod mutation;
pub(crate) mod schema;
pub(crate) mod seeds;
