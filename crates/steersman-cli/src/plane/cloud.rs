//! Selects the Neutron of the Network controller.

use crate::Failure;
use crate::args::{CloudOptions, NeutronAuth};
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use steersman_neutron::config::{Config, Source, search_dirs};
use steersman_neutron::{Client, Cloud, Simulated};

impl CloudOptions {
    /// Refuses options if nothing would use them.
    pub(crate) fn check_unused(&self) -> Result<(), Failure> {
        let given = [
            ("--simulated", self.simulated),
            ("--neutron-url", self.neutron_url.is_some()),
            ("--neutron-auth", self.neutron_auth.is_some()),
            ("--os-cloud", self.os_cloud.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => Err(Failure::Refused(format!(
                "{flag} is for the network controller, which --controllers leaves out: add network there, or drop {flag}"
            ))),
            None => Ok(()),
        }
    }
}

/// The Neutron chosen on the command line, checked but not opened.
#[derive(Debug)]
pub(crate) enum Choice {
    Real(Box<Config>),
    Simulated,
}

impl Choice {
    /// Checks the options; nothing is sent or written.
    pub(crate) fn new(options: &CloudOptions) -> Result<Choice, Failure> {
        let real = |config| Choice::Real(Box::new(config));
        let refused = |error: steersman_neutron::config::Error| Failure::Refused(crate::chain(&error));
        match (options.neutron_auth, &options.neutron_url) {
            (Some(NeutronAuth::Keystone), url) => {
                let vars: BTreeMap<String, String> = std::env::vars().collect();
                let dirs = search_dirs(&vars);
                let source = Source { vars: &vars, cloud: options.os_cloud.as_deref(), dirs: &dirs };
                let config = Config::keystone(&source).map_err(refused)?;
                match url {
                    Some(url) => config.with_endpoint(url).map(real).map_err(refused),
                    None => Ok(real(config)),
                }
            }
            (_, _) if options.os_cloud.is_some() => {
                Err(Failure::Refused("--os-cloud names an entry for Keystone: add --neutron-auth keystone".to_owned()))
            }
            (_, Some(url)) => Config::unauthenticated(url).map(real).map_err(refused),
            (Some(NeutronAuth::None), None) => Err(Failure::Refused(
                "--neutron-auth none needs the URL of a Neutron: add --neutron-url URL".to_owned(),
            )),
            (None, None) => Ok(Choice::Simulated),
        }
    }

    /// Opens the chosen Neutron; a simulated one is kept in the data directory, and without one in memory.
    pub(crate) fn open(self, data_dir: Option<&Path>) -> anyhow::Result<Arc<dyn Cloud>> {
        Ok(match (self, data_dir) {
            (Choice::Real(config), _) => Arc::new(Client::new(*config).context("the Neutron client cannot be made")?),
            (Choice::Simulated, Some(data_dir)) => {
                Arc::new(Simulated::open(data_dir).context("the simulated Neutron cannot be opened")?)
            }
            (Choice::Simulated, None) => Arc::new(Simulated::in_memory()),
        })
    }
}
