//! The authorizers of the server, from its flags.

use crate::args::AuthorizationOptions;
use crate::{Failure, chain};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use steersman_server::authz::{Abac, Authorization, Mode, ReviewVersion, Webhook, WebhookSettings};
use steersman_server::webhook::{Client, read_kubeconfig};

/// Reads the flags, and the files that they name.
pub(crate) fn read(options: &AuthorizationOptions) -> Result<Authorization, Failure> {
    if let Some(path) = &options.authorization_config {
        if let Some(flag) = given(options) {
            return Err(Failure::Refused(format!(
                "{flag} and --authorization-config say the same thing twice: give one of them"
            )));
        }
        return read_configuration(path);
    }
    let modes = &options.authorization_mode;
    for (mode, flag) in [("ABAC", given_of_abac(options)), ("Webhook", given_of_webhook(options))] {
        if let Some(flag) = flag.filter(|_| !modes.iter().any(|given| given == mode)) {
            return Err(Failure::Refused(format!("{flag} needs the mode {mode}: add it to --authorization-mode")));
        }
    }
    if modes.is_empty() {
        return Ok(Authorization::default());
    }
    let mut read = Vec::new();
    for (at, name) in modes.iter().enumerate() {
        if modes[..at].contains(name) {
            return Err(Failure::Refused(format!("--authorization-mode names {name} twice: give each mode once")));
        }
        read.push(match name.as_str() {
            "ABAC" => abac(options)?,
            "Webhook" => webhook(options)?,
            name => mode(name)?,
        });
    }
    Ok(Authorization::Modes(read))
}

/// The first authorization flag that is given beside `--authorization-config`.
fn given(options: &AuthorizationOptions) -> Option<&'static str> {
    let mode = (!options.authorization_mode.is_empty()).then_some("--authorization-mode");
    mode.or_else(|| given_of_abac(options)).or_else(|| given_of_webhook(options))
}

fn given_of_abac(options: &AuthorizationOptions) -> Option<&'static str> {
    options.authorization_policy_file.is_some().then_some("--authorization-policy-file")
}

fn given_of_webhook(options: &AuthorizationOptions) -> Option<&'static str> {
    let flags = [
        (options.authorization_webhook_config_file.is_some(), "--authorization-webhook-config-file"),
        (options.authorization_webhook_cache_authorized_ttl.is_some(), "--authorization-webhook-cache-authorized-ttl"),
        (
            options.authorization_webhook_cache_unauthorized_ttl.is_some(),
            "--authorization-webhook-cache-unauthorized-ttl",
        ),
        (options.authorization_webhook_version.is_some(), "--authorization-webhook-version"),
    ];
    flags.into_iter().find(|(is_given, _)| *is_given).map(|(_, flag)| flag)
}

fn mode(name: &str) -> Result<Mode, Failure> {
    Mode::named(name).ok_or_else(|| {
        Failure::Refused(format!(
            "--authorization-mode does not know {name:?}: want Node, RBAC, ABAC, Webhook, AlwaysAllow or AlwaysDeny, with commas between them"
        ))
    })
}

fn abac(options: &AuthorizationOptions) -> Result<Mode, Failure> {
    let Some(path) = &options.authorization_policy_file else {
        let why = "the mode ABAC needs --authorization-policy-file, a file with a policy in each line";
        return Err(Failure::Refused(why.to_owned()));
    };
    let refused =
        |why: String| Failure::Refused(format!("cannot use --authorization-policy-file {}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    let abac = Abac::parse(&text).map_err(|error| refused(error.to_string()))?;
    if abac.unversioned() > 0 {
        let (lines, file) = (abac.unversioned(), path.display());
        tracing::warn!(lines, %file, "policies without a version stand for every API group: give them apiVersion and kind");
    }
    Ok(Mode::Other(Arc::new(abac)))
}

fn webhook(options: &AuthorizationOptions) -> Result<Mode, Failure> {
    let Some(path) = &options.authorization_webhook_config_file else {
        let why = "the mode Webhook needs --authorization-webhook-config-file, a kubeconfig that names the webhook";
        return Err(Failure::Refused(why.to_owned()));
    };
    let client = read_kubeconfig(path).and_then(Client::new).map_err(|error| {
        Failure::Refused(format!(
            "cannot use --authorization-webhook-config-file {}: {}",
            path.display(),
            chain(&error)
        ))
    })?;
    let defaults = WebhookSettings::default();
    let version = match options.authorization_webhook_version.as_deref() {
        None | Some("v1") => ReviewVersion::V1,
        Some("v1beta1") => ReviewVersion::V1Beta1,
        Some(other) => {
            return Err(Failure::Refused(format!(
                "--authorization-webhook-version: want v1 or v1beta1, not {other:?}"
            )));
        }
    };
    let settings = WebhookSettings {
        authorized_ttl: options.authorization_webhook_cache_authorized_ttl.unwrap_or(defaults.authorized_ttl),
        unauthorized_ttl: options.authorization_webhook_cache_unauthorized_ttl.unwrap_or(defaults.unauthorized_ttl),
        version,
        ..defaults
    };
    Ok(Mode::Other(Arc::new(Webhook::new(client, settings))))
}

fn read_configuration(path: &Path) -> Result<Authorization, Failure> {
    let refused =
        |why: String| Failure::Refused(format!("cannot use --authorization-config {}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    Authorization::read_configuration(&text).map_err(|error| refused(chain(&error)))
}
