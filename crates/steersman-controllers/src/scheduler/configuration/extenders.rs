//! `extenders`: servers that filter and score nodes, agree to preemptions and bind Pods beside the plugins.
//!
//! Follows `validateExtenders` and `NewHTTPExtender` of kube-scheduler. A URL, a certificate or a file that cannot be used
//! is refused here, where kube-scheduler notices most of these at the first call.

mod tls;

use crate::scheduler::configuration::extenders::tls::TlsDocument;
use crate::scheduler::configuration::field::{ConfigurationError, Path};
use http::Uri;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use kube::Config;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use steersman_machinery::{duration, name};

/// How long an answer may take if the document says nothing.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A server that takes part in the decisions about Pods.
#[derive(Debug)]
pub(crate) struct Extender {
    /// The position among the extenders, in the order in which they are asked.
    pub(crate) at: usize,
    /// `urlPrefix`, by which messages name the extender.
    pub(crate) url: String,
    pub(crate) filter: Option<Verb>,
    pub(crate) prioritize: Option<Verb>,
    pub(crate) preempt: Option<Verb>,
    pub(crate) bind: Option<Verb>,
    /// The factor of its scores.
    pub(crate) weight: i64,
    pub(crate) timeout: Duration,
    pub(crate) nodes: NodeForm,
    pub(crate) on_failure: OnFailure,
    /// The resources of which a Pod must ask for one to interest the extender; empty for all Pods.
    managed: BTreeSet<String>,
    /// The managed resources that nodes need not have.
    ignored: Vec<String>,
    /// How it is connected to. The URL has no path.
    pub(crate) connection: Config,
}

/// A call that an extender answers.
#[derive(Clone, Debug)]
pub(crate) struct Verb {
    /// The last part of the URL.
    pub(crate) name: String,
    pub(crate) url: Uri,
}

/// The form of nodes in requests and answers: `nodeCacheCapable`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NodeForm {
    Names,
    Objects,
}

/// The consequence of a call that fails: `ignorable`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OnFailure {
    FailThePod,
    GoOnWithout,
}

/// An entry of `extenders`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExtenderDocument {
    bind_verb: Option<String>,
    #[serde(rename = "enableHTTPS")]
    enable_https: Option<bool>,
    filter_verb: Option<String>,
    #[serde(rename = "httpTimeout")]
    timeout: Option<String>,
    ignorable: Option<bool>,
    managed_resources: Option<Vec<ManagedResource>>,
    node_cache_capable: Option<bool>,
    preempt_verb: Option<String>,
    prioritize_verb: Option<String>,
    tls_config: Option<TlsDocument>,
    url_prefix: Option<String>,
    weight: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ManagedResource {
    name: Option<String>,
    ignored_by_scheduler: Option<bool>,
}

/// Reads the extenders, in the order in which they are asked: those that are ignorable come last.
pub(super) fn extenders(
    documents: &[serde_json::Value],
    path: &Path,
) -> Result<Arc<[Arc<Extender>]>, ConfigurationError> {
    let mut extenders: Vec<Extender> = Vec::new();
    let mut managers: BTreeMap<String, usize> = BTreeMap::new();
    for (at, document) in documents.iter().enumerate() {
        let path = path.index(at);
        let document: ExtenderDocument = path.decode(document)?;
        for (of_extender, resource) in document.managed_resources.iter().flatten().enumerate() {
            let name = resource.name.clone().unwrap_or_default();
            if let Some(earlier) = managers.insert(name.clone(), at) {
                let why = format!("{name:?} is managed by extenders[{earlier}] already");
                return Err(path.field("managedResources").index(of_extender).field("name").wrong(why));
            }
        }
        extenders.push(document.extender(&path)?);
    }
    let n_binders = extenders.iter().filter(|extender| extender.bind.is_some()).count();
    if 1 < n_binders {
        return Err(path.wrong(format!("{n_binders} extenders have a bindVerb: only one can bind Pods")));
    }
    extenders.sort_by_key(|extender| extender.on_failure == OnFailure::GoOnWithout);
    let number = |(at, extender)| Arc::new(Extender { at, ..extender });
    Ok(extenders.into_iter().enumerate().map(number).collect())
}

/// The resources that nodes need not have, because an extender counts them.
pub(super) fn ignored_resources(extenders: &[Arc<Extender>]) -> Vec<String> {
    extenders.iter().flat_map(|extender| &extender.ignored).cloned().collect()
}

// === impl Extender ===

impl Extender {
    /// Whether the extender is asked about a Pod.
    pub(crate) fn is_interested_in(&self, spec: &PodSpec) -> bool {
        let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        self.managed.is_empty() || containers.any(|container| self.manages_resources_of(container))
    }

    fn manages_resources_of(&self, container: &Container) -> bool {
        let Some(resources) = &container.resources else { return false };
        let amounts = [&resources.requests, &resources.limits];
        amounts.into_iter().flatten().flat_map(|amounts| amounts.keys()).any(|name| self.managed.contains(name))
    }
}

