//! A project of its own in a real Neutron, for each test that needs one.

#[expect(dead_code, reason = "the tests of the client itself need more of it")]
#[path = "../../../steersman-neutron/tests/it/neutron.rs"]
mod server;

use serde_json::{Value, json};
use server::Server;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};
use steersman_neutron::Cloud;
use steersman_neutron::config::Limits;

/// The rights of the credentials.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// Everything, in all projects.
    Admin,
    Member,
}

/// A Neutron; `None`, with a message, where none is available.
pub(crate) fn one() -> Option<&'static Server> {
    server::headers()
}

/// Changes a project's quotas.
pub(crate) fn set_quota(server: &Server, project_id: &str, quota: &Value) {
    let address = server.url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    let body = json!({"quota": quota}).to_string();
    let length = body.len();
    write!(
        stream,
        "PUT /v2.0/quotas/{project_id} HTTP/1.0\r\nX-User-Id: tester\r\nX-Project-Id: admins\r\nX-Roles: admin,member,reader\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.lines().next().unwrap().contains(" 200 "), "{answer}");
}

/// Two Neutrons, started side by side; `None`, with a message, where they are not available.
pub(crate) fn two() -> Option<[&'static Server; 2]> {
    static SECOND: OnceLock<Option<Server>> = OnceLock::new();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| SECOND.get_or_init(|| server::start("headers")).as_ref());
        let first = server::headers();
        Some([first?, second.join().unwrap()?])
    })
}

/// The cloud of a project that no other test uses.
pub(crate) fn cloud_in(server: &Server, role: Role) -> Arc<dyn Cloud> {
    let roles: &[&str] = match role {
        Role::Admin => &["admin", "member", "reader"],
        Role::Member => &["member", "reader"],
    };
    let identity = server::identity(&server::fresh_project(), roles);
    Arc::new(server.client_with(identity, Limits::default()))
}
