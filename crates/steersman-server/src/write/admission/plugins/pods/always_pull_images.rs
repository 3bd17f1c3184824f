//! `AlwaysPullImages`: makes every image of a pod be pulled when it starts, so that no pod runs an image that was
//! brought to the node with another user's credentials.

use crate::access::pod_references::items;
use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, forbidden, is_about_pod};
use futures::future::{self, BoxFuture};
use std::collections::BTreeSet;
use steersman_machinery::Value;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::{object_at, str_at};

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const ALWAYS: &str = "Always";

#[derive(Debug)]
pub(crate) struct AlwaysPullImages;

impl Plugin for AlwaysPullImages {
    fn handles(&self, _phase: Phase, action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        action != Action::Delete && is_about_pod(attributes)
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        if let Some(pod) = new.filter(|pod| !has_the_same_images(pod, review.old)) {
            pull(pod);
        }
        Box::pin(future::ready(Ok(())))
    }

    fn validate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let pod = new.filter(|pod| !has_the_same_images(pod, review.old));
        let fault = pod.and_then(|pod| fault(pod).map(|fault| forbidden(review, Some(pod), &fault.to_string())));
        Box::pin(future::ready(fault.map_or(Ok(()), Err)))
    }
}

/// Whether a change of a pod adds no image.
fn has_the_same_images(pod: &Value, old: Option<&Value>) -> bool {
    old.is_some_and(|old| images(pod).is_subset(&images(old)))
}

fn images(pod: &Value) -> BTreeSet<&str> {
    let containers = CONTAINERS.iter().flat_map(|list| items(pod, &["spec", list]));
    containers.map(|container| str_at(container, &["image"]).unwrap_or_default()).collect()
}

fn pull(pod: &mut Value) {
    let Some(spec) = object_at(pod, &["spec"]) else { return };
    for list in CONTAINERS {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            container.insert("imagePullPolicy".to_owned(), ALWAYS.into());
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut) {
            image.insert("pullPolicy".to_owned(), ALWAYS.into());
        }
    }
}

fn fault(pod: &Value) -> Option<Error> {
    let lists = CONTAINERS
        .iter()
        .map(|list| (*list, &["imagePullPolicy"][..]))
        .chain([("volumes", &["image", "pullPolicy"][..])]);
    lists.into_iter().find_map(|(list, field)| {
        items(pod, &["spec", list]).enumerate().find_map(|(index, item)| {
            let policy = str_at(item, field);
            // A volume that is not an image has no policy.
            let is_wrong =
                if list == "volumes" { policy.is_some_and(|policy| policy != ALWAYS) } else { policy != Some(ALWAYS) };
            let path = format!("spec.{list}[{index}].{}", field.join("."));
            is_wrong.then(|| Error::not_supported(&Path::new(path), policy.unwrap_or_default(), &[ALWAYS]))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_image_is_pulled() {
        let mut pod = json!({"spec": {
            "initContainers": [{"name": "i", "imagePullPolicy": "Never"}],
            "containers": [{"name": "c"}],
            "volumes": [{"name": "v", "image": {"reference": "r"}}, {"name": "e", "emptyDir": {}}],
        }});
        let why = "spec.initContainers[0].imagePullPolicy: Unsupported value: \"Never\": supported values: \"Always\"";
        assert_eq!(fault(&pod).unwrap().to_string(), why);
        pull(&mut pod);
        assert_eq!(pod["spec"]["initContainers"][0]["imagePullPolicy"], "Always");
        assert_eq!(
            pod["spec"]["volumes"],
            json!([{"name": "v", "image": {"reference": "r", "pullPolicy": "Always"}}, {"name": "e", "emptyDir": {}}])
        );
        assert!(fault(&pod).is_none());
    }

    #[test]
    fn a_change_without_a_new_image_is_left_alone() {
        let old = json!({"spec": {"containers": [{"image": "a"}]}});
        assert!(has_the_same_images(&old, Some(&old)));
        assert!(!has_the_same_images(&json!({"spec": {"containers": [{"image": "b"}]}}), Some(&old)));
        assert!(!has_the_same_images(&old, None));
    }
}
