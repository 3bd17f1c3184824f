//! How the kubelets of nodes are called, for logs, `exec` and the like.

use crate::args::duration;
use clap::{Args as ClapArgs, value_parser};
use std::path::PathBuf;
use std::time::Duration;
use steersman_server::KubeletClient;

#[derive(ClapArgs, Clone, Debug)]
pub(crate) struct KubeletOptions {
    /// The certificate that kubelets are shown, who then know this server. It is read at the start. Without it `steersman`
    /// makes one, signed by its CA, for the user kube-apiserver-kubelet-client in the group system:masters.
    #[arg(long, value_name = "PEM", requires = "kubelet_client_key")]
    pub(crate) kubelet_client_certificate: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "PEM", requires = "kubelet_client_certificate")]
    pub(crate) kubelet_client_key: Option<PathBuf>,
    /// The CA of the kubelets' own certificates. Without it these are verified by the CA of this server if the controller
    /// kubelet-serving-approver runs, as it does with --enable-bootstrap-token-auth, and not at all otherwise.
    #[arg(long, value_name = "PEM")]
    pub(crate) kubelet_certificate_authority: Option<PathBuf>,
    /// The types of addresses at which a node is called, the most preferred one first.
    #[arg(long, value_name = "TYPE", value_delimiter = ',', default_values_t = KubeletClient::ADDRESS_TYPES.map(str::to_owned))]
    pub(crate) kubelet_preferred_address_types: Vec<String>,
    /// The time within which a kubelet must take a connection.
    #[arg(long, default_value = "5s", value_parser = duration::more_than_none, value_name = "DURATION")]
    pub(crate) kubelet_timeout: Duration,
    /// The port of a kubelet whose Node names none.
    #[arg(long, default_value_t = 10_250, value_parser = value_parser!(u16).range(1..), value_name = "PORT")]
    pub(crate) kubelet_port: u16,
}
