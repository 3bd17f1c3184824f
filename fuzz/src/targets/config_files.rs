//! Configuration files of a server: policies of audit and ABAC, authentication, authorization, tokens, kubeconfigs.

use steersman_server::audit::Policy;
use steersman_server::authn::{Configuration, Tokens};
use steersman_server::authz::{Abac, Authorization};
use steersman_server::{builtin, fuzzing};

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = Policy::parse(text);
    let _ = Abac::parse(text).map(|policy| policy.unversioned());
    let _ = Configuration::parse(text, &["https://issuer".to_owned()]);
    let _ = Tokens::parse(text);
    let _ = builtin::runtime_config(text.lines());
    // Some files name others, which are read too: reading some files of a machine does not end.
    if !["/dev", "/proc", "/sys"].iter().any(|path| text.contains(path)) {
        let _ = Authorization::read_configuration(text);
        let _ = fuzzing::is_kubeconfig(text);
    }
}
