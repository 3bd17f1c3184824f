//! The Secrets that a Pod refers to. Follows upstream's `VisitPodSecretNames`.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, Pod, PodSpec, Volume};

/// Whether a Pod refers to the Secret `name` of its namespace.
pub(super) fn has_secret(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let mut pulls = spec.image_pull_secrets.iter().flatten();
    pulls.any(|reference| reference.name == name)
        || is_in_environment(spec, name)
        || spec.volumes.iter().flatten().any(|volume| is_in_volume(volume, name))
}

fn is_in_environment(spec: &PodSpec, name: &str) -> bool {
    let is_in = |from: Option<&[EnvFromSource]>, variables: Option<&[EnvVar]>| {
        let all = from.unwrap_or_default().iter().filter_map(|source| source.secret_ref.as_ref());
        let keys = variables
            .unwrap_or_default()
            .iter()
            .filter_map(|variable| variable.value_from.as_ref()?.secret_key_ref.as_ref());
        all.map(|reference| &reference.name).chain(keys.map(|reference| &reference.name)).any(|found| found == name)
    };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    containers.into_iter().any(|container| is_in(container.env_from.as_deref(), container.env.as_deref()))
        || spec
            .ephemeral_containers
            .iter()
            .flatten()
            .any(|container| is_in(container.env_from.as_deref(), container.env.as_deref()))
}

fn is_in_volume(volume: &Volume, name: &str) -> bool {
    let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let projected = projected.filter_map(|source| Some(source.secret.as_ref()?.name.as_str()));
    let references = [
        volume.cephfs.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.cinder.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.csi.as_ref().and_then(|source| source.node_publish_secret_ref.as_ref()),
        volume.flex_volume.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.iscsi.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.rbd.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.scale_io.as_ref().map(|source| &source.secret_ref),
        volume.storageos.as_ref().and_then(|source| source.secret_ref.as_ref()),
    ];
    let named = [
        volume.azure_file.as_ref().map(|source| source.secret_name.as_str()),
        volume.secret.as_ref().and_then(|source| source.secret_name.as_deref()),
    ];
    let references = references.into_iter().flatten().map(|reference| reference.name.as_str());
    references.chain(named.into_iter().flatten()).chain(projected).any(|found| found == name)
}
