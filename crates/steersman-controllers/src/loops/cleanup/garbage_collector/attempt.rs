//! Acts on one object that the graph yields, in requests to the server.
//!
//! The graph may lag behind, so it is never the only ground for a deletion: either the owners are known not to exist
//! and the resourceVersion is a precondition, or the object and its owners are read first. Follows upstream's
//! `garbagecollector.go` and `operations.go`.

use crate::loops::cleanup::garbage_collector::graph::{Effects, FOREGROUND, Graph, Node, ORPHAN, Plan};
use crate::loops::cleanup::garbage_collector::identity::{Identity, Kind, Uid};
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PropagationPolicy;
use kube::discovery::Scope;
use parking_lot::Mutex;
use std::error::Error;

/// The number of dependents of one owner that are orphaned concurrently.
const ORPHANED_AT_ONCE: usize = 16;
/// How often a deletion, or the removal of a finalizer, is tried on an object that changes meanwhile.
const TRIES: usize = 5;

/// The requests of the garbage collector to the API server.
pub(super) trait Server: Send + Sync {
    type Error: Error + Send + Sync + 'static;

    /// The scope of a kind; `None` if it is not served.
    fn scope(&self, kind: &Kind) -> Option<Scope>;

    /// The metadata of the object that has this kind, namespace and name now, whatever its uid.
    fn get(&self, object: &Identity) -> impl Future<Output = Result<Option<ObjectMeta>, Self::Error>> + Send;

    /// Deletes exactly this object, and only this version if one is given.
    fn delete(
        &self,
        object: &Identity,
        version: Option<&str>,
        policy: PropagationPolicy,
    ) -> impl Future<Output = Result<Answer, Self::Error>> + Send;

    /// Removes the references to these owners from exactly this object, and only from this version if one is given.
    fn remove_owners(
        &self,
        object: &Identity,
        version: Option<&str>,
        owners: &[Uid],
    ) -> impl Future<Output = Result<Answer, Self::Error>> + Send;

    /// Makes references no longer block the deletion of their owners. Returns the metadata after it; `None` if the
    /// object is gone or has changed.
    fn unblock_owners(
        &self,
        object: &Identity,
        references: &[OwnerReference],
    ) -> impl Future<Output = Result<Option<ObjectMeta>, Self::Error>> + Send;

    /// Replaces the finalizers of this version of an object.
    fn set_finalizers(
        &self,
        object: &Identity,
        version: &str,
        finalizers: &[String],
    ) -> impl Future<Output = Result<Answer, Self::Error>> + Send;
}

/// The server's answer to a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// The object is another one, or has changed.
    Conflict,
    Done,
    Gone,
}

/// When an object is processed again if no event arrives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    /// After a pause, which grows each time.
    Later,
    /// Only after an event.
    Never,
    /// Once the server serves other kinds than now.
    WhenServed,
}

/// The owners of an object by their state.
#[derive(Debug, Default, PartialEq)]
struct Owners {
    dangling: Vec<Uid>,
    solid: usize,
    /// Owners that wait for their dependents to be deleted.
    waiting: Vec<Uid>,
}

/// Why the existence of an owner could not be determined.
enum Unclear<E> {
    Failed(E),
    /// The object is cluster-scoped and its owner is namespaced. Retrying cannot help.
    Invalid,
    NotServed,
}

#[derive(Debug, PartialEq)]
enum Verdict {
    Delete(PropagationPolicy),
    /// Delete in the foreground, because its owner is deleted so and it has dependents.
    DeleteAfterDependents,
    Keep,
    RemoveOwners(Vec<Uid>),
}

/// Deletes an object that has no owner left, removes dangling owner references, or releases an object that waited for
/// its dependents.
///
/// # Errors
/// When the server refuses or does not answer. The object has to be processed again.
pub(super) async fn to_delete<S: Server>(
    graph: &Mutex<Graph>,
    server: &S,
    uid: &Uid,
) -> Result<(Effects, Next), S::Error> {
    let plan = graph.lock().plan(uid);
    match plan {
        Plan::Delete { object, version, policy } => match server.delete(&object, Some(&version), policy).await? {
            Answer::Done => Ok((Effects::default(), Next::Never)),
            Answer::Conflict | Answer::Gone => {
                let node = graph.lock().node(uid).cloned();
                match node {
                    Some(node) => look(graph, server, node).await,
                    None => Ok((Effects::default(), Next::Never)),
                }
            }
        },
        Plan::Look(node) => look(graph, server, node).await,
        Plan::Nothing => Ok((Effects::default(), Next::Never)),
        Plan::Release(object) => Ok((Effects::default(), remove_finalizer(server, &object, FOREGROUND).await?)),
    }
}

