//! The flags of what changes or refuses writes, named as kube-apiserver names them.

use clap::Args as ClapArgs;

#[derive(ClapArgs, Clone, Debug, Default)]
pub(crate) struct AdmissionOptions {
    /// Admission plugins to have beside those that are on by default. docs/api-compatibility.md says which there are.
    #[arg(long, value_delimiter = ',', value_name = "PLUGIN,..")]
    pub(crate) enable_admission_plugins: Vec<String>,
    /// Admission plugins to do without, though they are on by default.
    #[arg(long, value_delimiter = ',', value_name = "PLUGIN,..")]
    pub(crate) disable_admission_plugins: Vec<String>,
}
