//! Fills Secrets of the type `kubernetes.io/service-account-token` with a token of the account that they name, and
//! deletes them when the account is gone. Follows kubernetes' `pkg/controller/serviceaccount/tokens_controller.go`.
//!
//! It is in the server because it signs tokens, and the keys never leave the server. Where kube-controller-manager runs
//! beside the server, that does the same with a key of its own, and this stays off.

use crate::access::authn::service_account::claims::Bound;
use crate::shared::operation::Operation;
use crate::shared::request::options::{Delete, Preconditions};
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::{self, Change};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use steersman_kinds::catalog::Verb;
use steersman_machinery::value::{object_at, str_at};
use steersman_machinery::{GroupResource, Object, ObjectKey, Revision, Value};
use steersman_storage::{At, Event, Interest, Kind, Page, Scope, WatchError, Watcher};
use tokio::task::JoinHandle;

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// The pause after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The most changes taken at a time.
const BATCH_MAX: usize = 256;

/// Works on Secrets that may need a token.
#[derive(Debug)]
struct Filler {
    state: Arc<State>,
    ca: Option<String>,
    pending: BTreeSet<ObjectKey>,
}

/// The reason why a watch of the Secrets or accounts has ended.
enum End {
    /// It fell behind: everything is listed again.
    Lagged,
    Stopped,
}

/// Starts the task; `ca` is the CA certificate of the server's own. It ends when the server stops.
pub(crate) fn start(state: &Arc<State>, ca: Option<String>) -> JoinHandle<()> {
    let filler = Filler { state: state.clone(), ca, pending: BTreeSet::new() };
    tokio::spawn(filler.run())
}

fn secrets() -> GroupResource {
    GroupResource::new("", "secrets")
}

fn accounts() -> GroupResource {
    GroupResource::new("", "serviceaccounts")
}

impl Filler {
    async fn run(mut self) {
        while !self.state.is_stopping() {
            match self.list().await {
                Ok((secrets, accounts)) => {
                    if let End::Stopped = self.follow(secrets, accounts).await {
                        return;
                    }
                }
                Err(failure) => {
                    let message = &failure.status.message;
                    tracing::warn!(message, "the Secrets for tokens cannot be listed; it is tried again");
                    self.pause().await;
                }
            }
        }
    }

    async fn pause(&self) {
        // Both arms are cancel-safe: they have no state.
        tokio::select! {
            () = self.state.stopping() => {}
            () = tokio::time::sleep(RETRY_INTERVAL) => {}
        }
    }

    /// Adds all Secrets of the type to `pending`, and watches for later changes.
    async fn list(&mut self) -> Result<(Watcher, Watcher), Failure> {
        let revision = self.state.sync().await?;
        let found = self.of(&Scope::All)?;
        self.pending.extend(found.into_iter().map(|secret| secret.key.clone()));
        let of_type = Interest { field: Some(("type".into(), TYPE.into())), ..Interest::ALL };
        let store = &self.state.store;
        let watch = |resource: &GroupResource, interest: &Interest, after: Revision| {
            store.watch_for(resource, Scope::All, interest, after).map_err(|error| Failure::of_read(&error))
        };
        Ok((watch(&secrets(), &of_type, revision)?, watch(&accounts(), &Interest::ALL, revision)?))
    }

    /// The Secrets of the type.
    fn of(&self, scope: &Scope) -> Result<Vec<Arc<Object>>, Failure> {
        let is_of_type = |secret: &Object| secret.meta().field("type") == Some(TYPE);
        let list = self.state.store.list_where(&secrets(), scope, At::Latest, Page::ALL, is_of_type);
        Ok(list.map_err(|error| Failure::of_read(&error))?.objects)
    }

    async fn follow(&mut self, mut secrets: Watcher, mut accounts: Watcher) -> End {
        loop {
            self.work().await;
            let has_failed = !self.pending.is_empty();
            let retry = async {
                match has_failed {
                    true => tokio::time::sleep(RETRY_INTERVAL).await,
                    false => std::future::pending().await,
                }
            };
            let state = self.state.clone();
            // Every arm is cancel-safe: a batch that is not returned is not consumed.
            let (events, is_account) = tokio::select! {
                () = state.stopping() => return End::Stopped,
                events = secrets.next_batch(BATCH_MAX) => (events, false),
                events = accounts.next_batch(BATCH_MAX) => (events, true),
                () = retry => continue,
            };
            match events {
                Ok(events) if is_account => self.note_accounts(&events),
                Ok(events) => {
                    let kept = events.iter().filter(|event| event.kind != Kind::Deleted);
                    self.pending.extend(kept.map(|event| event.object.key.clone()));
                }
                Err(WatchError::Lagged { .. }) => return End::Lagged,
                Err(WatchError::Closed) => return End::Stopped,
            }
        }
    }

