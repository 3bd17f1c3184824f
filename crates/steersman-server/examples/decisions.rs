//! Measures decisions by roles with ten thousand bindings: `cargo run --release --example decisions`.
//!
//! A thousand users, each with bindings in ten namespaces, beside the roles and bindings of the system.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use steersman_server::authz::{Attributes, Authorizer, ResourceAttributes};
use steersman_server::user::User;
use steersman_server::{Options, Server};
use steersman_storage::{Memory, Store};
use tokio::time::Instant;
use tower::ServiceExt as _;

const USERS: u32 = 1_000;
const NAMESPACES: u32 = 10;
const DECISIONS: u32 = 1_000_000;

#[tokio::main(flavor = "multi_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Store::open(Arc::new(Memory::new()), steersman_storage::Options::default()).await?;
    let begun = Instant::now();
    let server = Server::start(Options::new(store));
    let server = server.await?;
    println!("start of an empty server  {:>8.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    for number in 0..NAMESPACES {
        let namespace = json!({"metadata": {"name": format!("n{number}")}});
        post(&server, "/api/v1/namespaces", namespace).await?;
    }
    let begun = Instant::now();
    for user in 0..USERS {
        for namespace in 0..NAMESPACES {
            let role = ["admin", "edit", "view"][(user % 3) as usize];
            let binding = json!({
                "metadata": {"name": format!("b{user}")},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": format!("user{user}")}, {"kind": "Group", "name": format!("team{user}")}],
            });
            let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/n{namespace}/rolebindings");
            post(&server, &path, binding).await?;
        }
    }
    println!(
        "a binding, in force       {:>8.1} us",
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(USERS * NAMESPACES)
    );
    let authorizer = server.authorizer();
    let groups = ["team7", "a", "b", "c", "d"].map(str::to_owned);
    let (known, unknown) = (User::authenticated("user9", []), User::authenticated("nobody", []));
    let of_team = User::authenticated("somebody", groups);
    let get = |namespace, resource| ResourceAttributes {
        verb: "get",
        version: "v1",
        resource,
        namespace: Some(namespace),
        name: Some("x"),
        ..ResourceAttributes::default()
    };
    let last = ResourceAttributes { group: "resource.k8s.io", ..get("n5", "resourceclaims") };
    for (what, user, attributes) in [
        ("allowed by name           ", &known, Attributes::Resource(get("n5", "pods"))),
        ("allowed, last rule of view", &known, Attributes::Resource(last)),
        ("allowed by one of 6 groups", &of_team, Attributes::Resource(get("n5", "pods"))),
        ("denied, with a role       ", &known, Attributes::Resource(get("n5", "nodes"))),
        ("denied, without           ", &unknown, Attributes::Resource(get("n5", "pods"))),
        ("allowed, a path           ", &unknown, Attributes::NonResource { verb: "get", path: "/openapi/v3" }),
    ] {
        measure(what, &*authorizer, user, &attributes);
    }
    server.stop().await;
    Ok(())
}

fn measure(what: &str, authorizer: &dyn Authorizer, user: &User, attributes: &Attributes<'_>) {
    let begun = Instant::now();
    for _ in 0..DECISIONS {
        black_box(authorizer.authorize_now(black_box(user), black_box(attributes)));
    }
    let each = begun.elapsed().as_secs_f64() * 1e9 / f64::from(DECISIONS);
    println!("{what}{each:>8.0} ns");
}

async fn post(server: &Server, path: &str, object: serde_json::Value) -> Result<(), Box<dyn Error>> {
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(Full::new(Bytes::from(object.to_string())))?;
    let answer = server.service_as(User::master("admin")).oneshot(request).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    if status.is_success() { Ok(()) } else { Err(String::from_utf8_lossy(&body).into()) }
}