/// Removes the references to an owner from all its dependents, and then releases the owner.
///
/// # Errors
/// When the server refuses or does not answer. The owner has to be processed again.
pub(super) async fn to_orphan<S: Server>(graph: &Mutex<Graph>, server: &S, uid: &Uid) -> Result<Next, S::Error> {
    let (owner, dependents) = {
        let graph = graph.lock();
        let Some(node) = graph.node(uid).filter(|node| node.is_to_orphan()) else { return Ok(Next::Never) };
        (node.identity.clone(), graph.dependents_of(uid))
    };
    let owners = std::slice::from_ref(uid);
    let orphaned = futures::stream::iter(dependents)
        .map(|dependent| async move { server.remove_owners(&dependent, None, owners).await })
        .buffer_unordered(ORPHANED_AT_ONCE);
    let mut answers = std::pin::pin!(orphaned);
    let mut next = Next::Never;
    while let Some(answer) = answers.next().await {
        if answer? == Answer::Conflict {
            next = Next::Later;
        }
    }
    match next {
        Next::Never => remove_finalizer(server, &owner, ORPHAN).await,
        next => Ok(next),
    }
}

async fn look<S: Server>(graph: &Mutex<Graph>, server: &S, node: Node) -> Result<(Effects, Next), S::Error> {
    let none = |next| Ok((Effects::default(), next));
    // A virtual node stays in the queue until it has been observed: otherwise an object that is observed a moment later
    // would stay virtual.
    let done = if node.is_virtual() { Next::Later } else { Next::Never };
    let object = node.identity;
    match server.scope(&object.kind) {
        None => return none(Next::WhenServed),
        // The reference of a cluster-scoped object led to this node.
        Some(Scope::Namespaced) if !object.is_namespaced() => return none(Next::Never),
        Some(_) => {}
    }
    let live = server.get(&object).await?.filter(|live| is_object(live, &object));
    let Some(live) = live else { return Ok((graph.lock().is_absent(&object), Next::Never)) };
    if live.owner_references.as_ref().is_none_or(Vec::is_empty) {
        return none(done);
    }
    let owners = match classify(graph, server, &object, &live).await {
        Ok(owners) => owners,
        Err(Unclear::Failed(error)) => return Err(error),
        Err(Unclear::Invalid) => return none(Next::Never),
        Err(Unclear::NotServed) => return none(Next::WhenServed),
    };
    let has_dependents = graph.lock().has_dependents(&object.uid);
    match verdict(owners, has_dependents, &live) {
        Verdict::Delete(policy) => delete(graph, server, &object, &live, policy, done).await,
        Verdict::DeleteAfterDependents => {
            let live = match unblock_circle(graph, server, &object, live).await? {
                Some(live) => live,
                None => return none(Next::Later),
            };
            delete(graph, server, &object, &live, PropagationPolicy::Foreground, done).await
        }
        Verdict::Keep => none(done),
        // Only in the version that was read: a dangling reference may have been corrected since.
        Verdict::RemoveOwners(owners) => {
            match server.remove_owners(&object, live.resource_version.as_deref(), &owners).await? {
                Answer::Done => none(done),
                Answer::Conflict | Answer::Gone => none(Next::Later),
            }
        }
    }
}

fn verdict(owners: Owners, has_dependents: bool, live: &ObjectMeta) -> Verdict {
    let Owners { dangling, solid, waiting } = owners;
    let has = |finalizer: &str| live.finalizers.iter().flatten().any(|one| one == finalizer);
    if solid > 0 {
        // An owner that waits for its dependents would wait for this one, which stays.
        let leads_nowhere: Vec<Uid> = dangling.into_iter().chain(waiting).collect();
        return if leads_nowhere.is_empty() { Verdict::Keep } else { Verdict::RemoveOwners(leads_nowhere) };
    }
    if !waiting.is_empty() && has_dependents {
        return Verdict::DeleteAfterDependents;
    }
    Verdict::Delete(if has(ORPHAN) {
        PropagationPolicy::Orphan
    } else if has(FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    })
}