    /// Adds the Secrets in the namespaces of deleted accounts to `pending`.
    fn note_accounts(&mut self, events: &[Arc<Event>]) {
        let gone = events.iter().filter(|event| event.kind == Kind::Deleted);
        let namespaces: BTreeSet<&str> = gone.filter_map(|event| event.object.key.namespace.as_deref()).collect();
        for namespace in namespaces {
            if let Ok(found) = self.of(&Scope::Namespace(namespace.into())) {
                self.pending.extend(found.into_iter().map(|secret| secret.key.clone()));
            }
        }
    }

    /// Processes the pending Secrets. Those that fail stay pending.
    async fn work(&mut self) {
        for key in std::mem::take(&mut self.pending) {
            if self.state.is_stopping() {
                return;
            }
            match self.reconcile(&key).await {
                Ok(()) => {}
                // It is gone, or was written in the meantime: then another event follows.
                Err(failure) if matches!(failure.code(), 404 | 409) => {}
                Err(failure) => {
                    let message = &failure.status.message;
                    tracing::warn!(secret = %key, message, "the token of a Secret could not be written; it is tried again");
                    self.pending.insert(key);
                }
            }
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<(), Failure> {
        let state = &*self.state;
        let Some(stored) = state.get(&secrets(), key).await? else { return Ok(()) };
        if stored.meta().is_deleting() || stored.meta().field("type") != Some(TYPE) {
            return Ok(());
        }
        let secret = crate::shared::conversion::parse(&stored)?;
        let annotation = |name: &str| str_at(&secret, &["metadata", "annotations", name]).unwrap_or_default();
        let (name, uid) = (annotation(ACCOUNT_NAME), annotation(ACCOUNT_UID));
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let account = state.get(&accounts(), &ObjectKey::namespaced(namespace, name)).await?;
        let account = account.filter(|account| uid.is_empty() || account.meta().uid() == uid);
        let catalog = state.catalog();
        let Some(served) = catalog.find("", "v1", "secrets") else { return Ok(()) };
        let Some(account) = account else {
            let operation = Operation::of_system(served, Verb::Delete, state.now());
            let (uid, version) = (stored.meta().uid().to_owned(), stored.revision.to_string());
            let mut options = Delete::default();
            options.preconditions = Preconditions { uid: Some(uid), resource_version: Some(version) };
            let mut deletion = operation.on(Verb::Delete, key);
            return registry::write(state, &mut deletion, &Change::Delete(&options)).await.map(|_| ());
        };
        let ca = self.ca.as_deref().map(|ca| STANDARD.encode(ca));
        let data = |key: &str| str_at(&secret, &["data", key]).filter(|value| !value.is_empty());
        let has_ca = ca.is_none() || data("ca.crt") == ca.as_deref();
        if !uid.is_empty() && has_ca && data("namespace").is_some() && data("token").is_some() {
            return Ok(());
        }
        let token = match data("token") {
            Some(token) => token.to_owned(),
            None => {
                let account = Bound { name: name.to_owned(), uid: account.meta().uid().to_owned() };
                let signer = state.authenticator.service_accounts();
                let token = signer.issue_legacy(namespace, &account, &key.name, state.now()).await;
                STANDARD.encode(token.map_err(|error| Failure::of_signing(&error))?)
            }
        };
        let fill = |secret: &mut Value| {
            if let Some(annotations) = object_at(secret, &["metadata", "annotations"]) {
                annotations.insert(ACCOUNT_UID.to_owned(), account.meta().uid().into());
            }
            if let Some(data) = object_at(secret, &["data"]) {
                data.extend(ca.clone().map(|ca| ("ca.crt".to_owned(), ca.into())));
                data.insert("namespace".to_owned(), STANDARD.encode(namespace).into());
                data.entry("token").or_insert_with(|| token.clone().into());
            }
            Ok(())
        };
        let operation = Operation::of_system(served, Verb::Update, state.now());
        let mut update = operation.on(Verb::Update, key);
        registry::write(state, &mut update, &Change::Assign(&fill)).await.map(|_| ())
    }
}
