//! Requests to the servers, and what their answers say of the history.

use crate::cluster::TOKEN;
use crate::history::{Action, Event, Outcome, State, Version};
use anyhow::Context as _;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Requests are given up after this.
const TIMEOUT: Duration = Duration::from_secs(30);
const OBJECTS: &str = "api/v1/namespaces/default/configmaps";
/// The label of the objects of the workload, which lists and watches select.
const LABEL: &str = "faults";

/// A client of all servers.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    addresses: Vec<SocketAddr>,
}

/// The events of a watch, as they come from one server.
pub(crate) struct Stream {
    response: Response,
    read: Vec<u8>,
}

/// A message of a watch.
pub(crate) enum Message {
    Event(Event),
    /// The history does not reach back so far.
    Gone,
}

impl Client {
    /// A client that trusts the CA that all servers share.
    pub(crate) fn new(ca: &Path, addresses: &[SocketAddr]) -> anyhow::Result<Client> {
        let ca = std::fs::read(ca).with_context(|| format!("cannot read {}", ca.display()))?;
        let http = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(&ca)?])
            .connect_timeout(Duration::from_secs(5))
            .build()?;
        Ok(Client { http, addresses: addresses.to_vec() })
    }

    pub(crate) fn n_servers(&self) -> usize {
        self.addresses.len()
    }

    fn url(&self, server: usize, path: &str) -> String {
        format!("https://{}/{path}", self.addresses[server])
    }

    async fn send(
        &self,
        server: usize,
        method: Method,
        path: &str,
        body: Option<(&str, Value)>,
    ) -> Option<(StatusCode, Value)> {
        let mut request = self.http.request(method, self.url(server, path)).bearer_auth(TOKEN).timeout(TIMEOUT);
        if let Some((content_type, body)) = body {
            request = request.header("content-type", content_type).body(body.to_string());
        }
        let answer = request.send().await.ok()?;
        let status = answer.status();
        Some((status, serde_json::from_str(&answer.text().await.ok()?).ok()?))
    }

    /// Carries out an operation.
    pub(crate) async fn carry_out(&self, server: usize, key: &str, action: &Action) -> Outcome {
        let one = format!("{OBJECTS}/{key}");
        let object = |value: &str, version: Option<Version>| {
            let version = version.map(|version| version.to_string());
            json!({
                "kind": "ConfigMap", "apiVersion": "v1", "data": {"value": value},
                "metadata": {"name": key, "labels": {LABEL: "yes"}, "resourceVersion": version},
            })
        };
        let json = "application/json";
        let answer = match action {
            Action::Create(value) => self.send(server, Method::POST, OBJECTS, Some((json, object(value, None)))).await,
            Action::Delete(state) => {
                let preconditions = json!({"resourceVersion": state.version.to_string()});
                let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions});
                self.send(server, Method::DELETE, &one, Some((json, options))).await
            }
            Action::Get => self.send(server, Method::GET, &one, None).await,
            Action::Patch(value) => {
                let patch = json!({"data": {"value": value}});
                self.send(server, Method::PATCH, &one, Some(("application/merge-patch+json", patch))).await
            }
            Action::Update(value, version) => {
                self.send(server, Method::PUT, &one, Some((json, object(value, Some(*version))))).await
            }
        };
        let Some((status, body)) = answer else { return Outcome::Unknown };
        match (status.as_u16(), action) {
            (200, Action::Delete(_)) => Outcome::Deleted,
            (200 | 201, _) => state(&body).map_or(Outcome::Unknown, Outcome::Done),
            (404, _) => Outcome::Absent,
            (409, _) => Outcome::Conflict,
            _ => Outcome::Unknown,
        }
    }

    /// All objects by key, and the version of the list.
    pub(crate) async fn list(&self, server: usize) -> Option<(Version, Vec<(String, State)>)> {
        let path = format!("{OBJECTS}?labelSelector={LABEL}");
        let (status, list) = self.send(server, Method::GET, &path, None).await?;
        if !status.is_success() {
            return None;
        }
        let items = list["items"].as_array()?.iter();
        let states = items.map(|item| Some((item["metadata"]["name"].as_str()?.to_owned(), state(item)?)));
        Some((version(&list)?, states.collect::<Option<_>>()?))
    }

    /// Whether a server is ready.
    pub(crate) async fn is_ready(&self, server: usize) -> bool {
        let request = self.http.get(self.url(server, "readyz")).bearer_auth(TOKEN).timeout(Duration::from_secs(5));
        request.send().await.is_ok_and(|answer| answer.status().is_success())
    }

    /// Watches the objects from a version on.
    pub(crate) async fn watch(&self, server: usize, after: Version) -> Option<Stream> {
        let path = format!("{OBJECTS}?labelSelector={LABEL}&watch=true&resourceVersion={after}");
        let request = self.http.get(self.url(server, &path)).bearer_auth(TOKEN);
        let response = tokio::time::timeout(TIMEOUT, request.send()).await.ok()?.ok()?;
        Some(Stream { response, read: Vec::new() })
    }
}

impl Stream {
    /// The next event; `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        if self.response.status() == StatusCode::GONE {
            return Some(Message::Gone);
        }
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                let line: Value = serde_json::from_slice(&line).ok()?;
                let object = &line["object"];
                match line["type"].as_str()? {
                    "ADDED" | "MODIFIED" => {
                        let State { version, value } = state(object)?;
                        return Some(Message::Event(Event { version, key: name(object)?, value: Some(value) }));
                    }
                    "DELETED" => {
                        return Some(Message::Event(Event {
                            version: version(object)?,
                            key: name(object)?,
                            value: None,
                        }));
                    }
                    _ if object["code"] == 410 => return Some(Message::Gone),
                    _ => return None,
                }
            }
            self.read.extend_from_slice(&self.response.chunk().await.ok()??);
        }
    }
}

fn name(object: &Value) -> Option<String> {
    object["metadata"]["name"].as_str().map(str::to_owned)
}

fn version(object: &Value) -> Option<Version> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

fn state(object: &Value) -> Option<State> {
    Some(State { version: version(object)?, value: object["data"]["value"].as_str()?.to_owned() })
}