async fn classify<S: Server>(
    graph: &Mutex<Graph>,
    server: &S,
    object: &Identity,
    live: &ObjectMeta,
) -> Result<Owners, Unclear<S::Error>> {
    let mut owners = Owners::default();
    for reference in live.owner_references.iter().flatten() {
        let owner = {
            let mut graph = graph.lock();
            let names = graph.names();
            let owner = Identity {
                kind: names.kind(&reference.api_version, &reference.kind),
                namespace: names.namespace(live.namespace.as_deref().unwrap_or_default()),
                name: reference.name.as_str().into(),
                uid: Uid::from(reference.uid.as_str()),
            };
            if graph.is_known_absent(&owner, &owner.namespace) {
                owners.dangling.push(owner.uid);
                continue;
            }
            owner
        };
        let key = match server.scope(&owner.kind) {
            None => return Err(Unclear::NotServed),
            Some(Scope::Cluster) => owner.within(&graph.lock().names().namespace("")),
            Some(Scope::Namespaced) if !owner.is_namespaced() => {
                tracing::debug!(%object, %owner, "an object of the cluster refers to a namespaced owner");
                return Err(Unclear::Invalid);
            }
            Some(Scope::Namespaced) => owner,
        };
        match server.get(&key).await.map_err(Unclear::Failed)?.filter(|found| is_object(found, &key)) {
            None => {
                owners.dangling.push(key.uid.clone());
                graph.lock().remember_absent(key);
            }
            Some(found) if is_waiting(&found) => owners.waiting.push(key.uid),
            Some(_) => owners.solid += 1,
        }
        // An object may have very many owners, and a server in this process answers at once: others get a turn in between.
        tokio::task::yield_now().await;
    }
    Ok(owners)
}

/// If a dependent of the object waits for its own dependents, the two may wait for each other, so the object no longer
/// blocks its owners. `None` if the object has changed.
async fn unblock_circle<S: Server>(
    graph: &Mutex<Graph>,
    server: &S,
    object: &Identity,
    live: ObjectMeta,
) -> Result<Option<ObjectMeta>, S::Error> {
    let references = live.owner_references.as_deref().unwrap_or_default();
    let blocking: Vec<OwnerReference> =
        references.iter().filter(|reference| reference.block_owner_deletion == Some(true)).cloned().collect();
    if blocking.is_empty() || !graph.lock().may_be_circle(&object.uid) {
        return Ok(Some(live));
    }
    server.unblock_owners(object, &blocking).await
}

/// Deletes the object that was read. If it has changed since but has the same owners, it is deleted nevertheless:
/// otherwise an object that changes all the time would never be deleted.
async fn delete<S: Server>(
    graph: &Mutex<Graph>,
    server: &S,
    object: &Identity,
    live: &ObjectMeta,
    policy: PropagationPolicy,
    done: Next,
) -> Result<(Effects, Next), S::Error> {
    let mut version = live.resource_version.clone();
    let mut answer = Answer::Conflict;
    for _ in 0..TRIES {
        answer = server.delete(object, version.as_deref(), policy.clone()).await?;
        if answer != Answer::Conflict {
            break;
        }
        match server.get(object).await? {
            None => answer = Answer::Gone,
            // Something else than its owners has changed.
            Some(now) if is_object(&now, object) && now.owner_references == live.owner_references => {
                version = now.resource_version;
                continue;
            }
            Some(_) => {}
        }
        break;
    }
    match answer {
        Answer::Conflict => Ok((Effects::default(), Next::Later)),
        Answer::Done => Ok((Effects::default(), done)),
        Answer::Gone => Ok((graph.lock().is_absent(object), Next::Never)),
    }
}

async fn remove_finalizer<S: Server>(server: &S, object: &Identity, finalizer: &str) -> Result<Next, S::Error> {
    for _ in 0..TRIES {
        let Some(live) = server.get(object).await?.filter(|live| is_object(live, object)) else {
            return Ok(Next::Never);
        };
        let present = live.finalizers.unwrap_or_default();
        let left: Vec<String> = present.iter().filter(|one| *one != finalizer).cloned().collect();
        if left.len() == present.len() {
            return Ok(Next::Never);
        }
        let version = live.resource_version.unwrap_or_default();
        match server.set_finalizers(object, &version, &left).await? {
            Answer::Conflict => {}
            Answer::Done | Answer::Gone => return Ok(Next::Never),
        }
    }
    Ok(Next::Later)
}

