//! Watches whose clients never read: what a server holds for them is its own.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::client::{Connection, Protocol, Request, Target};
use crate::stage::ADMIN;

/// How a watch is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Over {
    Http,
    WebSocket,
}

/// Bytes of each large object.
const OBJECT_BYTES: usize = 950_000;

/// Makes ConfigMaps that are nearly as large as they may be, in the namespace `default`.
///
/// # Errors
/// When the server refuses them.
pub async fn make_large_objects(admin: &mut Connection, n_objects: usize) -> anyhow::Result<()> {
    for index in 0..n_objects {
        let data = json!({"a": "x".repeat(OBJECT_BYTES)});
        let name = format!("large-{index}");
        let object: Value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        admin.ok(&Request::json("", "POST", "/api/v1/namespaces/default/configmaps", &object)).await?;
    }
    Ok(())
}

/// Opens watches from version 0, of which only the head of the answer is read. They last as long as their streams.
///
/// # Errors
/// When one is not answered.
pub async fn open(target: &Target, over: Over, n_watches: usize) -> anyhow::Result<Vec<TlsStream<TcpStream>>> {
    let upgrade = match over {
        Over::Http => "",
        Over::WebSocket => {
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        }
    };
    let path = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0";
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\n{upgrade}\r\n");
    let want = if over == Over::Http { "HTTP/1.1 200" } else { "HTTP/1.1 101" };
    let mut streams = Vec::new();
    for _ in 0..n_watches {
        let mut stream = target.connect(Protocol::Http1).await?;
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
        let mut start = vec![0; want.len()];
        stream.read_exact(&mut start).await?;
        let start = String::from_utf8_lossy(&start);
        anyhow::ensure!(start == want, "a watch is answered {start}");
        streams.push(stream);
    }
    Ok(streams)
}
