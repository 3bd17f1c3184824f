//! The built server under attack, as the kernel sees its process. Times are measured by `cargo xtask bench hostile`, not here.

mod watches;

use std::path::Path;

use steersman_hostile::client::{Connection, Protocol, Target};
use steersman_hostile::process::Process;
use steersman_hostile::stage::{self, ADMIN};

use crate::support::plane::Plane;

/// A server that is attacked.
pub(crate) struct Attacked {
    plane: Plane,
    pub(crate) target: Target,
    pub(crate) server: Process,
}

impl Attacked {
    pub(crate) fn start(home: &Path) -> Attacked {
        let tokens = home.join("tokens.csv");
        std::fs::write(&tokens, stage::tokens()).unwrap();
        let plane = Plane::server(home, &["--token-auth-file", &tokens.to_string_lossy(), "--controllers=-*"]);
        let target = Target::new(plane.listen(), &home.join("data/pki/ca.crt")).unwrap();
        let server = Process(plane.process.id());
        Attacked { plane, target, server }
    }

    pub(crate) fn admin(&self) -> Connection {
        self.target.user(ADMIN, Protocol::Http1)
    }

    /// Ends the server, which must agree.
    pub(crate) fn stop(self) {
        self.plane.stop();
    }
}
