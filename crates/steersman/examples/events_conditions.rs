//! A custom kind that reports its state: a condition in its status for programs, and Events for people.
//!
//! `kubectl wait --for=condition=Ready door/front` waits for the condition, `kubectl describe door front` shows both.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use steersman::events::{EventRecorder, EventType};
use steersman::{
    Action, BoxError, ClientOptions, Controller, Lister, Manager, ManagerError, ObjectKey, Scope, conditions, status,
};

#[derive(Clone, CustomResource, Debug, Deserialize, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Door", namespaced, status = "DoorStatus", schema = "disabled")]
#[serde(rename_all = "camelCase")]
pub(crate) struct DoorSpec {
    /// The key that opens the door.
    pub(crate) key: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct DoorStatus {
    pub(crate) conditions: Vec<Condition>,
}

struct Context {
    doors: Lister<Door>,
    status: status::Writer<Door>,
    events: EventRecorder,
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let door = cx.doors.get(&key)?;
    let (holds, reason, message) = match door.spec.key.as_str() {
        "" => (conditions::Status::False, "NoKey", "spec.key is empty: name what opens the door"),
        _ => (conditions::Status::True, "Locked", "the door has a lock"),
    };
    // Fields of the status that others wrote are kept.
    let mut status = door.status.clone().unwrap_or_default();
    let was_ready = conditions::is_true(&status.conditions, "Ready");
    let ready = conditions::condition("Ready", holds, reason, message, door.metadata.generation);
    conditions::set(&mut status.conditions, ready);
    cx.status.write(&door, &status).await?;
    match (was_ready, conditions::is_true(&status.conditions, "Ready")) {
        (false, true) => cx.events.event(&*door, EventType::Normal, reason, message),
        (_, false) => cx.events.event(&*door, EventType::Warning, reason, message),
        (true, true) => {}
    }
    Ok(Action::AwaitChange)
}

pub(crate) async fn run(client: kube::Client, end: impl Future<Output = ()>) -> Result<(), ManagerError> {
    let manager = Manager::new(client.clone());
    let events = EventRecorder::new(client.clone(), "door-controller");
    let context = Context {
        doors: manager.informers().informer(Scope::All).lister(),
        status: status::Writer::new(client),
        events: events.clone(),
    };
    let ended = manager.controller(Controller::<Door>::new(reconcile, context)).run(end).await;
    // Without this, the last events are lost with the process.
    events.flush().await;
    ended
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = steersman::client(&ClientOptions::default()).await?;
    Ok(run(client, steersman::shutdown_signal()).await?)
}