// === impl ExtenderDocument ===

impl ExtenderDocument {
    fn extender(self, path: &Path) -> Result<Extender, ConfigurationError> {
        let url = self.url_prefix.unwrap_or_default();
        let server = server_of(&url, &path.field("urlPrefix"))?;
        let verb = |name: Option<String>, field: &str| verb(&url, name, &path.field(field));
        let (filter, bind) = (verb(self.filter_verb, "filterVerb")?, verb(self.bind_verb, "bindVerb")?);
        let prioritize = verb(self.prioritize_verb, "prioritizeVerb")?;
        let preempt = verb(self.preempt_verb, "preemptVerb")?;
        let weight = self.weight.unwrap_or_default();
        if prioritize.is_some() && weight <= 0 {
            let why = format!("{weight} is not greater than 0, which an extender with a prioritizeVerb needs");
            return Err(path.field("weight").wrong(why));
        }
        let (mut managed, mut ignored) = (BTreeSet::new(), Vec::new());
        for (at, resource) in self.managed_resources.into_iter().flatten().enumerate() {
            let name = resource.name.unwrap_or_default();
            check_resource(&name, &path.field("managedResources").index(at).field("name"))?;
            ignored.extend(resource.ignored_by_scheduler.unwrap_or_default().then(|| name.clone()));
            managed.insert(name);
        }
        let timeout = timeout(self.timeout.as_deref(), &path.field("httpTimeout"))?;
        let mut connection = Config::new(server);
        // The whole call has a limit, and a call that failed is the scheduler's to repeat.
        connection.connect_timeout = Some(timeout);
        connection.write_timeout = None;
        connection.default_retry = false;
        let is_https = self.enable_https.unwrap_or_default();
        let encryption = if is_https { tls::Encryption::Wanted } else { tls::Encryption::OfUrl };
        tls::configure(&mut connection, self.tls_config, encryption, path)?;
        let is_ignorable = self.ignorable.unwrap_or_default();
        Ok(Extender {
            at: 0,
            url,
            filter,
            prioritize,
            preempt,
            bind,
            weight,
            timeout,
            nodes: if self.node_cache_capable.unwrap_or_default() { NodeForm::Names } else { NodeForm::Objects },
            on_failure: if is_ignorable { OnFailure::GoOnWithout } else { OnFailure::FailThePod },
            managed,
            ignored,
            connection,
        })
    }
}

/// The scheme and the authority of a URL, with the path that all URLs have.
fn server_of(url: &str, path: &Path) -> Result<Uri, ConfigurationError> {
    let refused = |why: &str| path.wrong(format!("{url:?} is not possible: {why}"));
    let parsed: Uri = url.parse().map_err(|_| refused("it is no URL"))?;
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (parsed.scheme_str(), parsed.authority()) else {
        return Err(refused("it must begin with http:// or https:// and a host"));
    };
    if authority.as_str().contains('@') {
        return Err(refused("a user is not supported"));
    }
    if url.contains(['?', '#']) {
        return Err(refused("verbs are appended to it, so that it can have no query and no fragment"));
    }
    Uri::builder()
        .scheme(scheme)
        .authority(authority.clone())
        .path_and_query("/")
        .build()
        .map_err(|_| refused("it is no URL"))
}

/// The call of a verb; `None` if the document has none.
fn verb(prefix: &str, name: Option<String>, path: &Path) -> Result<Option<Verb>, ConfigurationError> {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(None) };
    match format!("{}/{name}", prefix.trim_end_matches('/')).parse() {
        Ok(url) => Ok(Some(Verb { name, url })),
        Err(_) => Err(path.wrong(format!("{name:?} is not possible: it cannot be the end of a URL"))),
    }
}

fn timeout(text: Option<&str>, path: &Path) -> Result<Duration, ConfigurationError> {
    let Some(text) = text else { return Ok(TIMEOUT) };
    let nanos = duration::parse(text).map_err(|error| path.wrong(error.to_string()))?;
    match u64::try_from(nanos) {
        Ok(0) => Ok(TIMEOUT),
        Ok(nanos) => Ok(Duration::from_nanos(nanos)),
        Err(_) => Err(path.wrong(format!("{text:?} is negative"))),
    }
}

/// Only extended resources can be managed.
fn check_resource(resource: &str, path: &Path) -> Result<(), ConfigurationError> {
    if let Some(fault) = name::qualified(resource).first() {
        return Err(path.wrong(format!("{resource:?} is not possible: {fault}")));
    }
    let is_extended = resource.contains('/')
        && !resource.contains("kubernetes.io/")
        && !resource.starts_with("requests.")
        && name::qualified(&format!("requests.{resource}")).is_empty();
    match is_extended {
        true => Ok(()),
        false => Err(path.wrong(format!("{resource:?} is no extended resource, such as example.com/gpu"))),
    }
}
