//! Fragments of sidecars: a document with the fragment in YAML, one with a Pod in JSON; or both made of the bytes. Injected twice a Pod is the
//! same, another fragment changes nothing any more, and what the Pod has of its own stays, in its order.

use crate::input::{self, Draw};
use serde_json::{Value, json};
use steersman_mesh::inject::merge::is_injected;
use steersman_mesh::inject::{Fragment, RECORD, inject};
use steersman_schema::{Definitions, Schema};

const OTHER: &str = "containers: [{name: other, image: other}]";
const LISTS: [&str; 3] = ["containers", "initContainers", "volumes"];

pub fn run(data: &[u8]) {
    let (text, pod) = match Draw::of(data) {
        Some(mut draw) => {
            let schema = |name: &str| Definitions::builtin().schema(name);
            let (Some(spec), Some(pod)) = (schema("io.k8s.api.core.v1.PodSpec"), schema("io.k8s.api.core.v1.Pod")) else { return };
            (fragment(&mut draw, spec).to_string(), draw.fitting(pod, 0))
        }
        None => {
            let parts = input::documents(data);
            let Some(text) = parts.first().and_then(|part| std::str::from_utf8(part).ok()) else { return };
            let pod = parts.get(1).and_then(|part| input::tree(part));
            (text.to_owned(), pod.unwrap_or_else(|| json!({"spec": {"containers": [{"name": "web"}]}})))
        }
    };
    let Ok(fragment) = Fragment::parse(&text) else { return };
    assert_eq!(Fragment::parse(&text).as_ref(), Ok(&fragment), "{text:?} is read alike");
    let Ok(once) = inject(&pod, &fragment) else { return };
    assert_eq!(inject(&once, &fragment).as_ref(), Ok(&once), "{pod} with {text:?}, twice");
    if once == pod {
        return;
    }
    assert!(is_injected(&once), "{once}");
    let other = Fragment::parse(OTHER).expect("invariant: this is a fragment");
    assert_eq!(inject(&once, &other).as_ref(), Ok(&once), "{pod} with another fragment than {text:?}");
    // A Pod that came with a record may have lost a former sidecar, whose volumes are then replaced.
    if pod["metadata"]["annotations"].get(RECORD).is_some() {
        return;
    }
    for list in LISTS {
        let ours = names(&once, list, &pod);
        let own: Vec<&Value> = items(&once, list).filter(|item| !ours.contains(&&item["name"])).collect();
        let before: Vec<&Value> = items(&pod, list).collect();
        assert_eq!(own, before, "{list} of {pod} with {text:?}");
    }
}

/// The names of a list that were not in it before.
fn names<'p>(pod: &'p Value, list: &str, before: &Value) -> Vec<&'p Value> {
    let known: Vec<&Value> = items(before, list).map(|item| &item["name"]).collect();
    items(pod, list).map(|item| &item["name"]).filter(|name| !known.contains(name)).collect()
}

fn items<'p>(pod: &'p Value, list: &str) -> impl Iterator<Item = &'p Value> {
    pod["spec"][list].as_array().into_iter().flatten()
}

/// A tree that is often a fragment: parts of a PodSpec, whose containers have names and images.
fn fragment(draw: &mut Draw<'_>, spec: &Schema) -> Value {
    let mut drawn = draw.fitting(spec, 0);
    let mut fragment = json!({"containers": [{"name": "envoy", "image": "envoy"}]});
    for list in LISTS {
        if draw.once_in(3) {
            continue;
        }
        let mut part = drawn.get_mut(list).map(Value::take).unwrap_or_default();
        for (at, container) in part.as_array_mut().into_iter().flatten().enumerate() {
            if list != "volumes" && container.is_object() {
                container["name"] = format!("{}-{at}", list.to_lowercase()).into();
                container["image"] = "a".into();
                container["volumeMounts"] = Value::Null;
            }
        }
        fragment[list] = part;
    }
    fragment
}
