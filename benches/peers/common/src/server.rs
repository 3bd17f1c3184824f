//! Controls the server: the next step, and the state that shows that it is done.

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Error;

/// The state to wait for.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Facts {
    pub(crate) objects: usize,
    pub(crate) updates: u64,
    /// The version of the first list; every change has a greater one.
    pub(crate) listed_version: u64,
    pub(crate) last_changed: Reference,
    pub(crate) last_replaced: Reference,
    pub(crate) last_updated: Reference,
}

/// The state of an object.
#[derive(Clone, Debug, Deserialize)]
pub struct Reference {
    pub namespace: String,
    pub name: String,
    pub version: u64,
}

/// Requests `what` and returns when the server has done its part.
///
/// # Errors
///
/// If there is no server, or not the one expected.
pub(crate) async fn control(server: &str, what: &str) -> Result<Facts, Error> {
    let mut stream = TcpStream::connect(server).await?;
    let request = format!("POST /control/{what} HTTP/1.1\r\nHost: {server}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or("the server gave no answer")?;
    Ok(serde_json::from_str(body)?)
}
