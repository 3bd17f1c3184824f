//! A process of Envoy.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use tokio::process::{Child, Command};

/// An Envoy that is killed when it is dropped, with its log.
pub(crate) struct Envoy {
    child: Child,
    directory: tempfile::TempDir,
}

/// The type of the protocol, as the bootstrap names it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ApiType {
    DeltaGrpc,
    Grpc,
}

impl Envoy {
    pub(crate) fn start(program: &Path, api_type: ApiType, control_plane: SocketAddr) -> Envoy {
        let directory = tempfile::tempdir().unwrap();
        let api_type = match api_type {
            ApiType::DeltaGrpc => "DELTA_GRPC",
            ApiType::Grpc => "GRPC",
        };
        let (address, port) = (control_plane.ip(), control_plane.port());
        let bootstrap = format!(
            "node: {{id: test, cluster: tests, metadata: {{role: test}}}}
dynamic_resources:
  ads_config: {{api_type: {api_type}, transport_api_version: V3, grpc_services: [{{envoy_grpc: {{cluster_name: xds}}}}]}}
  cds_config: {{ads: {{}}, resource_api_version: V3}}
  lds_config: {{ads: {{}}, resource_api_version: V3}}
static_resources:
  clusters:
  - name: xds
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        '@type': type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment:
      cluster_name: xds
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: {address}, port_value: {port}}}}}}}}}]}}]
"
        );
        let config = directory.path().join("bootstrap.yaml");
        std::fs::write(&config, bootstrap).unwrap();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let child = Command::new(program)
            .args(["--disable-hot-restart", "--concurrency", "1", "-l", "info", "-c"])
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Envoy { child, directory }
    }

    pub(crate) async fn stop(mut self) {
        self.child.kill().await.unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().rev().take(30).collect();
            eprintln!("Envoy's log, from its end:\n{}", lines.join("\n"));
        }
    }
}
