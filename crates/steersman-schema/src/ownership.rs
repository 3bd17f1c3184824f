//! Sets of fields, and the managers that own them.

pub mod fields;
pub(crate) mod lists;
pub mod managed;
