//! Certificates that a server makes, keeps in a Secret and renews, and whose bundle it writes into the objects that
//! lead to it.
//!
//! All replicas do the same, without a leader. The Secret is written at the version that was read, so that of two
//! replicas that renew at the same time, one fails and reads the Secret of the other. A configuration is read before
//! the Secret whose bundle is put into it, so that a bundle never replaces a newer one: either the Secret is at least
//! as new as the configuration, or the write meets a conflict.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use kube::core::{ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta};
use kube::{Client, Resource};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cache::factory::InformerFactory;
use crate::cache::handler::handler_fn;
use crate::shared::backoff::{Backoff, Limits};
use crate::shared::chain::Chain;
use crate::shared::selection::{Scope, Selection};
use crate::webhook::certificates::configurations::{ConfigurationKind, Own, Target};
use crate::webhook::certificates::plan::{self, Step};
use crate::webhook::certificates::secret::{CertificateSpec, Foreign, Stored};
use crate::webhook::certificates::{CertificateError, Publisher, Served};

/// How long a certificate lasts; it is renewed a month before its end.
const CERTIFICATE_LASTS: Duration = Duration::from_secs(90 * 24 * 3_600);
/// How long an authority lasts.
const AUTHORITY_LASTS: Duration = Duration::from_secs(5 * 365 * 24 * 3_600);
/// How long the next authority is in all bundles before it signs.
const OVERLAP: Duration = Duration::from_secs(300);
/// The longest wait before the keeper looks again, whatever the clock says.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// How many times a pass begins anew when others write at the same time.
const CONFLICTS_MAX: usize = 16;
/// The field manager of all writes.
const MANAGER: &str = "steersman-webhook-certificates";

/// A certificate signed by an authority of its own: made at the first start, kept in a Secret that all replicas share,
/// renewed before it expires, and trusted through the `caBundle` of configurations and definitions.
///
/// Only entries that lead to one of the [services](SelfSigned::service) or [hosts](SelfSigned::host) are changed. They
/// are changed whenever they have another bundle, whoever wrote that, and as soon as the object appears. When an
/// authority is replaced, the bundle has the former and the next one, and the next one signs only after it has been in
/// every configuration for five minutes, so that no call fails.
///
/// The service account needs `get`, `list`, `watch`, `create` and `update` on `secrets` in the namespace of the Secret;
/// and, for the objects named with [`SelfSigned::mutating`], [`SelfSigned::validating`] and [`SelfSigned::definition`],
/// `get`, `list`, `watch` and `update` on `mutatingwebhookconfigurations`, `validatingwebhookconfigurations` and
/// `customresourcedefinitions`. Whoever reads the Secret can answer in the server's name.
pub struct SelfSigned {
    client: Client,
    namespace: String,
    secret: String,
    names: Vec<String>,
    own: Own,
    targets: Vec<Target>,
    certificate_lasts: Duration,
    authority_lasts: Duration,
    overlap: Duration,
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

/// Why certificates could not be made, stored or published. The keeper tries again; meanwhile the last good certificate
/// is served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelfSignedError {
    /// The API server refused or failed a request.
    #[error("cannot {verb} {what}")]
    Api {
        /// The verb of the request.
        verb: &'static str,
        /// Kind and name of the object.
        what: String,
        /// The error of the request.
        #[source]
        source: kube::Error,
    },
    /// The content of the Secret cannot be served.
    #[error("cannot serve what is in the secret {secret}")]
    Certificate {
        /// Namespace and name.
        secret: String,
        /// The fault of the content.
        #[source]
        source: CertificateError,
    },
    /// Others changed the Secret at the same time, 16 times in a row.
    #[error("the secret {secret} was changed by others {CONFLICTS_MAX} times in a row")]
    Conflicts {
        /// Namespace and name.
        secret: String,
    },
    /// A Secret of this name exists with other content.
    #[error(
        "the secret {secret} has other content than certificates of webhooks ({reason}): delete it, or choose another name"
    )]
    Foreign {
        /// Namespace and name.
        secret: String,
        /// The part that is missing or wrong.
        reason: String,
    },
    /// A certificate cannot be made, most often because of a name.
    #[error("cannot make a certificate for {}", names.join(", "))]
    Issue {
        /// The names that the certificate was to have.
        names: Vec<String>,
        /// The error of the certificate library.
        #[source]
        source: rcgen::Error,
    },
}

