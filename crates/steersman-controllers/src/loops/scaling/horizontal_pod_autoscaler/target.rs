//! The target of an autoscaler, accessed through the subresource `scale` of any kind.

use crate::shared::discovery::{Kinds, Within};
use crate::shared::refusal;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use kube::Client;
use serde_json::{Value, json};

/// The number of attempts to write the scale when somebody else writes it at the same time.
const ATTEMPTS: usize = 5;

pub(crate) struct Targets {
    client: Client,
    kinds: Kinds,
}

/// A target, as read from its subresource `scale`.
pub(crate) struct Target {
    path: String,
    scale: Value,
}

impl Targets {
    pub(crate) fn new(client: Client) -> Targets {
        Targets { kinds: Kinds::new(client.clone()), client }
    }

    /// The target of an autoscaler, or upstream's message why it cannot be read.
    pub(crate) async fn get(&self, namespace: &str, target: &CrossVersionObjectReference) -> Result<Target, String> {
        let api_version = target.api_version.as_deref().unwrap_or_default();
        if api_version.matches('/').count() > 1 {
            return Err(format!("unexpected GroupVersion string: {api_version}"));
        }
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let found = self.kinds.find(Within::Group(group.to_owned()), &target.kind).await;
        let found = found.map_err(|error| refusal::message(&error))?;
        let found = found.ok_or_else(|| format!("no matches for kind {:?} in group {group:?}", target.kind))?;
        let path = format!("{}/{}/scale", found.path(namespace), target.name);
        let scale = self.read(&path).await.map_err(|error| refusal::message(&error))?;
        Ok(Target { path, scale })
    }

    /// Scales a target to `replicas`, or returns why that is not possible.
    pub(crate) async fn scale(&self, target: &mut Target, replicas: i32) -> Result<(), String> {
        let mut fault = String::new();
        for _ in 0..ATTEMPTS {
            target.scale["spec"]["replicas"] = json!(replicas);
            let body = serde_json::to_vec(&target.scale).map_err(|error| error.to_string())?;
            let request = http::Request::put(&target.path).header(http::header::CONTENT_TYPE, "application/json");
            let request = request.body(body).map_err(|error| error.to_string())?;
            match self.client.request::<Value>(request).await {
                Ok(_) => return Ok(()),
                Err(error) if refusal::is_conflict(&error) => fault = refusal::message(&error),
                Err(error) => return Err(refusal::message(&error)),
            }
            if let Ok(latest) = self.read(&target.path).await {
                target.scale = latest;
            }
        }
        Err(fault)
    }

    async fn read(&self, path: &str) -> Result<Value, kube::Error> {
        let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }
}

impl Target {
    /// The desired number of replicas.
    pub(crate) fn replicas(&self) -> i32 {
        number(&self.scale["spec"]["replicas"])
    }

    /// The current number of replicas.
    pub(crate) fn present(&self) -> i32 {
        number(&self.scale["status"]["replicas"])
    }

    /// The label selector of its Pods.
    pub(crate) fn selector(&self) -> &str {
        self.scale["status"]["selector"].as_str().unwrap_or_default()
    }
}

fn number(value: &Value) -> i32 {
    let number = value.as_i64().unwrap_or_default();
    i32::try_from(number).unwrap_or(i32::MAX)
}
