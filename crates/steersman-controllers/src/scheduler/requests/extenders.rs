//! The requests to extenders. Follows `HTTPExtender`, `findNodesThatPassExtenders`, `prioritizeNodes` and `callExtenders` of
//! kube-scheduler.
//!
//! A call has a time limit, and its answer a limit of bytes that grows with the request: an answer repeats at most what
//! was asked. Redirects are not followed, which would lead a Pod to another server than the configured one.

use crate::scheduler::cluster::pod::Placed;
use crate::scheduler::configuration::{Configuration, Extender, NodeForm, OnFailure, Verb};
use crate::scheduler::cycle::Remedy;
use crate::scheduler::cycle::preempt::Candidate;
use crate::scheduler::requests::calls::{Calls, Outcome};
use crate::scheduler::requests::wire::{
    self, BindAnswer, BindRequest, FilterAnswer, NodeList, NodesRequest, RawJson, ScoreAnswer, Uid, VictimsAnswer,
    VictimsOf, VictimsRequest,
};
use crate::scheduler::state::{About, Agreed, Allowed, OnNode, PodRef, Question};
use bytes::Bytes;
use futures::future::join_all;
use hashbrown::{HashMap, HashSet};
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;
use steersman::metrics::Metrics;
use steersman::{Lister, ObjectKey};

/// The least limit of an answer.
const ANSWER_BYTES_MIN: usize = 4 << 20;
/// The limit of an answer as a multiple of the request.
const ANSWER_PER_REQUEST: usize = 2;
/// An answer of this size is decoded by another thread, so that other tasks go on.
const LARGE_BYTES: usize = 256 << 10;
/// Other tasks get a turn after this number of objects.
const OBJECTS_AT_ONCE: usize = 64;

/// The longest reason and error of an extender that is repeated.
const REASON_BYTES_MAX: usize = 1_024;
/// The most different reasons of an answer, since a condition has them all.
const REASONS_MAX: usize = 64;
const MORE_REASONS: &str = "node(s) were rejected by an extender for other reasons";

/// The greatest score of a plugin by that of an extender.
const SCORE_SCALE: i64 = 100 / 10;

/// The extenders of a configuration.
pub(crate) struct Extenders {
    /// By their position.
    clients: Vec<Result<Client, String>>,
    has_binder: bool,
    objects: Objects,
    calls: Calls,
}

/// Reads the objects that requests contain.
pub(crate) struct Objects {
    pub(crate) node: Find<str, Node>,
    pub(crate) pod: Find<ObjectKey, Pod>,
}

/// Finds an object by its name or key.
type Find<N, O> = Box<dyn Fn(&N) -> Option<Arc<O>> + Send + Sync>;

// === impl Objects ===

impl Objects {
    /// Reads the caches of informers.
    pub(crate) fn of(nodes: Lister<Node>, pods: Lister<Pod>) -> Objects {
        Objects {
            node: Box::new(move |name| nodes.get(&ObjectKey::cluster(name)).ok()),
            pod: Box::new(move |key| pods.get(key).ok()),
        }
    }

    /// Exactly this Pod, and not a later one of its name.
    fn pod(&self, pod: &PodRef) -> Result<Arc<Pod>, String> {
        let found = (self.pod)(&pod.key).filter(|found| found.metadata.uid.as_deref() == Some(&*pod.uid));
        found.ok_or_else(|| format!("pod {} is gone", pod.key))
    }

    /// The nodes that exist, in JSON.
    async fn nodes(&self, names: &[Arc<str>]) -> Result<Vec<RawJson>, String> {
        let mut items = Vec::with_capacity(names.len());
        for names in names.chunks(OBJECTS_AT_ONCE) {
            for node in names.iter().filter_map(|name| (self.node)(name)) {
                items.push(raw(&node)?);
            }
            tokio::task::yield_now().await;
        }
        Ok(items)
    }

