//! The data types of libraries, apart from the functions that expressions call on them.

pub(crate) mod address;
pub(crate) mod authorizer;
pub(crate) mod cidr;
pub(crate) mod named_format;
pub(crate) mod quantity;
pub(crate) mod semver;
pub(crate) mod time;
pub(crate) mod url;
