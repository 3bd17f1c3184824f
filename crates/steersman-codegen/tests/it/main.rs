//! Generated code, compiled and used: the definitions of other projects, whose objects must come through unchanged.

mod corpus;
mod project;
mod random;
mod samples;
