//! Ends the wait for initializers: acts on objects whose deadline has passed, counts, and reports in Events and in the
//! status of the configurations which initializers are pending.
//!
//! The deadline is in the object, so a restarted server continues where a killed one stopped. A pass looks at all
//! waiting objects, of which the store keeps an index; an object is parsed once per revision. Passes follow changes, at
//! most one in [`PASS_INTERVAL`], and otherwise the next deadline. While nothing waits, nothing runs.

use crate::background::upkeep;
use crate::shared::conversion;
use crate::shared::identity::uid;
use crate::shared::operation::{Operation, seconds};
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::initializers::field::{self, Turn};
use crate::write::initializers::{Configured, OnTimeout};
use crate::write::registry::{self, Change};
use futures::StreamExt as _;
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::catalog::{Served, Verb};
use steersman_machinery::{GroupResource, GroupVersion, Object, ObjectKey, Revision, Value, value};

/// The least time between two passes.
const PASS_INTERVAL: Duration = Duration::from_millis(100);
/// The pause before a pass is repeated because something in it failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Only objects that have waited this long are shown in the status of a configuration: objects that are initialized at
/// once cost no write.
const SHOWN_AFTER: SignedDuration = SignedDuration::from_secs(1);
/// The least time between two writes of a configuration's status.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// The most objects that are acted on concurrently. Their writes share commits of the store.
const AT_ONCE: usize = 64;
const MANAGER: &str = "initializers";

/// The objects that wait.
#[derive(Default)]
struct Waiting {
    /// By uid.
    known: HashMap<Box<str>, WaitingObject>,
    /// The time of the last write of the statuses.
    shown_at: Option<tokio::time::Instant>,
}

/// An object that waits, as it was read at a revision.
struct WaitingObject {
    revision: Revision,
    state: Stage,
    /// The initializer that an Event has been written about, because the object waits long for it.
    warned_of: Option<String>,
}

/// The progress of an object.
enum Stage {
    /// Its initialization has failed. The server that recorded this stopped before it deleted the object.
    Failed,
    /// The server has not yet recorded whose turn it is.
    Unclear,
    Waits(Turn),
}

/// An object to be acted on.
struct Due {
    resource: GroupResource,
    object: Arc<Object>,
    act: Act,
}

enum Act {
    /// Writes an Event: the object waits long for this initializer.
    Announce(Turn),
    /// Ends the wait: the time of this initializer has passed.
    End(Turn),
    /// Records whose turn it is.
    Note,
    Remove,
}

/// Runs until the server stops.
pub(super) async fn run(state: Arc<State>, configured: Arc<Configured>) {
    let mut waiting = Waiting::default();
    loop {
        let next = waiting.pass(&state, &configured).await;
        let wake = async {
            match next {
                Some(after) => {
                    // Both arms are cancel-safe: a notification that is not taken is kept.
                    tokio::select! {
                        () = tokio::time::sleep(after) => {}
                        () = configured.changed.notified() => {}
                    }
                }
                None => configured.changed.notified().await,
            }
        };
        // Every arm is cancel-safe: they have no state.
        tokio::select! {
            () = state.stopping() => return,
            () = wake => {}
        }
        tokio::select! {
            () = state.stopping() => return,
            () = tokio::time::sleep(PASS_INTERVAL) => {}
        }
    }
}

impl Waiting {
    /// Acts on what is due. Returns the time until the next action; `None` while nothing waits.
    async fn pass(&mut self, state: &State, configured: &Configured) -> Option<Duration> {
        let now = state.now();
        let all = state.store.uninitialized();
        let mut objects: Vec<(&GroupResource, &Arc<Object>)> = Vec::new();
        for (resource, of_resource) in &all {
            objects.extend(of_resource.iter().map(|object| (resource, object)));
        }
        let mut before = std::mem::take(&mut self.known);
        let (mut due, mut wake) = (Vec::new(), None::<Timestamp>);
        for (resource, object) in &objects {
            let uid: Box<str> = object.meta().uid().into();
            let mut known = match before.remove(&uid) {
                Some(known) if known.revision == object.revision => known,
                old => WaitingObject::read(object, old.and_then(|old| old.warned_of)),
            };
            let (act, at) = known.due(now);
            wake = [wake, at].into_iter().flatten().min();
            due.extend(act.map(|act| Due { resource: (*resource).clone(), object: (*object).clone(), act }));
            self.known.insert(uid, known);
        }
        drop(before);
        self.count(configured);
        let mut has_failed = false;
        let mut acts = stream::iter(due).map(|due| due.act(state, configured)).buffer_unordered(AT_ONCE);
        while let Some(done) = acts.next().await {
            if let Err(failure) = done {
                tracing::warn!(error = failure.status.message, "an object that waits for initializers: trying again");
                has_failed = true;
            }
        }
        drop(acts);
        let show_again = self.show(state, configured, &objects, now).await;
        let until = |at: Timestamp| Duration::try_from(now.duration_until(at)).unwrap_or_default();
        let retry = has_failed.then_some(RETRY_INTERVAL);
        [wake.map(until), show_again, retry].into_iter().flatten().min()
    }