    /// Exactly these Pods; `None` if one of them is gone.
    fn victims(&self, pods: &[Arc<Placed>]) -> Option<Vec<Arc<Pod>>> {
        let exact = |found: &Arc<Pod>, pod: &Placed| found.metadata.uid.as_deref() == Some(&*pod.uid);
        pods.iter().map(|pod| (self.pod)(&pod.key).filter(|found| exact(found, pod))).collect()
    }
}

fn raw(object: &impl Serialize) -> Result<RawJson, String> {
    serde_json::value::to_raw_value(object).map_err(|error| error.to_string())
}

// === impl Extenders ===

impl Extenders {
    /// Connects to the extenders at the first call. Needs a runtime if there are any.
    pub(crate) fn new(configuration: &Configuration, objects: Objects) -> Extenders {
        let connect = |extender: &Arc<Extender>| match ClientBuilder::try_from(extender.connection.clone()) {
            Ok(builder) => Ok(builder.build()),
            Err(error) => Err(chain(&error)),
        };
        let clients = configuration.extenders().iter().map(connect).collect();
        let has_binder = configuration.extenders().iter().any(|extender| extender.bind.is_some());
        Extenders { clients, has_binder, objects, calls: Calls::default() }
    }

    /// Registers the number of calls.
    pub(crate) fn observe(self, metrics: &Metrics) -> Extenders {
        if !self.clients.is_empty() {
            self.calls.observe(metrics);
        }
        self
    }

    /// Whether one of them binds Pods.
    pub(crate) fn has_binder(&self) -> bool {
        self.has_binder
    }

    /// Asks the extenders one after the other.
    ///
    /// # Errors
    /// The failure of an extender that is not ignorable.
    pub(crate) async fn ask(&self, question: Question) -> Result<Agreed, String> {
        let Question { pod, extenders, about } = question;
        let pod = self.objects.pod(&pod)?;
        match about {
            About::Nodes(nodes) => self.allowed(&pod, &extenders, nodes).await.map(Agreed::Nodes),
            About::Victims(on_nodes) => self.victims(&pod, &extenders, on_nodes).await.map(Agreed::Victims),
        }
    }

    /// Lets an extender bind a Pod. Returns whether it did: `false` if it failed and is ignorable.
    ///
    /// # Errors
    /// The failure of an extender that is not ignorable.
    pub(crate) async fn bind(&self, extender: &Extender, pod: &PodRef, node: &str) -> Result<bool, String> {
        let Some(verb) = &extender.bind else { return Ok(false) };
        let namespace = pod.key.namespace().unwrap_or_default();
        let request = BindRequest { name: pod.key.name(), namespace, uid: &pod.uid, node };
        let answer = match self.call(extender, verb, &request).await {
            Ok(BindAnswer { error }) if error.is_empty() => Ok(()),
            Ok(BindAnswer { error }) => Err(cut(error)),
            Err(why) => Err(why),
        };
        self.settle(extender, verb, answer).map(|bound| bound.is_some())
    }

    async fn allowed(&self, pod: &Pod, extenders: &[Arc<Extender>], nodes: Vec<Arc<str>>) -> Result<Allowed, String> {
        let mut allowed = Allowed { nodes, ..Allowed::default() };
        for extender in extenders {
            let Some(verb) = &extender.filter else { continue };
            if allowed.nodes.is_empty() {
                break;
            }
            let answer = match self.about_nodes(extender, verb, pod, &allowed.nodes).await {
                Ok(answer) => passed(answer, extender, &allowed.nodes),
                Err(why) => Err(why),
            };
            if let Some((nodes, refused)) = self.settle(extender, verb, answer)? {
                allowed.nodes = nodes;
                allowed.refused.extend(refused);
            }
        }
        if 1 < allowed.nodes.len() {
            let scorers = extenders.iter().filter_map(|extender| Some((extender, extender.prioritize.as_ref()?)));
            let scores = join_all(scorers.map(|(extender, verb)| self.scores(extender, verb, pod, &allowed.nodes)));
            let mut sums: HashMap<Arc<str>, i64> = allowed.nodes.iter().map(|node| (Arc::clone(node), 0)).collect();
            for (node, score) in scores.await.into_iter().flatten() {
                if let Some(sum) = sums.get_mut(node.as_str()) {
                    *sum = sum.saturating_add(score);
                }
            }
            allowed.scores = sums;
        }
        Ok(allowed)
    }

