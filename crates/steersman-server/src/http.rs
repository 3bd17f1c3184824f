//! HTTP: the chain of a request, its endpoint, and the answer.

pub(crate) mod answer;
pub(crate) mod chain;
/// Documents about the server itself: backups, discovery, OpenAPI, health, version.
pub(crate) mod documents {
    pub(crate) mod backup;
    pub mod discovery;
    pub(crate) mod health;
    pub mod openapi;
    pub(crate) mod published;
    pub mod version;
}
pub(crate) mod endpoint;
pub(crate) mod flowcontrol;
pub(crate) mod limits;
pub(crate) mod passing;
pub(crate) mod representation;
pub(crate) mod route;
pub(crate) mod service;
pub(crate) mod timeouts;
pub(crate) mod web;
