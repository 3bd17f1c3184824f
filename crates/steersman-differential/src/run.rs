//! A run: objects are made on both servers, then cases are drawn, asked and compared. A replay does so with the answers of an earlier run in
//! place of a kube-apiserver.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use anyhow::Context as _;
use futures::StreamExt as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::accepted::Accepted;
use crate::answer::{Answer, has_new_time, is_new_time};
use crate::corpus::{self, Recorded};
use crate::difference::Difference;
use crate::report::{Finding, Report};
use crate::requests::case::Case;
use crate::requests::kind::{Kind, NAMESPACE, kinds};
use crate::requests::schema::Schemas;
use crate::requests::seeds;
use crate::server::{Request, Server};
use crate::shrink::shrink;
use crate::{Common, Compare, Replay};

/// How often a server is asked whether a custom kind is served, 100 ms apart.
const ATTEMPTS: usize = 300;

/// The two servers, and what exists on both.
pub(crate) struct Servers<'a> {
    upstream: Server,
    ours: Server,
    pub(crate) kinds: Vec<Kind<'a>>,
    /// The objects of the kinds as the kube-apiserver stores them, without what differs from server to server.
    stored: Vec<Value>,
    /// The uids and versions of those objects.
    upstream_names: Vec<Names>,
    our_names: Vec<Names>,
}

/// The values that a server has given an object. A request names them by tokens, because each server gives others.
#[derive(Clone, Default)]
struct Names {
    uid: String,
    version: String,
    /// The times in the object, in their order.
    times: Vec<String>,
}

