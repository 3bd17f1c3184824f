//! The flags of encryption at rest, named as kube-apiserver names them.

use clap::{ArgAction, Args as ClapArgs};
use std::path::PathBuf;

#[derive(ClapArgs, Clone, Debug, Default)]
pub(crate) struct EncryptionOptions {
    /// The file that says which resources are encrypted in the store, and with which keys: an EncryptionConfiguration of
    /// apiserver.config.k8s.io/v1.
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
    /// Read the file of --encryption-provider-config again when it changes.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "true|false")]
    pub(crate) encryption_provider_config_automatic_reload: bool,
}
