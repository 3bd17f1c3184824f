//! The certificate with which requests are passed on to the servers behind APIServices.

use clap::Args as ClapArgs;
use std::path::PathBuf;

#[derive(ClapArgs, Clone, Debug, Default)]
pub(crate) struct AggregationOptions {
    /// The certificate that is shown to the servers behind APIServices, who then believe who the user of a request is.
    /// It is read at the start. Without it `steersman` makes one, with a CA of its own, which is published for them in the
    /// ConfigMap extension-apiserver-authentication.
    #[arg(long, value_name = "PEM", requires = "proxy_client_key_file")]
    pub(crate) proxy_client_cert_file: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "PEM", requires = "proxy_client_cert_file")]
    pub(crate) proxy_client_key_file: Option<PathBuf>,
}