pub(crate) async fn compare(options: &Compare) -> anyhow::Result<Report> {
    let common = &options.common;
    let upstream = Server::wait_for(&options.upstream, &options.upstream_ca, &common.token).await?;
    let ours = Server::wait_for(&common.server, &common.server_ca, &common.token).await?;
    let accepted = Accepted::read(common.accepted.as_deref())?;
    for server in [&upstream, &ours] {
        prepare(server).await?;
    }
    let schemas = Schemas::read(&upstream).await?;
    let kinds = kinds(&upstream, &schemas, seeds::objects()?, &options.only).await?;
    let mut asked =
        Servers { upstream, ours, stored: Vec::new(), upstream_names: Vec::new(), our_names: Vec::new(), kinds };
    let mut report = Report { n_cases: options.cases, found: asked.create_all().await? };
    let cases = (0..options.cases).map(|number| {
        let mut rng = StdRng::seed_from_u64(options.seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        let index = number % asked.kinds.len();
        Case::draw(&mut rng, number, index, &asked.kinds[index], &asked.stored[index])
    });
    let seen = Mutex::new(HashSet::new());
    let judged: Vec<anyhow::Result<(Recorded, Option<Finding>)>> = futures::stream::iter(cases)
        .map(|case| asked.judge(case, &seen))
        .buffer_unordered(common.jobs.max(1))
        .collect()
        .await;
    let mut recorded = Vec::with_capacity(judged.len());
    for judged in judged {
        let (case, found) = judged?;
        // A case that both answer in different ways would fail each replay until the difference is gone, and times of this kube-apiserver are
        // in no object of another server.
        let has_time = serde_json::from_str(&case.request.body).is_ok_and(|body| has_new_time(&body));
        if !has_time && found.as_ref().is_none_or(|found| accepted.has(&found.signature)) {
            recorded.push(case);
        }
        report.found.extend(found);
    }
    finish(&mut report, &accepted, common)?;
    if let Some(path) = &options.record {
        recorded.sort_by_key(|case| case.number);
        corpus::write(path, &recorded)?;
        println!("\n{} cases are recorded in {}", recorded.len(), path.display());
    }
    Ok(report)
}

/// Sends the cases of a corpus to a server.
pub(crate) async fn replay(options: &Replay) -> anyhow::Result<Report> {
    let common = &options.common;
    let ours = Server::wait_for(&common.server, &common.server_ca, &common.token).await?;
    let accepted = Accepted::read(common.accepted.as_deref())?;
    let cases = corpus::read(&options.corpus)?;
    prepare(&ours).await?;
    let schemas = Schemas::read(&ours).await?;
    let mut names = HashMap::new();
    for kind in kinds(&ours, &schemas, seeds::objects()?, "").await? {
        let [create, apply] = kind.seeding();
        let made = ours.send(&create).await?;
        anyhow::ensure!(
            made.status < 300 || made.status == 409,
            "the seed of {} {} is refused: {}",
            kind.plural,
            kind.index,
            made.body["message"]
        );
        // The kube-apiserver refuses some of these too.
        ours.send(&apply).await?;
        let path = kind.object_path();
        let object = ours.get(&path).await?;
        names.insert(path, Names::of(&object));
    }
    let (ours, names, n_cases) = (&ours, &names, cases.len());
    let found: Vec<anyhow::Result<Option<Finding>>> = futures::stream::iter(cases)
        .map(|case| async move {
            let Recorded { number, subject, object, request, answer: upstream } = case;
            let names =
                names.get(&object).with_context(|| format!("case {number} needs {object}, which no seed makes"))?;
            let ours = one(ours, &request, names).await;
            Ok(Difference::find(&upstream, &ours).map(|difference| {
                let signature = format!("{} {subject} {}", difference.class, difference.detail);
                let places = String::new();
                Finding { number, signature, places, difference, request, upstream, ours, is_accepted: false }
            }))
        })
        .buffer_unordered(common.jobs.max(1))
        .collect()
        .await;
    let mut report = Report { n_cases, found: Vec::new() };
    for found in found {
        report.found.extend(found?);
    }
    finish(&mut report, &accepted, common)?;
    Ok(report)
}

/// Marks what is accepted, and prints the report.
fn finish(report: &mut Report, accepted: &Accepted, common: &Common) -> anyhow::Result<()> {
    for found in &mut report.found {
        found.is_accepted = accepted.has(&found.signature);
    }
    report.found.sort_by_key(|found| found.number);
    report.print();
    if let Some(path) = &common.json {
        report.write_json(path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Makes the namespace, the ServiceAccount of the Pods, and the custom kind.
pub(crate) async fn prepare(server: &Server) -> anyhow::Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    server.send(&Request::write("POST", "/api/v1/namespaces", &namespace)).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    server.send(&Request::write("POST", format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), &account)).await?;
    for definition in seeds::definitions()? {
        let at = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let reply = server.send(&Request::write("POST", at, &definition)).await?;
        anyhow::ensure!(reply.status < 300 || reply.status == 409, "the custom kind is refused: {}", reply.body);
        let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
        let prefix = format!("/apis/{}/v1", group.as_str().unwrap_or_default());
        let collection = format!("{prefix}/namespaces/{{namespace}}/{}", plural.as_str().unwrap_or_default());
        let mut attempts = 0;
        loop {
            let is_served = server.get(&prefix).await.is_ok();
            if is_served && Schemas::read(server).await?.posted(&prefix, &collection).is_some() {
                break;
            }
            attempts += 1;
            anyhow::ensure!(attempts < ATTEMPTS, "{prefix} is not served");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

// === impl Servers ===

impl Servers<'_> {
    /// Makes the object of every kind on both servers, by a client and by an apply, and says where they differ already.
    async fn create_all(&mut self) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        let (mut usable, mut refused) = (Vec::new(), Vec::new());
        for kind in std::mem::take(&mut self.kinds) {
            let [create, apply] = kind.seeding();
            let (there, here) = futures::try_join!(self.upstream.send(&create), self.ours.send(&create))?;
            let is_there = there.status < 300 || there.status == 409;
            if !is_there {
                refused
                    .push(format!("the seed of {} {} is refused: {}", kind.plural, kind.index, there.body["message"]));
                continue;
            }
            if here.status != there.status {
                let (upstream, ours) = (Answer::new(there, &create, ""), Answer::new(here, &create, ""));
                if let Some(difference) = Difference::find(&upstream, &ours) {
                    found.push(self.found_in_seed(&kind, difference, create, upstream, ours));
                }
                continue;
            }
            let (there, here) = futures::try_join!(self.upstream.send(&apply), self.ours.send(&apply))?;
            let (upstream, ours) = (Answer::new(there, &apply, ""), Answer::new(here, &apply, ""));
            if let Some(difference) = Difference::find(&upstream, &ours) {
                found.push(self.found_in_seed(&kind, difference, apply, upstream, ours));
            }
            usable.push(kind);
        }
        anyhow::ensure!(refused.is_empty(), "{}", refused.join("\n"));
        for kind in &usable {
            let path = kind.object_path();
            let (mut there, here) = futures::try_join!(self.upstream.get(&path), self.ours.get(&path))?;
            self.upstream_names.push(Names::of(&there));
            self.our_names.push(Names::of(&here));
            hide_times(&mut there, &mut 0);
            if let Some(metadata) = there["metadata"].as_object_mut() {
                for name in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
                    metadata.remove(name);
                }
            }
            // Labels of a Job hold its uid.
            let uid = &self.upstream_names.last().map(|names| names.uid.clone()).unwrap_or_default();
            self.stored.push(serde_json::from_str(&there.to_string().replace(uid, "{uid}"))?);
        }
        self.kinds = usable;
        Ok(found)
    }

    fn found_in_seed(
        &self,
        kind: &Kind<'_>,
        difference: Difference,
        request: Request,
        upstream: Answer,
        ours: Answer,
    ) -> Finding {
        let signature = format!("{} Seed {} {}", difference.class, kind.plural, difference.detail);
        let places = String::new();
        Finding { number: 0, signature, places, difference, request, upstream, ours, is_accepted: false }
    }

    /// Asks both servers.
    pub(crate) async fn ask(&self, case: &Case) -> (Request, Answer, Answer, Option<Difference>) {
        let request = case.request(&self.kinds[case.kind], &self.stored[case.kind]);
        let upstream = one(&self.upstream, &request, &self.upstream_names[case.kind]);
        let ours = one(&self.ours, &request, &self.our_names[case.kind]);
        let (upstream, ours) = futures::join!(upstream, ours);
        let difference = Difference::find(&upstream, &ours);
        (request, upstream, ours, difference)
    }

    /// Asks both servers, and makes the first case of each signature as small as it gets.
    async fn judge(&self, case: Case, seen: &Mutex<HashSet<String>>) -> anyhow::Result<(Recorded, Option<Finding>)> {
        let (mut request, mut upstream, mut ours, difference) = self.ask(&case).await;
        let kind = &self.kinds[case.kind];
        let subject = format!("{:?} {}", case.verb, kind.plural);
        let recorded = Recorded {
            number: case.number,
            subject: subject.clone(),
            object: kind.object_path(),
            request: request.clone(),
            answer: upstream.clone(),
        };
        let Some(difference) = difference else { return Ok((recorded, None)) };
        let signature = format!("{} {subject} {}", difference.class, difference.detail);
        let is_new = seen.lock().map_err(|_| anyhow::anyhow!("a case panicked"))?.insert(signature.clone());
        let mut places = case.places();
        if is_new {
            let smallest = shrink(self, &case, &difference).await;
            (request, upstream, ours, _) = self.ask(&smallest).await;
            places = smallest.places();
        }
        let number = case.number;
        let found = Finding { number, signature, places, difference, request, upstream, ours, is_accepted: false };
        Ok((recorded, Some(found)))
    }
}

/// Sends a request with the version and uid that the object has on this server.
async fn one(server: &Server, request: &Request, names: &Names) -> Answer {
    let mut reply = server.ask(&Request { body: names.fill(&request.body), ..request.clone() }).await;
    // A loop of the server may have written the object since its version was read.
    if reply.status == 409 && request.body.contains("{rv}") {
        let path = request.path.split('?').next().unwrap_or_default();
        let now = Names::of(&server.get(path).await.unwrap_or_default());
        reply = server.ask(&Request { body: now.fill(&request.body), ..request.clone() }).await;
    }
    Answer::new(reply, request, &names.uid)
}

// === impl Names ===

impl Names {
    fn of(object: &Value) -> Names {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        Names { uid: text("uid"), version: text("resourceVersion"), times: hide_times(&mut object.clone(), &mut 0) }
    }

    /// A body with the values of this server in place of their tokens.
    fn fill(&self, body: &str) -> String {
        let filled = body.replace("{rv}", &self.version).replace("{uid}", &self.uid);
        let times = self.times.iter().enumerate();
        times.fold(filled, |filled, (number, time)| filled.replace(&time_token(number), time))
    }
}

/// The text that stands for a time of an object, which differs from server to server.
fn time_token(number: usize) -> String {
    format!("{{time {number}}}")
}

/// Replaces the times that a server has written into an object, beside its metadata, by their tokens, and returns them.
fn hide_times(value: &mut Value, number: &mut usize) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter_mut().flat_map(|item| hide_times(item, number)).collect(),
        Value::Object(fields) => {
            let below = fields.iter_mut().filter(|(name, _)| *name != "metadata");
            below.flat_map(|(_, value)| hide_times(value, number)).collect()
        }
        Value::String(text) if is_new_time(text) => {
            let time = std::mem::replace(text, time_token(*number));
            *number += 1;
            vec![time]
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_sent_the_times_that_it_has_written() {
        let object =
            |time: &str| json!({"metadata": {"uid": "u"}, "status": {"times": ["2024-01-01T00:00:00Z", time]}});
        let mut sent = object("2026-01-01T00:00:01Z");
        hide_times(&mut sent, &mut 0);
        let ours = object("2026-01-01T00:00:02Z");
        assert_eq!(Names::of(&ours).fill(&sent.to_string()), ours.to_string());
    }
}
