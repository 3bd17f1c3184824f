//! What routes and Pods are told: conditions, written only when they change.

mod parents;
mod pods;
mod routes;
mod tally;

pub(crate) use crate::pilot::status::parents::{CONTROLLER, ours};
pub(crate) use crate::pilot::status::pods::PodConditions;
pub(crate) use crate::pilot::status::routes::RouteStatuses;
pub(crate) use crate::pilot::status::tally::{Tallies, Tally};