    /// The scores of an extender, weighted. One that fails gives none.
    async fn scores(&self, extender: &Extender, verb: &Verb, pod: &Pod, nodes: &[Arc<str>]) -> Vec<(String, i64)> {
        let answer: Result<Option<Vec<ScoreAnswer>>, String> = self.about_nodes(extender, verb, pod, nodes).await;
        match answer {
            Ok(answer) => {
                self.calls.count(extender, verb, Outcome::Answered);
                let factor = extender.weight.saturating_mul(SCORE_SCALE);
                let scores = answer.into_iter().flatten();
                scores.map(|ScoreAnswer { host, score }| (host, score.saturating_mul(factor))).collect()
            }
            Err(error) => {
                self.calls.count(extender, verb, Outcome::Ignored);
                tracing::warn!(extender = extender.url, error, "an extender gives nodes no scores");
                Vec::new()
            }
        }
    }

    async fn about_nodes<T: DeserializeOwned + Send + 'static>(
        &self,
        extender: &Extender,
        verb: &Verb,
        pod: &Pod,
        names: &[Arc<str>],
    ) -> Result<T, String> {
        let (nodes, node_names) = match extender.nodes {
            NodeForm::Names => (None, Some(names)),
            NodeForm::Objects => (Some(NodeList { items: self.objects.nodes(names).await? }), None),
        };
        self.call(extender, verb, &NodesRequest { pod, nodes, node_names }).await
    }

    async fn victims(
        &self,
        pod: &Pod,
        extenders: &[Arc<Extender>],
        on_nodes: Vec<OnNode>,
    ) -> Result<Vec<Candidate>, String> {
        let nodes: HashMap<&str, &[Arc<Placed>]> =
            on_nodes.iter().map(|on_node| (&*on_node.candidate.node, on_node.pods.as_slice())).collect();
        let mut candidates: Vec<Candidate> = on_nodes.iter().map(|on_node| on_node.candidate.clone()).collect();
        for extender in extenders {
            let Some(verb) = &extender.preempt else { continue };
            // With a victim less, a candidate is another one, which the next attempt at the Pod finds.
            let current = candidates.into_iter().filter_map(|it| Some((self.objects.victims(&it.victims)?, it)));
            let current: Vec<(Vec<Arc<Pod>>, Candidate)> = current.collect();
            if current.is_empty() {
                return Ok(Vec::new());
            }
            let answer = match self.about_victims(extender, verb, pod, &current).await {
                Ok(answer) => chosen(answer, extender, &nodes),
                Err(why) => Err(why),
            };
            let chosen = self.settle(extender, verb, answer)?;
            candidates = chosen.unwrap_or_else(|| current.into_iter().map(|(_, candidate)| candidate).collect());
        }
        Ok(candidates)
    }

    async fn about_victims(
        &self,
        extender: &Extender,
        verb: &Verb,
        pod: &Pod,
        candidates: &[(Vec<Arc<Pod>>, Candidate)],
    ) -> Result<VictimsAnswer, String> {
        let mut request = VictimsRequest { pod, node_name_to_victims: None, node_name_to_meta_victims: None };
        match extender.nodes {
            NodeForm::Names => {
                let mut all = BTreeMap::new();
                for (_, Candidate { node, victims, n_violations }) in candidates {
                    let pods = victims.iter().map(|victim| Uid(&victim.uid)).collect();
                    all.insert(&**node, VictimsOf { pods, n_violations: *n_violations });
                }
                request.node_name_to_meta_victims = Some(all);
            }
            NodeForm::Objects => {
                let mut all = BTreeMap::new();
                for (victims, Candidate { node, n_violations, .. }) in candidates {
                    let pods = victims.iter().map(raw).collect::<Result<Vec<RawJson>, String>>()?;
                    all.insert(&**node, VictimsOf { pods, n_violations: *n_violations });
                    tokio::task::yield_now().await;
                }
                request.node_name_to_victims = Some(all);
            }
        }
        self.call(extender, verb, &request).await
    }

    /// Sends a request and reads its answer, within the time of the extender.
    async fn call<T: DeserializeOwned + Send + 'static>(
        &self,
        extender: &Extender,
        verb: &Verb,
        request: &impl Serialize,
    ) -> Result<T, String> {
        let client = match self.clients.get(extender.at) {
            Some(Ok(client)) => client,
            Some(Err(why)) => return Err(why.clone()),
            None => return Err(format!("extender {} is not configured", extender.url)),
        };
        let body = serde_json::to_vec(request).map_err(|error| error.to_string())?;
        let bytes_max = ANSWER_BYTES_MIN.max(body.len().saturating_mul(ANSWER_PER_REQUEST));
        let failed = |why: String| format!("Post \"{}\": {why}", verb.url);
        let exchange = async {
            let request = Request::post(verb.url.clone()).header(CONTENT_TYPE, "application/json");
            let request = request.body(Body::from(body)).map_err(|error| failed(error.to_string()))?;
            let answer = client.send(request).await.map_err(|error| failed(chain(&error)))?;
            if answer.status() != StatusCode::OK {
                let (name, code) = (&verb.name, answer.status().as_u16());
                return Err(format!("failed {name} with extender at URL {}, code {code}", verb.url));
            }
            let body = Limited::new(answer.into_body(), bytes_max).collect().await.map_err(|error| {
                failed(match error.is::<LengthLimitError>() {
                    true => format!("the answer has more than {bytes_max} bytes"),
                    false => chain(&*error),
                })
            })?;
            Ok(body.to_bytes())
        };
        let body = match tokio::time::timeout(extender.timeout, exchange).await {
            Ok(body) => body?,
            Err(_) => {
                return Err(failed(format!("context deadline exceeded: no answer within {:?}", extender.timeout)));
            }
        };
        decode(body).await.map_err(|why| failed(format!("the answer cannot be read: {why}")))
    }

    /// Counts a call, and passes its answer on: `None` if it failed and the extender is ignorable.
    fn settle<T>(&self, extender: &Extender, verb: &Verb, answer: Result<T, String>) -> Result<Option<T>, String> {
        match (answer, extender.on_failure) {
            (Ok(answer), _) => {
                self.calls.count(extender, verb, Outcome::Answered);
                Ok(Some(answer))
            }
            (Err(error), OnFailure::GoOnWithout) => {
                self.calls.count(extender, verb, Outcome::Ignored);
                tracing::warn!(extender = extender.url, verb = verb.name, error, "an ignorable extender is skipped");
                Ok(None)
            }
            (Err(error), OnFailure::FailThePod) => {
                self.calls.count(extender, verb, Outcome::Failed);
                Err(error)
            }
        }
    }
}

