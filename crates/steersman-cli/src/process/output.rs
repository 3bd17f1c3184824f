//! The program's output on standard output when it is ready.

use crate::args::{InEtcd, Output};
use serde::Serialize;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Prints facts, in the form that was asked for. A closed standard output is no reason to stop.
pub(crate) fn say<T: Serialize>(facts: &T, output: Output, text: impl FnOnce(&T) -> String) {
    let text = match output {
        Output::Json => serde_json::to_string(facts).unwrap_or_default() + "\n",
        Output::Text => text(facts),
    };
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// The output of a control plane that is ready.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ready {
    /// The kubeconfig of the administrator.
    pub(crate) kubeconfig: PathBuf,
    /// `host:port` that is listened on.
    pub(crate) listen: String,
    /// The URL of the API on this machine.
    pub(crate) url: String,
    /// The directory of all data.
    pub(crate) data_dir: PathBuf,
    /// Whether the objects are gone when the process ends.
    pub(crate) in_memory: bool,
    /// The etcd that has the objects, if they are not in the directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) etcd: Option<InEtcd>,
    /// The running controllers.
    pub(crate) controllers: Vec<&'static str>,
    /// The Neutron of the Network controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) neutron: Option<String>,
    /// The simulated nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nodes: Option<String>,
    /// The address of the controllers' metrics and health checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics_address: Option<SocketAddr>,
    pub(crate) version: &'static str,
}

impl Ready {
    pub(crate) fn say(&self, output: Output) {
        say(self, output, Ready::text);
    }

    fn text(&self) -> String {
        let mut text = format!("Steersman {} is ready at {}\n", self.version, self.url);
        let kept = match &self.etcd {
            Some(InEtcd { servers, prefix }) => format!("in etcd at {}, below {prefix}", servers.join(", ")),
            None if self.in_memory => "in memory, gone when this process ends".to_owned(),
            None => format!("kept in {}", self.data_dir.display()),
        };
        text += &format!("  objects      {kept}\n");
        if let Some(neutron) = &self.neutron {
            text += &format!("  neutron      {neutron}\n");
        }
        if let Some(nodes) = &self.nodes {
            text += &format!("  nodes        {nodes}\n");
        }
        if let Some(address) = &self.metrics_address {
            text += &format!("  metrics      http://{address}/metrics\n");
        }
        text += &format!("\nIn another terminal:\n  export KUBECONFIG={}\n", self.kubeconfig.display());
        text += match self.nodes {
            Some(_) => "  kubectl create deployment web --image nginx\n  kubectl get pods\n",
            None => "  kubectl get namespaces\n",
        };
        text + "\nCtrl-C stops it.\n"
    }
}
