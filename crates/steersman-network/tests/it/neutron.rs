//! A project of its own in a real Neutron, for each test that asks.

#[expect(dead_code, reason = "the tests of the client itself need more of it")]
#[path = "../../../steersman-neutron/tests/it/neutron.rs"]
mod server;

use std::sync::Arc;
use steersman_neutron::Cloud;
use steersman_neutron::config::Limits;

/// What the credentials may do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// Everything, in all projects.
    Admin,
    Member,
}

/// The cloud of a project that no other test uses; none, said loudly, where there is no Neutron.
pub(crate) fn cloud(role: Role) -> Option<Arc<dyn Cloud>> {
    let roles: &[&str] = match role {
        Role::Admin => &["admin", "member", "reader"],
        Role::Member => &["member", "reader"],
    };
    let identity = server::identity(&server::fresh_project(), roles);
    Some(Arc::new(server::headers()?.client_with(identity, Limits::default())))
}