async fn decode<T: DeserializeOwned + Send + 'static>(body: Bytes) -> Result<T, String> {
    if body.len() < LARGE_BYTES {
        return wire::read(&body).map_err(|error| error.to_string());
    }
    match tokio::task::spawn_blocking(move || wire::read(&body)).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

type Refused = BTreeMap<Arc<str>, (Remedy, String)>;

/// The nodes that pass an extender's filter, and the reasons for others. Names that were not asked about are an error
/// among the former, and are left out of the latter.
fn passed(answer: FilterAnswer, extender: &Extender, asked: &[Arc<str>]) -> Result<(Vec<Arc<str>>, Refused), String> {
    if !answer.error.is_empty() {
        return Err(cut(answer.error));
    }
    let known: HashMap<&str, &Arc<str>> = asked.iter().map(|name| (&**name, name)).collect();
    let names: Vec<String> = match (answer.node_names, answer.nodes) {
        (Some(names), _) if extender.nodes == NodeForm::Names => names,
        (_, Some(nodes)) => nodes.items.into_iter().map(|node| node.metadata.name).collect(),
        (_, None) => Vec::new(),
    };
    let mut seen: HashSet<&str> = HashSet::new();
    let mut nodes = Vec::with_capacity(names.len().min(asked.len()));
    for name in &names {
        let Some(node) = known.get(name.as_str()) else {
            let name = cut(name.clone());
            return Err(format!(
                "extender {:?} claims a filtered node {name:?} which is not found in the input node list",
                extender.url
            ));
        };
        if seen.insert(name) {
            nodes.push(Arc::clone(node));
        }
    }
    let mut refused = Refused::new();
    let mut reasons: BTreeSet<String> = BTreeSet::new();
    // A node in both maps is unresolvable.
    let of = |remedy| move |(name, reason): (String, Option<String>)| (name, reason, remedy);
    let all = answer.failed.into_iter().map(of(Remedy::Preemption));
    for (name, reason, remedy) in all.chain(answer.unresolvable.into_iter().map(of(Remedy::None))) {
        let Some(node) = known.get(name.as_str()) else { continue };
        let mut reason = cut(reason.unwrap_or_default());
        if !reasons.contains(&reason) {
            match reasons.len() < REASONS_MAX {
                true => _ = reasons.insert(reason.clone()),
                false => reason = MORE_REASONS.to_owned(),
            }
        }
        refused.insert(Arc::clone(node), (remedy, reason));
    }
    Ok((nodes, refused))
}

