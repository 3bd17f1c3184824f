//! The file of `--scheduler-config`: the profiles and extenders of the scheduler.

use crate::Failure;
use crate::plane::controllers::Controllers;
use std::fs;
use std::path::Path;
use steersman_controllers::ControlLoop;
use steersman_controllers::scheduler::Configuration;

/// Reads the file, and the certificates that it names; without one, the default profile.
///
/// # Errors
/// When the file cannot be read or says what the scheduler does not do, and when the scheduler does not run.
pub(crate) fn configuration(path: Option<&Path>, controllers: &Controllers) -> Result<Configuration, Failure> {
    let Some(path) = path else { return Ok(Configuration::default()) };
    if !controllers.has(ControlLoop::SCHEDULER) {
        return Err(Failure::Refused(
            "--scheduler-config has no effect without the scheduler, which runs with --simulate-nodes, with \
             --enable-bootstrap-token-auth, or with --controllers='*,scheduler'"
                .to_owned(),
        ));
    }
    let refused = |error: &dyn std::fmt::Display| {
        Failure::Refused(format!("cannot use --scheduler-config {}: {error}", path.display()))
    };
    let text = fs::read_to_string(path).map_err(|error| refused(&error))?;
    let document: serde_json::Value = serde_saphyr::from_str(&text).map_err(|error| refused(&error))?;
    let configuration = Configuration::read(&document).map_err(|error| refused(&error))?;
    if !configuration.without_effect().is_empty() {
        let fields = configuration.without_effect().join(", ");
        tracing::warn!(fields, "fields of --scheduler-config have no effect: the scheduler is a part of this process");
    }
    Ok(configuration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::controllers::Role;
    use crate::plane::nodes::{Joining, Nodes};

    const PACKING: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: packing
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
";

    fn controllers(words: &[&str]) -> Controllers {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Controllers::parse(&words, Role::Server, &Nodes::new(0, Joining::Refused)).unwrap()
    }

    fn sentence(read: Result<Configuration, Failure>) -> String {
        match read {
            Err(Failure::Refused(sentence)) => sentence,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_file_is_read_where_the_scheduler_runs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("scheduler.yaml");
        fs::write(&path, PACKING).unwrap();
        let read = configuration(Some(&path), &controllers(&["scheduler"])).unwrap();
        assert_eq!(read.profile_names().collect::<Vec<_>>(), ["default-scheduler", "packing"]);
        let refused = sentence(configuration(Some(&path), &controllers(&["*"])));
        assert!(refused.starts_with("--scheduler-config has no effect without the scheduler"), "{refused}");
        fs::write(&path, PACKING.replace("MostAllocated", "Most")).unwrap();
        let refused = sentence(configuration(Some(&path), &controllers(&["scheduler"])));
        let want = "profiles[1].pluginConfig[0].args.scoringStrategy.type: \"Most\" is unknown";
        assert!(refused.starts_with("cannot use --scheduler-config ") && refused.contains(want), "{refused}");
        let extender = "extenders: [{urlPrefix: https://gpu, tlsConfig: {caFile: ca.crt}}]\n";
        fs::write(&path, format!("{PACKING}{extender}")).unwrap();
        let refused = sentence(configuration(Some(&path), &controllers(&["scheduler"])));
        assert!(refused.contains("extenders[0].tlsConfig.caFile: cannot read ca.crt: "), "{refused}");
        fs::write(&path, format!("{PACKING}extenders: [{{urlPrefix: https://gpu, filterVerb: filter}}]\n")).unwrap();
        configuration(Some(&path), &controllers(&["scheduler"])).unwrap();
        let absent = sentence(configuration(Some(&path.join("absent")), &controllers(&["scheduler"])));
        assert!(absent.contains("Not a directory"), "{absent}");
    }
}
