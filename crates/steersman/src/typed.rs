//! The parts of generated clients: a client of one kind, its informer and lister, and apply configurations.
//!
//! `steersman codegen clients` writes, for the kinds of an API group, the traits that lead to these types, so that code reads
//! as it does with client-go's generated clientset, informers and listers:
//!
//! | client-go | here |
//! |---|---|
//! | `client.SamplecrdV1().Networks("default").Create(ctx, network, opts)` | `client.samplecrd_v1().networks("default").create(&network)` |
//! | `factory.Samplecrd().V1().Networks().Informer()` | `factory.samplecrd_v1().networks().informer()` |
//! | `lister.Networks(namespace).Get(name)` | `lister.networks(namespace).get(name)` |
//! | `applyv1.Network("a", "default").WithSpec(..)` | `apply::Network::new("a", "default").with_spec(..)` |
//! | `applyv1.ExtractNetwork(network, "manager")` | `apply::Network::extract(&network, "manager")` |
//!
//! Everything here also works without generated code, for every type that implements `kube::Resource`:
//!
//! ```no_run
//! # use k8s_openapi::api::apps::v1::Deployment;
//! # async fn run(client: kube::Client) -> Result<(), steersman::WriteError> {
//! use steersman::typed::{Client, StatusAndScale};
//!
//! let deployments = Client::<Deployment, StatusAndScale>::new(client, "default");
//! let deployment = deployments.get("web").await?;
//! deployments.update_status(&deployment).await?;
//! # Ok(()) }
//! ```

mod apply;
mod client;
mod fields;
mod informer;

pub use crate::typed::apply::{ApplyConfiguration, ExtractError};
pub use crate::typed::client::{Client, HasScale, HasStatus, NoSubresources, Scale, Status, StatusAndScale};
pub use crate::typed::informer::{NamespaceLister, TypedInformer};
