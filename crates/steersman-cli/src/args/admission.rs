//! The flags of admission, named as kube-apiserver names them.

use clap::Args as ClapArgs;

#[derive(ClapArgs, Clone, Debug, Default)]
pub(crate) struct AdmissionOptions {
    /// Admission plugins to enable in addition to the default ones. docs/api-compatibility.md lists all of them.
    #[arg(long, value_delimiter = ',', value_name = "PLUGIN,..")]
    pub(crate) enable_admission_plugins: Vec<String>,
    /// Admission plugins to disable although they are on by default.
    #[arg(long, value_delimiter = ',', value_name = "PLUGIN,..")]
    pub(crate) disable_admission_plugins: Vec<String>,
}