/// The outcome of one attempt.
enum Pass {
    /// Another writer came first, or something was written: read everything again.
    Again,
    /// Nothing is due before this moment, in seconds since 1970.
    Done { until: i64 },
}

// === impl SelfSigned ===

impl SelfSigned {
    /// A certificate that is kept in this Secret. It has no names yet: see [`SelfSigned::service`] and
    /// [`SelfSigned::host`].
    pub fn new(client: Client, namespace: &str, secret: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            secret: secret.to_owned(),
            names: Vec::new(),
            own: Own::default(),
            targets: Vec::new(),
            certificate_lasts: CERTIFICATE_LASTS,
            authority_lasts: AUTHORITY_LASTS,
            overlap: OVERLAP,
            clock: Arc::new(SystemTime::now),
        }
    }

    /// The server is reached through this Service.
    pub fn service(mut self, namespace: &str, name: &str) -> Self {
        self.names.push(format!("{name}.{namespace}.svc"));
        self.names.push(format!("{name}.{namespace}.svc.cluster.local"));
        self.own.services.push((namespace.to_owned(), name.to_owned()));
        self
    }

    /// The server is reached at URLs with this host, a DNS name or an address.
    pub fn host(mut self, host: &str) -> Self {
        self.names.push(host.to_owned());
        self.own.hosts.push(host.to_owned());
        self
    }

    /// Keeps the `caBundle` in this MutatingWebhookConfiguration.
    pub fn mutating(self, name: &str) -> Self {
        self.target(ConfigurationKind::Mutating, name)
    }

    /// Keeps the `caBundle` in this ValidatingWebhookConfiguration.
    pub fn validating(self, name: &str) -> Self {
        self.target(ConfigurationKind::Validating, name)
    }

    /// Keeps the `caBundle` of the conversion in this CustomResourceDefinition.
    pub fn definition(self, name: &str) -> Self {
        self.target(ConfigurationKind::Definition, name)
    }

    /// How long a certificate and its authority last. Each is replaced after two thirds of its time. Default: 90 days
    /// and five years.
    pub fn lasts(mut self, certificate: Duration, authority: Duration) -> Self {
        self.certificate_lasts = certificate;
        self.authority_lasts = authority;
        self
    }

    /// How long the next authority is in all configurations before it signs. Default: five minutes.
    pub fn overlap(mut self, overlap: Duration) -> Self {
        self.overlap = overlap;
        self
    }

    /// Reads the time from `clock` instead of the system, for tests.
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    fn target(mut self, place: ConfigurationKind, name: &str) -> Self {
        self.targets.push(Target { place, name: name.to_owned() });
        self
    }

    /// Keeps the certificate valid, published and trusted for as long as the future is polled.
    pub(crate) async fn keep(self, publisher: &Publisher) -> CertificateError {
        let changed = Arc::new(Notify::new());
        let factory = InformerFactory::new(self.client.clone());
        let mut registrations = vec![self.watch(
            &factory,
            ApiResource::erase::<Secret>(&()),
            Scope::Namespace(self.namespace.clone()),
            &self.secret,
            &changed,
        )];
        for Target { place, name } in &self.targets {
            registrations.push(self.watch(&factory, place.resource(), Scope::All, name, &changed));
        }
        let _running = factory.start();
        let mut backoff = Backoff::new(Limits::default());
        loop {
            match self.pass(publisher).await {
                Ok(until) => {
                    publisher.set_problem(None);
                    let wait =
                        Duration::from_secs(until.saturating_sub(self.now()).max(1).cast_unsigned()).min(PATIENCE);
                    tokio::select! {
                        () = changed.notified() => {}
                        () = tokio::time::sleep(wait) => {}
                    }
                }
                Err(error) => {
                    let error = Chain(&error).to_string();
                    tracing::warn!(error, "cannot look after the certificates of the webhooks");
                    publisher.set_problem(Some(error));
                    tokio::time::sleep(backoff.next(Instant::now(), rand::random())).await;
                }
            }
        }
    }

    /// Wakes the keeper when an object changes.
    fn watch(
        &self,
        factory: &InformerFactory,
        resource: ApiResource,
        scope: Scope,
        name: &str,
        changed: &Arc<Notify>,
    ) -> impl Sized + use<> {
        let selection = Selection::new(scope).fields(format!("metadata.name={name}"));
        let informer = factory.informer_with::<PartialObjectMeta<DynamicObject>>(&resource, selection);
        let changed = Arc::clone(changed);
        informer.add_handler(handler_fn(move |_| changed.notify_one()))
    }

    /// Attempts until nothing is due. Returns the time of the next due step, in seconds since 1970.
    async fn pass(&self, publisher: &Publisher) -> Result<i64, SelfSignedError> {
        for _ in 0..CONFLICTS_MAX {
            if let Pass::Done { until } = self.attempt(publisher).await? {
                return Ok(until);
            }
        }
        Err(SelfSignedError::Conflicts { secret: self.secret_key() })
    }

    async fn attempt(&self, publisher: &Publisher) -> Result<Pass, SelfSignedError> {
        let now = self.now();
        let (secret, stored) = self.read().await?;
        let facts = stored.as_ref().map(|stored| stored.facts(&self.names)).transpose();
        let facts = facts.map_err(|error| self.foreign(&error))?;
        let step = plan::due(facts.as_ref(), now, i64::try_from(self.overlap.as_secs()).unwrap_or(i64::MAX));
        let new = Stored::after(stored.as_ref(), step, &self.wanted(), now)
            .map_err(|source| SelfSignedError::Issue { names: self.names.clone(), source })?;
        if let Some(new) = new {
            if self.write(secret, &new).await? {
                tracing::info!(secret = self.secret_key(), ?step, "the certificates of the webhooks were renewed");
            }
            // The Secret is read again by every replica, this one included, so that the certificate served is the one
            // stored.
            return Ok(Pass::Again);
        }
        let (Some(stored), Step::Wait { until }) = (stored, step) else { return Ok(Pass::Again) };
        self.publish(publisher, &stored)?;
        // The remaining objects are written although one cannot be.
        let mut failed = None;
        for target in &self.targets {
            match self.trust(target, &stored).await {
                Ok(Pass::Again) => return Ok(Pass::Again),
                Ok(Pass::Done { .. }) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if let Some(published) = stored.published(now) {
            self.write(secret, &published).await?;
            return Ok(Pass::Again);
        }
        Ok(Pass::Done { until })
    }

    /// Serves the stored certificate.
    fn publish(&self, publisher: &Publisher, stored: &Stored) -> Result<(), SelfSignedError> {
        let pair = stored.certificate();
        let served = Served::of_pem(pair.certificate.as_bytes(), pair.key.as_bytes(), "the secret")
            .map_err(|source| SelfSignedError::Certificate { secret: self.secret_key(), source })?;
        let is_known = publisher.served().borrow().as_ref().is_some_and(|known| known.is_same(&served));
        if !is_known {
            publisher.publish(served);
        }
        Ok(())
    }

    /// Writes the bundle into one object.
    async fn trust(&self, target: &Target, stored: &Stored) -> Result<Pass, SelfSignedError> {
        let done = Ok(Pass::Done { until: i64::MAX });
        let resource = target.place.resource();
        let what = format!("{} {:?}", resource.kind, target.name);
        let failed = |verb, source| SelfSignedError::Api { verb, what: what.clone(), source };
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let found = api.get_opt(&target.name).await.map_err(|source| failed("read", source))?;
        let Some(object) = found else { return done };
        let bundle = base64(&stored.bundle());
        let mut changed =
            serde_json::to_value(&object).map_err(|error| failed("read", kube::Error::SerdeError(error)))?;
        let n_changed = self.own.trust(target.place, &mut changed, &bundle);
        if n_changed == 0 {
            return done;
        }
        // The Secret is read only now, so that its bundle is at least as new as the one it replaces.
        let (_, latest) = self.read().await?;
        if latest.is_none_or(|latest| latest.bundle() != stored.bundle()) {
            return Ok(Pass::Again);
        }
        let changed: DynamicObject =
            serde_json::from_value(changed).map_err(|error| failed("update", kube::Error::SerdeError(error)))?;
        match api.replace(&target.name, &params(), &changed).await {
            Ok(_) => {
                tracing::info!(
                    kind = resource.kind,
                    name = target.name,
                    n_changed,
                    "the caBundle of webhooks was written"
                );
                done
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Pass::Again),
            Err(source) => Err(failed("update", source)),
        }
    }

    async fn read(&self) -> Result<(Option<Secret>, Option<Stored>), SelfSignedError> {
        let secret = self.secrets().get_opt(&self.secret).await.map_err(|source| self.failed("read", source))?;
        let stored = secret.as_ref().map(Stored::read).transpose().map_err(|error| self.foreign(&error))?;
        Ok((secret, stored.flatten()))
    }

    /// Stores `new` in place of the Secret that was read. Returns false if another writer came first.
    async fn write(&self, secret: Option<Secret>, new: &Stored) -> Result<bool, SelfSignedError> {
        let written = match secret {
            None => {
                let metadata = ObjectMeta {
                    name: Some(self.secret.clone()),
                    namespace: Some(self.namespace.clone()),
                    ..ObjectMeta::default()
                };
                let mut secret = Secret { metadata, type_: Some("kubernetes.io/tls".to_owned()), ..Secret::default() };
                new.write(&mut secret);
                self.secrets().create(&params(), &secret).await
            }
            Some(mut secret) => {
                new.write(&mut secret);
                self.secrets().replace(&self.secret, &params(), &secret).await
            }
        };
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            // The Secret was deleted meanwhile. A missing namespace stays an error.
            Err(kube::Error::Api(status)) if status.code == 404 && status.message.contains(&*self.secret) => Ok(false),
            Err(source) => Err(self.failed("write", source)),
        }
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn secret_key(&self) -> String {
        format!("{}/{}", self.namespace, self.secret)
    }

    fn wanted(&self) -> CertificateSpec {
        CertificateSpec {
            name: self.secret.clone(),
            names: self.names.clone(),
            certificate_lasts: self.certificate_lasts,
            authority_lasts: self.authority_lasts,
        }
    }

    fn foreign(&self, error: &Foreign) -> SelfSignedError {
        SelfSignedError::Foreign { secret: self.secret_key(), reason: error.to_string() }
    }

    fn failed(&self, verb: &'static str, source: kube::Error) -> SelfSignedError {
        SelfSignedError::Api { verb, what: format!("{} {}", Secret::kind(&()), self.secret_key()), source }
    }

    /// The current time, in seconds since 1970.
    fn now(&self) -> i64 {
        (self.clock)().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed()
    }
}

impl fmt::Debug for SelfSigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelfSigned")
            .field("secret", &self.secret_key())
            .field("names", &self.names)
            .field("targets", &self.targets)
            .finish_non_exhaustive()
    }
}

fn params() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

fn base64(text: &str) -> String {
    // Kubernetes writes bytes as base64, and so does its type for them.
    match serde_json::to_value(ByteString(text.as_bytes().to_vec())) {
        Ok(Value::String(text)) => text,
        other => unreachable!("bytes are written as text, got {other:?}"),
    }
}
