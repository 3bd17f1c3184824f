//! Selects the admission plugins of a server by its flags.

use crate::Failure;
use crate::args::AdmissionOptions;
use steersman_server::admission::{Plugins, PluginsError};

/// The plugins of `up` and `server`. Those in `relying` are enabled as well, because the controllers that they need are
/// running. A plugin that does not exist here is refused, because whoever enables it relies on its checks.
pub(crate) fn read(options: &AdmissionOptions, relying: &[&str]) -> Result<Plugins, Failure> {
    let plugins = change(Plugins::default().with(relying, &[]).map_err(refused)?, options)?;
    match absent(&options.enable_admission_plugins).first() {
        Some(name) => Err(Failure::Refused(format!(
            "the admission plugin {name} of kube-apiserver does not exist here: leave it out of --enable-admission-plugins"
        ))),
        None => Ok(plugins),
    }
}

/// The plugins of a server that stands in for kube-apiserver. If `only` is not empty, just these.
pub(crate) fn read_upstream(options: &AdmissionOptions, only: &[String]) -> Result<Plugins, Failure> {
    if only.is_empty() {
        return change(Plugins::of_upstream(), options);
    }
    let AdmissionOptions { enable_admission_plugins, disable_admission_plugins } = options;
    if !enable_admission_plugins.is_empty() || !disable_admission_plugins.is_empty() {
        let why =
            "admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive";
        return Err(Failure::Refused(why.to_owned()));
    }
    Plugins::only(only).map_err(refused)
}

/// The plugins of kube-apiserver that this server does not have.
pub(crate) fn absent(names: &[String]) -> Vec<&str> {
    given(names).filter(|name| !Plugins::exists(name)).collect()
}

fn change(plugins: Plugins, options: &AdmissionOptions) -> Result<Plugins, Failure> {
    let enabled: Vec<&str> = given(&options.enable_admission_plugins).collect();
    let disabled: Vec<&str> = given(&options.disable_admission_plugins).collect();
    plugins.with(&enabled, &disabled).map_err(refused)
}

/// The names of a list, which may be empty: scripts with an empty variable produce `--disable-admission-plugins=`.
fn given(names: &[String]) -> impl Iterator<Item = &str> {
    names.iter().map(|name| name.trim()).filter(|name| !name.is_empty())
}

fn refused(error: PluginsError) -> Failure {
    Failure::Refused(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(enabled: &[&str], disabled: &[&str]) -> AdmissionOptions {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        AdmissionOptions { enable_admission_plugins: owned(enabled), disable_admission_plugins: owned(disabled) }
    }

    #[track_caller]
    fn why(read: Result<Plugins, Failure>) -> String {
        match read.unwrap_err() {
            Failure::Refused(why) => why,
            Failure::Failed(error) => panic!("{error:#}"),
        }
    }

    #[test]
    fn a_plugin_that_does_not_exist_here_is_refused_but_in_the_place_of_kube_apiserver() {
        let options = options(&["ImagePolicyWebhook"], &[""]);
        let text = "the admission plugin ImagePolicyWebhook of kube-apiserver does not exist here: leave it out of --enable-admission-plugins";
        assert_eq!(why(read(&options, &[])), text);
        assert!(read_upstream(&options, &[]).unwrap().is_on("ImagePolicyWebhook"));
        assert_eq!(absent(&options.enable_admission_plugins), ["ImagePolicyWebhook"]);
    }

    #[test]
    fn the_flags_switch_plugins() {
        let plugins =
            read(&options(&["ServiceAccount"], &["ResourceQuota", "ValidatingAdmissionPolicy"]), &[]).unwrap();
        assert!(plugins.is_on("ServiceAccount") && !plugins.is_on("ResourceQuota"));
        assert!(why(read(&options(&["Nothing"], &[]), &[])).contains("\"Nothing\": want one of "));
        let relying = ["ServiceAccount", "StorageObjectInUseProtection"];
        let plugins = read(&options(&[], &["ServiceAccount"]), &relying).unwrap();
        assert!(plugins.is_on("StorageObjectInUseProtection") && !plugins.is_on("ServiceAccount"));
        let only = read_upstream(&options(&[], &[]), &["LimitRanger".to_owned()]).unwrap();
        assert!(only.is_on("LimitRanger") && !only.is_on("Priority"));
        let both = read_upstream(&options(&["Priority"], &[]), &["LimitRanger".to_owned()]);
        assert!(why(both).starts_with("admission-control and enable-admission-plugins/"));
    }
}
