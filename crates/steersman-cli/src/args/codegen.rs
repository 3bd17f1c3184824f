//! The flags of `steersman codegen` and `steersman new`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// The subcommands of code generation.
#[derive(Debug, Subcommand)]
pub(crate) enum CodegenCommand {
    /// Clients, informers, listers and apply configurations in Rust, for the kinds of CustomResourceDefinitions.
    ///
    /// They are used like the output of client-go's generators:
    /// `client.samplecrd_v1().networks("default").create(&network)`, `factory.samplecrd_v1().networks().lister()`,
    /// `apply::Network::extract(&network, "manager")`. The Rust types of the kinds must exist already, written by hand
    /// or generated.
    #[command(after_help = CLIENTS_EXAMPLES)]
    Clients(ClientsOptions),
    /// Manifests of CustomResourceDefinitions in a stable form: without fields that a server adds, and with keys in one
    /// order.
    ///
    /// For a definition that comes from a Rust type, `steersman_codegen::manifest` does the same in a test of its
    /// project; projects made by `steersman new` have such a test.
    #[command(after_help = CRD_EXAMPLES)]
    Crd(CrdOptions),
    /// Rust types of kinds, with `kube::Resource` and serde.
    ///
    /// A kind is at <module>::<group>::<version>::<Kind>: `crate::apis::cert_manager_io::v1::Certificate`. A build script can do
    /// the same with the crate steersman-codegen.
    #[command(after_help = TYPES_EXAMPLES)]
    Types(TypesOptions),
}

const CLIENTS_EXAMPLES: &str = "Examples:
  steersman codegen clients manifests/crd.yaml --types crate::api --out src/client.rs
  steersman codegen clients --from-server --group cert-manager.io --types crate::apis::{group}::{version} --out src/client.rs
  steersman codegen clients manifests/crd.yaml --types crate::api --out src/client.rs --check";

const TYPES_EXAMPLES: &str = "Examples:
  steersman codegen types crds/ --out src/apis.rs
  steersman codegen types --from-server --group cert-manager.io --out src/apis.rs
  steersman codegen types crds/ --out src/apis.rs --check";

const CRD_EXAMPLES: &str = "Examples:
  steersman codegen crd --from-server --group samplecrd.k8s.io
  steersman codegen crd crds/ --out manifests/crd
  steersman codegen crd crds/ --out manifests/crd --check";

/// The source of the definitions.
#[derive(Args, Debug)]
pub(crate) struct DefinitionsOptions {
    /// Manifests, or directories of them (*.yaml, *.yml, *.json).
    #[arg(value_name = "FILE|DIR", required_unless_present = "from_server", conflicts_with = "from_server")]
    pub(crate) paths: Vec<PathBuf>,
    /// Take the definitions of a running server.
    #[arg(long)]
    pub(crate) from_server: bool,
    /// The kubeconfig of the server; without it: in-cluster, then $KUBECONFIG, then ~/.kube/config.
    #[arg(long, value_name = "FILE", requires = "from_server")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Only kinds of this API group. May be given more than once.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Vec<String>,
}

/// The options of `codegen clients`.
#[derive(Args, Debug)]
pub(crate) struct ClientsOptions {
    #[command(flatten)]
    pub(crate) definitions: DefinitionsOptions,
    /// The path of the module with the Rust types of the kinds. `{group}` and `{version}` in it are replaced, as in
    /// crate::apis::{group}::{version}.
    #[arg(long, value_name = "PATH")]
    pub(crate) types: String,
    /// The file of the module; its submodules go into the directory of the same name beside it.
    #[arg(long, value_name = "FILE.rs")]
    pub(crate) out: PathBuf,
    /// Write nothing; fail if a file differs from what would be written.
    #[arg(long)]
    pub(crate) check: bool,
}

/// The options of `codegen types`.
#[derive(Args, Debug)]
pub(crate) struct TypesOptions {
    #[command(flatten)]
    pub(crate) definitions: DefinitionsOptions,
    /// The file of the module; its submodules go into the directory of the same name beside it.
    #[arg(long, value_name = "FILE.rs")]
    pub(crate) out: PathBuf,
    /// The Rust type of strings with an enum: a Rust enum, a Rust enum with a variant for values that a later version
    /// may have, or a string.
    #[arg(long, value_enum, default_value_t = Enums::Open, value_name = "HOW")]
    pub(crate) enums: Enums,
    /// Derive `schemars::JsonSchema` too.
    #[arg(long)]
    pub(crate) schemars: bool,
    /// Also versions that are not served.
    #[arg(long)]
    pub(crate) unserved: bool,
    /// Derive this too, for every type; a path such as bon::Builder. May be given more than once.
    #[arg(long, value_name = "PATH")]
    pub(crate) derive: Vec<String>,
    /// Write nothing; fail if a file differs from what would be written.
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Enums {
    Closed,
    Open,
    Strings,
}

/// The options of `codegen crd`.
#[derive(Args, Debug)]
pub(crate) struct CrdOptions {
    #[command(flatten)]
    pub(crate) definitions: DefinitionsOptions,
    /// The directory for the manifests, with a file <plural>.<group>.yaml for each definition; without it, standard
    /// output.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write nothing; fail if a file differs from what would be written.
    #[arg(long, requires = "out")]
    pub(crate) check: bool,
}

/// The options of `new`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  steersman new my-operator
  steersman new my-operator --kind Backup --group storage.example.org --webhook")]
pub(crate) struct NewOptions {
    /// The name of the project and of its directory: lower-case letters, digits and `-`, beginning with a letter.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The kind that the operator reconciles.
    #[arg(long, default_value = "Greeting", value_name = "KIND")]
    pub(crate) kind: String,
    /// The API group of the kind; use a subdomain of a domain of yours.
    #[arg(long, default_value = "example.com", value_name = "GROUP")]
    pub(crate) group: String,
    /// Include an admission webhook, with its certificates, that sets defaults and refuses what the schema cannot.
    #[arg(long)]
    pub(crate) webhook: bool,
    /// The parent of the new directory; without it, the current directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Depend on the crates of this checkout of Steersman, instead of the published ones.
    #[arg(long, value_name = "DIR")]
    pub(crate) steersman_path: Option<PathBuf>,
}
