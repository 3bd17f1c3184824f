//! The kinds of a Kubernetes API server, as data and pure functions: which resources there are, and how their objects are decoded,
//! defaulted, validated, converted and printed.
//!
//! ```text
//! catalog    -> the resources that a server serves, with their versions, names and verbs
//! strategy   -> the stages of a write and of an answer that differ from kind to kind
//! builtin    -> the kinds of Kubernetes itself: a row each, and functions for what a row cannot say
//! crd        -> CustomResourceDefinitions, and the kinds that they define
//! protobuf   -> the second wire form of the built-in kinds
//! at_rest    -> the layout of an object in the store
//! ```
//!
//! Deliberately not here: requests, storage, tasks, clocks. Whatever a kind needs of them is passed in
//! ([`converter::Converter`], the current time), so that cargo enforces that this crate stays pure.

pub mod at_rest;
pub mod builtin;
pub mod catalog;
pub mod converter;
pub mod crd;
pub mod expressions;
pub mod projection;
pub mod protobuf;
pub mod runtime_config;
pub mod strategy;
pub mod user;