    fn count(&self, configured: &Configured) {
        let mut pending: BTreeMap<&str, usize> = BTreeMap::new();
        for known in self.known.values() {
            if let Stage::Waits(turn) = &known.state {
                *pending.entry(&turn.name).or_default() += 1;
            }
        }
        configured.figures.set_pending(pending);
    }

    /// Writes into the status of each configuration which of its initializers objects wait for. Returns when to call it
    /// again.
    async fn show(
        &mut self,
        state: &State,
        configured: &Configured,
        objects: &[(&GroupResource, &Arc<Object>)],
        now: Timestamp,
    ) -> Option<Duration> {
        let mut by_name: BTreeMap<&str, (usize, &Turn, String)> = BTreeMap::new();
        let mut is_young = false;
        for (resource, object) in objects {
            let Some(Stage::Waits(turn)) = self.known.get(object.meta().uid()).map(|known| &known.state) else {
                continue;
            };
            if turn.since.duration_until(now) < SHOWN_AFTER {
                is_young = true;
                continue;
            }
            let name = || format!("{resource} {}", object.key);
            let (n, oldest, shown) = by_name.entry(&turn.name).or_insert_with(|| (0, turn, name()));
            *n += 1;
            if turn.since < oldest.since {
                (*oldest, *shown) = (turn, name());
            }
        }
        let interval = is_young.then_some(STATUS_INTERVAL);
        let catalog = state.catalog();
        let served = catalog.find("admissionregistration.k8s.io", "v1alpha1", "initializerconfigurations")?;
        let mut changed = Vec::new();
        for (configuration, names) in configured.configurations() {
            let waited_for = names.iter().filter_map(|name| Some((name, by_name.get(&**name)?)));
            let rows = waited_for.map(|(name, (n, oldest, object))| {
                json!({"name": &**name, "waiting": n, "oldest": object, "since": seconds(oldest.since)})
            });
            let rows: Vec<Value> = rows.collect();
            let status = if rows.is_empty() { json!({}) } else { json!({"initializers": rows}) };
            let stored = state.store.get_cached(&served.resource.storage, &ObjectKey::cluster(&*configuration));
            let stored = stored.and_then(|stored| conversion::parse(&stored).ok());
            if stored.is_some_and(|stored| stored.get("status") != Some(&status)) {
                changed.push((configuration, status));
            }
        }
        if changed.is_empty() {
            return interval;
        }
        if let Some(left) = self.shown_at.and_then(|at| STATUS_INTERVAL.checked_sub(at.elapsed())) {
            return Some(left);
        }
        self.shown_at = Some(tokio::time::Instant::now());
        for (configuration, status) in changed {
            let set = |object: &mut Value| object["status"] = status.clone();
            let written = upkeep::edit(state, served, Some("status"), &configuration, MANAGER, &set).await;
            if let Err(failure) = written {
                tracing::warn!(error = failure.status.message, %configuration, "its status could not be written");
                return Some(RETRY_INTERVAL);
            }
        }
        interval
    }
}

// === impl WaitingObject ===

impl WaitingObject {
    fn read(object: &Object, warned_of: Option<String>) -> WaitingObject {
        let state = match conversion::parse(object) {
            Ok(tree) if field::result(&tree).is_some() => Stage::Failed,
            Ok(tree) => field::turn(&tree).map_or(Stage::Unclear, Stage::Waits),
            Err(_) => Stage::Unclear,
        };
        WaitingObject { revision: object.revision, state, warned_of }
    }

    /// The action that is due now, if any, and the time of the next one.
    fn due(&mut self, now: Timestamp) -> (Option<Act>, Option<Timestamp>) {
        let turn = match &self.state {
            Stage::Failed => return (Some(Act::Remove), None),
            Stage::Unclear => return (Some(Act::Note), None),
            Stage::Waits(turn) => turn,
        };
        if turn.deadline <= now {
            return (Some(Act::End(turn.clone())), None);
        }
        // An object waits long when half of the time has passed.
        let long = turn.since + turn.since.duration_until(turn.deadline) / 2;
        if self.warned_of.as_ref() == Some(&turn.name) {
            return (None, Some(turn.deadline));
        }
        if now < long {
            return (None, Some(long));
        }
        self.warned_of = Some(turn.name.clone());
        (Some(Act::Announce(turn.clone())), Some(turn.deadline))
    }
}

// === impl Due ===

