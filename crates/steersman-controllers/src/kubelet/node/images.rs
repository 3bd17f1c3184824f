//! The images of a simulated node. None is ever fetched.

use crate::kubelet::stage::seed::seed;
use std::collections::BTreeSet;

/// The number of remembered images. Beyond it, the alphabetically first are dropped and would be pulled again.
const IMAGES_MAX: usize = 1_000;

/// The images that were pulled to a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Images {
    names: BTreeSet<String>,
}

impl Images {
    pub(crate) fn has(&self, image: &str) -> bool {
        self.names.contains(image)
    }

    pub(crate) fn add(&mut self, image: &str) {
        if self.names.len() >= IMAGES_MAX {
            self.names.pop_first();
        }
        self.names.insert(image.to_owned());
    }

    /// The size of an image in bytes, always the same for an image.
    pub(crate) fn size(image: &str) -> u64 {
        20_000_000 + seed(image) % 180_000_000
    }

    /// The images, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

/// The full name of an image: with the registry, and a tag or digest.
pub(crate) fn reference(image: &str) -> String {
    let has_registry = image.split_once('/').is_some_and(|(host, _)| host.contains(['.', ':']) || host == "localhost");
    let named = match (has_registry, image.contains('/')) {
        (true, _) => image.to_owned(),
        (false, true) => format!("docker.io/{image}"),
        (false, false) => format!("docker.io/library/{image}"),
    };
    let last = named.rsplit('/').next().unwrap_or_default();
    if last.contains([':', '@']) { named } else { format!("{named}:latest") }
}

/// The id of an image: the repository, and a digest that identifies the content.
pub(crate) fn id(image: &str) -> String {
    let named = reference(image);
    if named.contains("@sha256:") {
        return named;
    }
    let at = named.rfind(':').unwrap_or(named.len());
    let part = |n: u8| seed((&named, n));
    let repository = named.get(..at).unwrap_or_default();
    format!("{repository}@sha256:{:016x}{:016x}{:016x}{:016x}", part(0), part(1), part(2), part(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_as_runtimes_do() {
        assert_eq!(reference("nginx"), "docker.io/library/nginx:latest");
        assert_eq!(reference("team/app:1"), "docker.io/team/app:1");
        assert_eq!(reference("registry.k8s.io/pause:3.9"), "registry.k8s.io/pause:3.9");
        assert_eq!(reference("localhost:5000/app"), "localhost:5000/app:latest");
    }

    #[test]
    fn an_image_is_the_same_on_every_node() {
        assert_eq!(id("nginx"), id("docker.io/library/nginx:latest"));
        assert!(id("nginx:1").starts_with("docker.io/library/nginx@sha256:"));
    }

    #[test]
    fn memory_is_bounded() {
        let mut images = Images::default();
        (0..2 * IMAGES_MAX).for_each(|n| images.add(&n.to_string()));
        assert_eq!(images.names.len(), IMAGES_MAX);
    }
}