/// The candidates that an extender chooses, on nodes that it was asked about.
fn chosen(
    answer: VictimsAnswer,
    extender: &Extender,
    nodes: &HashMap<&str, &[Arc<Placed>]>,
) -> Result<Vec<Candidate>, String> {
    let mut candidates = Vec::new();
    for (name, victims) in answer.nodes {
        let Some((&node, &pods)) = nodes.get_key_value(name.as_str()) else {
            return Err(format!("nodeinfo not found for node name {:?}", cut(name)));
        };
        let by_uid: HashMap<&str, &Arc<Placed>> = pods.iter().map(|pod| (&*pod.uid, pod)).collect();
        let mut seen: HashSet<&str> = HashSet::new();
        let mut found: Vec<Arc<Placed>> = Vec::new();
        for victim in &victims.pods {
            let Some(pod) = by_uid.get(victim.uid.as_str()) else {
                let uid = cut(victim.uid.clone());
                return Err(format!(
                    "extender: {} claims to preempt pod (UID: {uid}) on node: {node}, but the pod is not found on that node",
                    extender.url
                ));
            };
            if seen.insert(&pod.uid) {
                found.push(Arc::clone(pod));
            }
        }
        match (found.is_empty(), extender.on_failure) {
            (true, OnFailure::GoOnWithout) => {}
            (true, OnFailure::FailThePod) => {
                return Err(format!("expected at least one victim pod on node {node:?}"));
            }
            (false, _) => {
                let n_violations = victims.n_violations;
                candidates.push(Candidate { node: Arc::from(node), victims: found, n_violations });
            }
        }
    }
    Ok(candidates)
}

/// The beginning of a text of an extender.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
    text
}

/// An error with its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let of_cause = cause.to_string();
        // Some errors repeat their cause.
        if !text.contains(&of_cause) {
            text = format!("{text}: {of_cause}");
        }
        next = cause.source();
    }
    cut(text)
}
