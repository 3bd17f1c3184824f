//! The groups, versions and resources that are served. The flag is that of kube-apiserver.

use crate::Failure;
use clap::Args as ClapArgs;
use steersman_server::{RuntimeConfig, RuntimeConfigError, builtin};

#[derive(ClapArgs, Clone, Debug)]
pub(crate) struct ServedOptions {
    /// Serve more or fewer of the built-in groups, versions and resources: api/all, api/ga, api/beta, api/alpha,
    /// GROUP/VERSION or GROUP/VERSION/RESOURCE, each with =true or =false. The more specific entry wins. Versions that
    /// are not stable are off unless they are enabled here.
    #[arg(long, value_delimiter = ',', value_name = "KEY=BOOL,..")]
    pub(crate) runtime_config: Vec<String>,
    /// Serve initializers, as in Kubernetes 1.7 to 1.13: InitializerConfigurations
    /// (admissionregistration.k8s.io/v1alpha1), the field metadata.initializers, and creations that wait for them.
    #[arg(long)]
    pub(crate) enable_initializers: bool,
}

impl ServedOptions {
    /// Parses the flag.
    pub(crate) fn read(&self) -> Result<RuntimeConfig, Failure> {
        self.parse(self.runtime_config.iter())
    }

    /// Parses the flag without entries for APIs that only kube-apiserver has. Returns these as the second value.
    pub(crate) fn read_known(&self) -> Result<(RuntimeConfig, Vec<&str>), Failure> {
        let is_unknown = |entry: &&String| {
            matches!(read(self.enable_initializers, [entry.as_str()]), Err(RuntimeConfigError::Unknown(_)))
        };
        let (unknown, known): (Vec<&String>, Vec<&String>) = self.runtime_config.iter().partition(is_unknown);
        Ok((self.parse(known.into_iter())?, unknown.into_iter().map(String::as_str).collect()))
    }

    fn parse<'a>(&self, entries: impl Iterator<Item = &'a String>) -> Result<RuntimeConfig, Failure> {
        read(self.enable_initializers, entries.map(String::as_str))
            .map_err(|error| Failure::Refused(format!("--runtime-config: {error}")))
    }
}

fn read<'a>(
    has_initializers: bool,
    entries: impl IntoIterator<Item = &'a str>,
) -> Result<RuntimeConfig, RuntimeConfigError> {
    match has_initializers {
        true => builtin::runtime_config_with_initializers(entries),
        false => builtin::runtime_config(entries),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_kube_apiserver_has_is_refused_or_told_apart() {
        let entries = ["api/beta=true", "resource.k8s.io/v1alpha3=true"];
        let options = ServedOptions { runtime_config: entries.map(str::to_owned).to_vec(), enable_initializers: false };
        let Err(Failure::Refused(why)) = options.read() else { panic!("it is refused") };
        assert_eq!(why, "--runtime-config: nothing of this server is called resource.k8s.io/v1alpha3");
        let (known, unknown) = options.read_known().unwrap();
        assert_eq!((known.to_string().as_str(), unknown), ("api/beta=true", vec!["resource.k8s.io/v1alpha3=true"]));
    }

    #[test]
    fn the_version_of_initializers_is_known_where_they_are_enabled() {
        let entries = vec!["admissionregistration.k8s.io/v1alpha1/initializerconfigurations=true".to_owned()];
        let of = |enable_initializers| ServedOptions { runtime_config: entries.clone(), enable_initializers }.read();
        assert!(of(true).unwrap().has_initializers());
        let Err(Failure::Refused(why)) = of(false) else { panic!("it is refused") };
        assert!(why.ends_with("v1alpha1/initializerconfigurations"), "{why}");
    }
}
