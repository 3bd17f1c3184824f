//! A server that is asked, and what it answers.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use reqwest::{Certificate, Client, Method};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

/// More than any request may take by the contract of the servers.
const TIMEOUT: Duration = Duration::from_secs(75);

/// How long a server may take until it is ready.
const STARTS_WITHIN: Duration = Duration::from_secs(120);
const INTERVAL: Duration = Duration::from_millis(200);

#[derive(Clone)]
pub(crate) struct Server {
    client: Client,
    address: String,
    token: String,
}

/// A request as both servers get it, but for `{rv}` and `{uid}` in the body: each server's own of the object that is changed.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) method: Cow<'static, str>,
    pub(crate) path: String,
    pub(crate) content_type: Cow<'static, str>,
    pub(crate) accept: Cow<'static, str>,
    pub(crate) body: String,
}

/// The answer of a server.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) warnings: Vec<String>,
    /// `null` where the body is not JSON.
    pub(crate) body: Value,
}

// === impl Server ===

impl Server {
    /// A server that has just been started: its certificates may not have been written yet.
    pub(crate) async fn wait_for(address: &str, ca: &Path, token: &str) -> anyhow::Result<Server> {
        let deadline = Instant::now() + STARTS_WITHIN;
        loop {
            let outcome = match Server::new(address, ca, token) {
                Ok(server) => server.send(&Request::read("/readyz")).await.map(|reply| (server, reply.status)),
                Err(error) => Err(error),
            };
            match outcome {
                Ok((server, 200)) => return Ok(server),
                Ok((_, status)) if Instant::now() > deadline => anyhow::bail!("/readyz of {address} answers {status}"),
                Err(error) if Instant::now() > deadline => return Err(error),
                Ok(_) | Err(_) => tokio::time::sleep(INTERVAL).await,
            }
        }
    }

    fn new(address: &str, ca: &Path, token: &str) -> anyhow::Result<Server> {
        let pem = std::fs::read(ca).with_context(|| format!("cannot read {}", ca.display()))?;
        let certificates =
            Certificate::from_pem_bundle(&pem).with_context(|| format!("no certificate in {}", ca.display()))?;
        let client = Client::builder().timeout(TIMEOUT).tls_certs_only(certificates).build()?;
        Ok(Server { client, address: address.trim_end_matches('/').to_owned(), token: token.to_owned() })
    }

    /// The same server, asked by the user of another token.
    pub(crate) fn with_token(&self, token: &str) -> Server {
        Server { token: token.to_owned(), ..self.clone() }
    }

    /// A server that ends a request without an answer, because it panicked, counts as one that answers 500.
    pub(crate) async fn ask(&self, request: &Request) -> Reply {
        self.send(request).await.unwrap_or_else(|error| Reply {
            status: 500,
            warnings: Vec::new(),
            body: json!({"reason": "NoAnswer", "message": format!("{error:#}")}),
        })
    }

    pub(crate) async fn send(&self, request: &Request) -> anyhow::Result<Reply> {
        let method = Method::from_bytes(request.method.as_bytes())?;
        let mut sent = self.client.request(method, format!("{}{}", self.address, request.path));
        sent = sent.bearer_auth(&self.token).header("accept", &*request.accept);
        if !request.content_type.is_empty() {
            sent = sent.header("content-type", &*request.content_type).body(request.body.clone());
        }
        let answer = sent.send().await.with_context(|| format!("{} {}", request.method, request.path))?;
        let status = answer.status().as_u16();
        let warnings = answer.headers().get_all("warning").iter().map(|text| {
            let text = String::from_utf8_lossy(text.as_bytes()).into_owned();
            // 299 - "text"
            text.split_once('"').map_or(text.clone(), |(_, rest)| rest.trim_end_matches('"').to_owned())
        });
        let warnings = warnings.collect();
        let bytes = answer.bytes().await.with_context(|| format!("{} {}", request.method, request.path))?;
        Ok(Reply { status, warnings, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) })
    }

    /// The JSON of an answer that must be a success. A kube-apiserver answers 429 until it has read the objects of a new definition.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let deadline = Instant::now() + STARTS_WITHIN;
        let reply = loop {
            match self.send(&Request::read(path)).await? {
                Reply { status: 429, .. } if Instant::now() < deadline => tokio::time::sleep(INTERVAL).await,
                reply => break reply,
            }
        };
        anyhow::ensure!(reply.status == 200, "GET {path} of {}: {} {}", self.address, reply.status, reply.body);
        Ok(reply.body)
    }
}

// === impl Request ===

impl Request {
    pub(crate) fn read(path: impl Into<String>) -> Request {
        Request {
            method: "GET".into(),
            path: path.into(),
            content_type: "".into(),
            accept: "application/json".into(),
            body: String::new(),
        }
    }

    pub(crate) fn write(method: &'static str, path: impl Into<String>, body: &Value) -> Request {
        Request {
            method: method.into(),
            content_type: "application/json".into(),
            body: body.to_string(),
            ..Request::read(path)
        }
    }
}