impl Due {
    async fn act(self, state: &State, configured: &Configured) -> Result<(), Failure> {
        let catalog = state.catalog();
        let version = GroupVersion::parse(self.object.meta().api_version());
        let found = version.and_then(|version| catalog.find(&version.group, &version.version, &self.resource.resource));
        // The kind is no longer served: its objects are deleted with its definition.
        let Some(served) = found else { return Ok(()) };
        let system = Operation::of_system(served, Verb::Update, state.now());
        let mut operation = system.on(Verb::Update, &self.object.key);
        match &self.act {
            Act::Remove => registry::remove_failed(state, &operation, &self.object).await,
            Act::Note => {
                let note = |object: &mut Value| {
                    let before = object.clone();
                    field::set_turn(object, Some(&before), configured, state.now());
                    Ok(())
                };
                present(registry::write(state, &mut operation, &Change::Assign(&note)).await)
            }
            Act::Announce(turn) => {
                let (initializer, deadline) = (&turn.name, seconds(turn.deadline));
                let then = match turn.on_timeout {
                    OnTimeout::Fail => "the creation fails",
                    OnTimeout::Ignore => "it is passed over",
                };
                let message = format!(
                    "waits for the initializer {initializer} since {}: at {deadline} {then}",
                    seconds(turn.since)
                );
                self.event(state, served, "WaitingForInitializer", &message).await;
                Ok(())
            }
            Act::End(turn) => {
                if self.end(state, configured, &mut operation, turn).await? {
                    let message = match turn.on_timeout {
                        OnTimeout::Fail => format!("{}: the object was deleted", over(turn)),
                        OnTimeout::Ignore => format!("{}: it was passed over", over(turn)),
                    };
                    configured.figures.timed_out(&turn.name, turn.on_timeout);
                    self.event(state, served, "InitializerTimedOut", &message).await;
                }
                Ok(())
            }
        }
    }

    /// Ends the wait, unless the initializer has finished in the meantime; returns whether it ended the wait.
    async fn end(
        &self,
        state: &State,
        configured: &Configured,
        operation: &mut Operation<'_>,
        turn: &Turn,
    ) -> Result<bool, Failure> {
        let resource = operation.group_resource();
        let ended = parking_lot::Mutex::new(false);
        let uid = self.object.meta().uid();
        let end = |object: &mut Value| {
            let is_still = value::str_at(object, &["metadata", "uid"]) == Some(uid)
                && field::result(object).is_none()
                && field::turn(object).as_ref() == Some(turn);
            *ended.lock() = is_still;
            if !is_still {
                return Ok(());
            }
            let before = object.clone();
            match turn.on_timeout {
                OnTimeout::Fail => {
                    let message = format!("{resource} {:?} was not created: {}", self.object.key.name, over(turn));
                    let details =
                        json!({"name": &*self.object.key.name, "group": resource.group, "kind": resource.resource});
                    field::set_result(
                        object,
                        json!({"status": "Failure", "code": 504, "reason": "Timeout", "message": message, "details": details}),
                    );
                }
                OnTimeout::Ignore => {
                    field::pass_over(object);
                    field::normalize(object);
                    field::set_turn(object, Some(&before), configured, state.now());
                }
            }
            Ok(())
        };
        present(registry::write(state, operation, &Change::Assign(&end)).await)?;
        let ended = *ended.lock();
        Ok(ended)
    }

    /// Writes an Event about the object. A failure is only logged: it is not worth repeating the rest.
    async fn event(&self, state: &State, served: &Served, reason: &str, message: &str) {
        let catalog = state.catalog();
        let Some(events) = catalog.find("", "v1", "events") else { return };
        let (object, now, kind) = (&self.object, state.now(), served.kind());
        let namespace = object.key.namespace.as_deref().unwrap_or("default");
        let name = format!("{}.{}", object.key.name, uid::random());
        let event = json!({
            "kind": "Event", "apiVersion": "v1", "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "kind": kind.kind, "apiVersion": kind.api_version(), "namespace": object.key.namespace.as_deref(),
                "name": &*object.key.name, "uid": object.meta().uid(), "resourceVersion": object.revision.to_string(),
            },
            "type": "Warning", "reason": reason, "message": message, "source": {"component": MANAGER}, "count": 1,
            "firstTimestamp": seconds(now), "lastTimestamp": seconds(now), "eventTime": null,
            "reportingComponent": "", "reportingInstance": "",
        });
        let system = Operation::of_system(events, Verb::Create, now);
        let mut operation = Operation::new(events, system.attributes, system.user, now);
        operation.attributes.namespace = Some(namespace);
        operation.manager = MANAGER.into();
        if let Err(failure) = registry::write(state, &mut operation, &Change::Create(event)).await {
            tracing::debug!(error = failure.status.message, reason, object = %object.key, "an Event could not be written");
        }
    }
}

/// The expiry as a text.
fn over(turn: &Turn) -> String {
    let seconds = turn.since.duration_until(turn.deadline).as_secs();
    format!("the initializer {} did not act on it within {seconds}s", turn.name)
}

/// The outcome of a write. It is no failure that the object has been deleted in the meantime.
fn present<T>(written: Result<T, Failure>) -> Result<(), Failure> {
    match written {
        Err(failure) if failure.code() != 404 => Err(failure),
        _ => Ok(()),
    }
}
