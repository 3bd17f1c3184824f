//! Two servers on one etcd: what one has stored, the other must show as it is, versions and owners of fields included.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::requests::case::Case;
use crate::requests::kind::kinds;
use crate::requests::schema::Schemas;
use crate::requests::seeds;
use crate::run::prepare;
use crate::server::{Request, Server};
use crate::{Fill, Same};

/// The most differences that are printed.
const PRINTED_MAX: usize = 50;
/// Resources that are not stored: each server answers them for itself.
const NOT_STORED: [&str; 1] = ["/api/v1/componentstatuses"];

/// Makes objects of all kinds, most of them changed in a few places, and prints how many the server has taken.
pub(crate) async fn fill(options: &Fill) -> anyhow::Result<()> {
    let common = &options.common;
    let server = Server::wait_for(&common.server, &common.server_ca, &common.token).await?;
    prepare(&server).await?;
    let schemas = Schemas::read(&server).await?;
    let kinds = kinds(&server, &schemas, seeds::objects()?, "").await?;
    let requests = (0..options.objects).map(|number| {
        let mut rng = StdRng::seed_from_u64(options.seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        let index = number % kinds.len();
        let case = Case::draw_creation(&mut rng, number, index, &kinds[index]);
        let mut request = case.request(&kinds[index], &Value::Null);
        let mut body: Value = serde_json::from_str(&request.body).unwrap_or_default();
        if body["metadata"].is_object() && kinds[index].name().starts_with("base-") {
            body["metadata"]["name"] = json!(format!("made-{}-{number}", options.seed));
        }
        request.body = body.to_string();
        (kinds[index].plural.clone(), request)
    });
    let server = &server;
    let asked: Vec<(String, u16)> = futures::stream::iter(requests)
        .map(|(plural, request)| async move { (plural, server.ask(&request).await.status) })
        .buffer_unordered(common.jobs.max(1))
        .collect()
        .await;
    let taken: Vec<&String> = asked.iter().filter(|(_, status)| *status < 300).map(|(plural, _)| plural).collect();
    let n_kinds = taken.iter().collect::<BTreeSet<_>>().len();
    println!("{} objects of {n_kinds} kinds are made, {} refused", taken.len(), asked.len() - taken.len());
    let n_least = options.objects / 4;
    anyhow::ensure!(n_least <= taken.len(), "the server has taken less than a quarter of the objects");
    Ok(())
}

/// Compares all objects of two servers. Returns the number of those that differ.
pub(crate) async fn same(options: &Same) -> anyhow::Result<usize> {
    let common = &options.common;
    let upstream = Server::wait_for(&options.upstream, &options.upstream_ca, &common.token).await?;
    let ours = Server::wait_for(&common.server, &common.server_ca, &common.token).await?;
    let (there, here) = (lists(&upstream).await?, lists(&ours).await?);
    let mut differences = Vec::new();
    for path in there.difference(&here) {
        differences.push(format!("{path} is not served by {}", common.server));
    }
    let (mut n_objects, mut n_kinds) = (0, 0);
    for path in there.intersection(&here) {
        let (there, here) = futures::try_join!(items(&upstream, path), items(&ours, path))?;
        n_objects += there.len();
        n_kinds += usize::from(!there.is_empty());
        let names: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
        for name in names {
            let mut places = Vec::new();
            match (there.get(name), here.get(name)) {
                (Some(there), Some(here)) => compare(there, here, "", &mut places),
                (Some(_), None) => places.push("the second server does not have it".to_owned()),
                (None, _) => places.push("the first server does not have it".to_owned()),
            }
            if !places.is_empty() {
                differences.push(format!("{path} {name}: {}", places.join("; ")));
            }
        }
    }
    for difference in differences.iter().take(PRINTED_MAX) {
        println!("{difference}");
    }
    println!("{n_objects} objects of {n_kinds} kinds, {} of them differ", differences.len());
    anyhow::ensure!(0 < n_objects, "{} has no objects", options.upstream);
    Ok(differences.len())
}

/// The paths of all collections, in all versions.
async fn lists(server: &Server) -> anyhow::Result<BTreeSet<String>> {
    let mut prefixes = vec!["/api/v1".to_owned()];
    for group in server.get("/apis").await?["groups"].as_array().into_iter().flatten() {
        let versions = group["versions"].as_array().into_iter().flatten();
        prefixes.extend(versions.filter_map(|version| Some(format!("/apis/{}", version["groupVersion"].as_str()?))));
    }
    let mut paths = BTreeSet::new();
    for prefix in prefixes {
        // The group of an APIService whose server is not there is listed, and not answered.
        let reply = server.send(&Request::read(&*prefix)).await?;
        for resource in reply.body["resources"].as_array().into_iter().flatten() {
            let has_list = resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == "list"));
            let path = format!("{prefix}/{}", resource["name"].as_str().unwrap_or_default());
            if has_list && !NOT_STORED.contains(&&*path) {
                paths.insert(path);
            }
        }
    }
    Ok(paths)
}

/// The objects of a collection, by namespace and name.
async fn items(server: &Server, path: &str) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut list = server.get(path).await?;
    let Some(items) = list["items"].as_array_mut() else { return Ok(BTreeMap::new()) };
    let named = std::mem::take(items).into_iter().map(|item| {
        let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default();
        (format!("{}/{}", text("namespace"), text("name")), item)
    });
    Ok(named.collect())
}

fn compare(there: &Value, here: &Value, place: &str, places: &mut Vec<String>) {
    match (there, here) {
        (Value::Object(left), Value::Object(right)) => {
            let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names {
                match (left.get(name), right.get(name)) {
                    (Some(left), Some(right)) => compare(left, right, &format!("{place}.{name}"), places),
                    (left, right) => places.push(format!("{place}.{name}: {} | {}", shown(left), shown(right))),
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                compare(left, right, &format!("{place}[{index}]"), places);
            }
        }
        _ if there != here => places.push(format!("{place}: {} | {}", shown(Some(there)), shown(Some(here)))),
        _ => {}
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string().chars().take(100).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_differing_place_is_named() {
        let (there, here) = (
            json!({"a": 1, "b": {"c": [1, 2]}, "d": [1], "e": null}),
            json!({"a": 2, "b": {"c": [1, 3]}, "d": [1, 2]}),
        );
        let mut places = Vec::new();
        compare(&there, &here, "", &mut places);
        assert_eq!(places, [".a: 1 | 2", ".b.c[1]: 2 | 3", ".d: [1] | [1,2]", ".e: null | -"]);
        places.clear();
        compare(&there, &there, "", &mut places);
        assert!(places.is_empty());
    }
}
