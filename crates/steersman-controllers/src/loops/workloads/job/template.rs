//! Builds the Pods of a Job.

use crate::loops::workloads::job::pass::Order;
use crate::loops::workloads::job::{FINALIZER, index};
use crate::shared::pods::control;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use kube::ResourceExt as _;

const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The longest prefix of a generated name.
const GENERATED_NAME_MAX: usize = 58;

/// The common part of all Pods of a Job.
pub(crate) struct Template {
    job: String,
    pod: Pod,
}

impl Template {
    pub(crate) fn of(job: &Job) -> Template {
        let template = job.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
        let mut pod = control::from_template(job, &template);
        let finalizers = pod.metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
        }
        Template { job: job.name_any(), pod }
    }

    pub(crate) fn pod(&self, order: &Order) -> Pod {
        let mut pod = self.pod.clone();
        let Some(index) = order.index else { return pod };
        let metadata = &mut pod.metadata;
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(index::COMPLETION_INDEX.to_owned(), index.to_string());
        if let Some((n_failures, n_ignored)) = order.n_failures {
            annotations.insert(index::FAILURE_COUNT.to_owned(), n_failures.to_string());
            if n_ignored > 0 {
                annotations.insert(index::IGNORED_FAILURE_COUNT.to_owned(), n_ignored.to_string());
            }
        }
        metadata.labels.get_or_insert_default().insert(index::COMPLETION_INDEX.to_owned(), index.to_string());
        metadata.generate_name = Some(generate_name(&self.job, index));
        let spec = pod.spec.get_or_insert_default();
        spec.hostname = Some(format!("{}-{index}", self.job));
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            add_index_variable(container);
        }
        pod
    }
}

fn generate_name(job: &str, index: i32) -> String {
    let end = format!("-{index}-");
    let length = job.floor_char_boundary(GENERATED_NAME_MAX.saturating_sub(end.len()));
    format!("{}{end}", &job[..length])
}

fn add_index_variable(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == INDEX_VARIABLE) {
        return;
    }
    let field = ObjectFieldSelector {
        api_version: None,
        field_path: format!("metadata.labels['{}']", index::COMPLETION_INDEX),
    };
    variables.push(EnvVar {
        name: INDEX_VARIABLE.to_owned(),
        value: None,
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job() -> Job {
        let template = json!({
            "metadata": {"labels": {"app": "j"}, "finalizers": ["own"]},
            "spec": {"initContainers": [{"name": "i", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "mine"}]}], "containers": [{"name": "c"}]},
        });
        let object = json!({"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": {"template": template}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn pods_have_the_finalizer_and_the_job_as_controller() {
        let pod = Template::of(&job()).pod(&Order { index: None, n_failures: None });
        assert_eq!(pod.metadata.finalizers.unwrap(), ["own", FINALIZER]);
        assert_eq!(pod.metadata.generate_name.unwrap(), "j-");
        let owner = &pod.metadata.owner_references.unwrap()[0];
        assert_eq!((&*owner.uid, owner.controller, owner.block_owner_deletion), ("u", Some(true), Some(true)));
        assert_eq!(pod.spec.unwrap().containers[0].env, None);
    }

    #[test]
    fn pods_of_an_index_know_it() {
        let pod = Template::of(&job()).pod(&Order { index: Some(3), n_failures: Some((2, 1)) });
        assert_eq!(pod.metadata.generate_name.as_deref(), Some("j-3-"));
        assert_eq!(pod.metadata.labels.as_ref().unwrap()[index::COMPLETION_INDEX], "3");
        assert_eq!((index::of(&pod), index::n_failures(&pod), index::n_ignored_failures(&pod)), (Some(3), 2, 1));
        let spec = pod.spec.unwrap();
        assert_eq!(spec.hostname.as_deref(), Some("j-3"));
        let field =
            spec.containers[0].env.as_ref().unwrap()[0].value_from.as_ref().unwrap().field_ref.as_ref().unwrap();
        assert_eq!(field.field_path, "metadata.labels['batch.kubernetes.io/job-completion-index']");
        assert_eq!(spec.init_containers.unwrap()[0].env.as_ref().unwrap().len(), 1);
    }

    #[test]
    fn a_long_name_leaves_room_for_the_index() {
        assert_eq!(generate_name(&"x".repeat(63), 17), format!("{}-17-", "x".repeat(54)));
    }
}