fn is_object(live: &ObjectMeta, object: &Identity) -> bool {
    Uid::from(live.uid.as_deref().unwrap_or_default()) == object.uid
}

fn is_waiting(owner: &ObjectMeta) -> bool {
    owner.deletion_timestamp.is_some() && owner.finalizers.iter().flatten().any(|one| one == FOREGROUND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// A server without objects, which answers at once.
    struct Empty;

    impl Server for Empty {
        type Error = Infallible;

        fn scope(&self, _: &Kind) -> Option<Scope> {
            Some(Scope::Cluster)
        }

        async fn get(&self, _: &Identity) -> Result<Option<ObjectMeta>, Infallible> {
            Ok(None)
        }

        async fn delete(&self, _: &Identity, _: Option<&str>, _: PropagationPolicy) -> Result<Answer, Infallible> {
            Ok(Answer::Gone)
        }

        async fn remove_owners(&self, _: &Identity, _: Option<&str>, _: &[Uid]) -> Result<Answer, Infallible> {
            Ok(Answer::Gone)
        }

        async fn unblock_owners(&self, _: &Identity, _: &[OwnerReference]) -> Result<Option<ObjectMeta>, Infallible> {
            Ok(None)
        }

        async fn set_finalizers(&self, _: &Identity, _: &str, _: &[String]) -> Result<Answer, Infallible> {
            Ok(Answer::Gone)
        }
    }

    #[tokio::test]
    async fn others_get_a_turn_between_any_two_owners_that_are_looked_for() {
        let graph = Mutex::new(Graph::new());
        let object = {
            let mut graph = graph.lock();
            let names = graph.names();
            let kind = names.kind("v1", "ConfigMap");
            Identity { kind, namespace: names.namespace(""), name: "a".into(), uid: Uid::from("a") }
        };
        let owner =
            |n: usize| OwnerReference { uid: format!("owner-{n}"), name: "b".to_owned(), ..OwnerReference::default() };
        let live = ObjectMeta { owner_references: Some((0..100).map(owner).collect()), ..ObjectMeta::default() };
        let mut classified = std::pin::pin!(classify(&graph, &Empty, &object, &live));
        let mut n_turns = 0;
        let owners = std::future::poll_fn(|cx| {
            n_turns += 1;
            classified.as_mut().poll(cx)
        });
        let Ok(owners) = owners.await else { panic!("all are absent") };
        assert_eq!((owners.dangling.len(), n_turns), (100, 101));
    }

    fn owners(dangling: &[&str], solid: usize, waiting: &[&str]) -> Owners {
        let uids = |texts: &[&str]| texts.iter().map(|text| Uid::from(*text)).collect();
        Owners { dangling: uids(dangling), solid, waiting: uids(waiting) }
    }

    #[test]
    fn a_solid_owner_keeps_and_the_references_beside_it_go() {
        let live = ObjectMeta::default();
        assert_eq!(verdict(owners(&[], 1, &[]), true, &live), Verdict::Keep);
        let gone = Verdict::RemoveOwners(vec![Uid::from("a"), Uid::from("b")]);
        assert_eq!(verdict(owners(&["a"], 2, &["b"]), true, &live), gone);
    }

    #[test]
    fn without_one_the_object_goes_in_the_way_that_its_finalizers_say() {
        let with =
            |finalizer: &str| ObjectMeta { finalizers: Some(vec![finalizer.to_owned()]), ..ObjectMeta::default() };
        let of = |live: &ObjectMeta| verdict(owners(&["a"], 0, &["b"]), false, live);
        assert_eq!(of(&ObjectMeta::default()), Verdict::Delete(PropagationPolicy::Background));
        assert_eq!(of(&with(ORPHAN)), Verdict::Delete(PropagationPolicy::Orphan));
        assert_eq!(of(&with(FOREGROUND)), Verdict::Delete(PropagationPolicy::Foreground));
    }

    #[test]
    fn below_an_owner_that_waits_what_has_dependents_waits_for_them() {
        let live = ObjectMeta::default();
        assert_eq!(verdict(owners(&[], 0, &["b"]), true, &live), Verdict::DeleteAfterDependents);
        assert_eq!(verdict(owners(&["b"], 0, &[]), true, &live), Verdict::Delete(PropagationPolicy::Background));
    }
}
