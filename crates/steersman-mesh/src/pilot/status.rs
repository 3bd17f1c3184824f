//! Conditions of routes and Pods, written only when they change.

mod parents;
mod pods;
mod routes;
mod tally;

pub(crate) use crate::pilot::status::parents::CONTROLLER;
pub(crate) use crate::pilot::status::pods::PodConditions;
pub(crate) use crate::pilot::status::routes::RouteStatuses;
pub(crate) use crate::pilot::status::tally::Tallies;
