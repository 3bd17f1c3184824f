//! Reads an EncryptionConfiguration (`apiserver.config.k8s.io/v1`) and checks it by upstream's rules, with upstream's sentences
//! (`apis/apiserver/validation/validation_encryption.go`).
//!
//! No error has a part of a secret.

use crate::rules::Named;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;
use steersman_machinery::duration;

const VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";
const AES_KEY_BYTES: &[usize] = &[16, 24, 32];
const SECRETBOX_KEY_BYTES: &[usize] = &[32];
const KMS_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The file is empty.
    #[error("it is empty")]
    Empty,
    /// A field has an invalid value.
    #[error("{field}: {why}")]
    Field {
        /// The path of the field.
        field: String,
        /// The fault.
        why: String,
    },
    /// An earlier rule leaves no value to a later one.
    #[error("resource {later:?} is masked by earlier rule {earlier:?}")]
    Masked {
        /// The later rule.
        later: String,
        /// The earlier rule.
        earlier: String,
    },
    /// The text is not YAML, or has unknown fields.
    #[error("it is no EncryptionConfiguration: {0}")]
    Yaml(String),
}

/// A checked configuration.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) entries: Vec<Entry>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) resources: Vec<Named>,
    pub(crate) providers: Vec<Provider>,
}

#[derive(Debug)]
pub(crate) enum Provider {
    AesCbc(Vec<Key>),
    AesGcm(Vec<Key>),
    Identity,
    Kms(Kms),
    Secretbox(Vec<Key>),
}

pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) secret: Vec<u8>,
}

/// A key management service.
#[derive(Debug)]
pub(crate) struct Kms {
    pub(crate) name: String,
    /// The path of its socket, or `@NAME` of an abstract one.
    pub(crate) socket: String,
    pub(crate) timeout: Duration,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("name", &self.name).finish_non_exhaustive()
    }
}

// === the file ===

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    api_version: String,
    kind: String,
    #[serde(default)]
    resources: Option<Vec<WrittenEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEntry {
    #[serde(default)]
    resources: Option<Vec<String>>,
    #[serde(default)]
    providers: Option<Vec<WrittenProvider>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenProvider {
    aescbc: Option<WrittenKeys>,
    aesgcm: Option<WrittenKeys>,
    identity: Option<WrittenIdentity>,
    kms: Option<WrittenKms>,
    secretbox: Option<WrittenKeys>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenIdentity {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKeys {
    #[serde(default)]
    keys: Option<Vec<WrittenKey>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    #[serde(default)]
    name: String,
    #[serde(default)]
    secret: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenKms {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    name: String,
    #[serde(default, rename = "cachesize")]
    cache_size: Option<i32>,
    #[serde(default)]
    endpoint: String,
    #[serde(default)]
    timeout: Option<String>,
}

impl Configuration {
    pub(crate) fn read(text: &str) -> Result<Configuration, ConfigurationError> {
        if text.trim().is_empty() {
            return Err(ConfigurationError::Empty);
        }
        // Without a snippet: the lines around a mistake may have a secret.
        let options = serde_saphyr::options! { with_snippet: false };
        let written: Written = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let error = error.to_string();
            let line = error.lines().next().unwrap_or("not readable");
            ConfigurationError::Yaml(line.strip_prefix("error: ").unwrap_or(line).to_owned())
        })?;
        if written.kind != KIND || written.api_version != VERSION {
            let why = format!(
                "want kind {KIND} and apiVersion {VERSION}, not {:?} and {:?}",
                written.kind, written.api_version
            );
            return Err(ConfigurationError::Yaml(why));
        }
        let entries = required(written.resources, "resources", "resources")?;
        let mut services = HashSet::new();
        let entries = entries.into_iter().enumerate().map(|(at, entry)| read_entry(at, entry, &mut services));
        Ok(Configuration { entries: entries.collect::<Result<_, _>>()? })
    }
}

fn read_entry(at: usize, entry: WrittenEntry, services: &mut HashSet<String>) -> Result<Entry, ConfigurationError> {
    let (resources_at, providers_at) = (format!("resources[{at}].resources"), format!("resources[{at}].providers"));
    let names = required(entry.resources, &resources_at, &resources_at)?;
    let resources: Vec<Named> = names.iter().map(|name| Named::parse(name)).collect();
    check_overlap(&resources).map_err(|why| fault(&resources_at, why))?;
    for (at, (name, named)) in names.iter().zip(&resources).enumerate() {
        if let Some(why) = fault_of_name(name, named) {
            return Err(fault(&format!("{resources_at}[{at}]"), &format!("{name:?}: {why}")));
        }
    }
    let providers = required(entry.providers, &providers_at, &providers_at)?;
    let read = |(at, provider)| read_provider(&format!("{providers_at}[{at}]"), provider, services);
    Ok(Entry { resources, providers: providers.into_iter().enumerate().map(read).collect::<Result<_, _>>()? })
}

fn read_provider(
    field: &str,
    provider: WrittenProvider,
    services: &mut HashSet<String>,
) -> Result<Provider, ConfigurationError> {
    let WrittenProvider { aescbc, aesgcm, identity, kms, secretbox } = provider;
    match (aescbc, aesgcm, identity, kms, secretbox) {
        (Some(written), None, None, None, None) => {
            Ok(Provider::AesCbc(read_keys(&format!("{field}.aescbc.keys"), written, AES_KEY_BYTES)?))
        }
        (None, Some(written), None, None, None) => {
            Ok(Provider::AesGcm(read_keys(&format!("{field}.aesgcm.keys"), written, AES_KEY_BYTES)?))
        }
        (None, None, Some(WrittenIdentity {}), None, None) => Ok(Provider::Identity),
        (None, None, None, Some(written), None) => {
            Ok(Provider::Kms(read_kms(&format!("{field}.kms"), written, services)?))
        }
        (None, None, None, None, Some(written)) => {
            Ok(Provider::Secretbox(read_keys(&format!("{field}.secretbox.keys"), written, SECRETBOX_KEY_BYTES)?))
        }
        (None, None, None, None, None) => Err(fault(
            field,
            "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
        )),
        _ => Err(fault(
            field,
            "more than one provider specified in a single element, should split into different list elements",
        )),
    }
}

fn read_keys(field: &str, written: WrittenKeys, lengths: &[usize]) -> Result<Vec<Key>, ConfigurationError> {
    let keys = required(written.keys, field, "keys")?;
    let read = |(at, WrittenKey { name, secret })| {
        let field = format!("{field}[{at}]");
        if name.is_empty() {
            return Err(fault(&format!("{field}.name"), "name is a mandatory field for a key"));
        }
        let field = format!("{field}.secret");
        if secret.is_empty() {
            return Err(fault(&field, "secret is a mandatory field for a key"));
        }
        // Go's decoder skips the ends of lines, which a block of YAML has.
        let secret: String = secret.split(['\r', '\n']).collect();
        let secret = STANDARD.decode(secret).map_err(|_| fault(&field, "secrets must be base64 encoded"))?;
        if !lengths.contains(&secret.len()) {
            let wanted: Vec<String> = lengths.iter().map(usize::to_string).collect();
            let why = format!(
                "secret is not of the expected length, got {}, expected one of [{}]",
                secret.len(),
                wanted.join(" ")
            );
            return Err(fault(&field, &why));
        }
        Ok(Key { name, secret })
    };
    keys.into_iter().enumerate().map(read).collect()
}

fn read_kms(field: &str, written: WrittenKms, services: &mut HashSet<String>) -> Result<Kms, ConfigurationError> {
    let WrittenKms { api_version, name, cache_size, endpoint, timeout } = written;
    let of = |part: &str| format!("{field}.{part}");
    match api_version.as_deref() {
        Some("v2") => {}
        None | Some("" | "v1") => {
            return Err(fault(
                &of("apiVersion"),
                "KMS v1 is deprecated and not supported here: use a plugin of KMS v2, and say apiVersion: v2",
            ));
        }
        Some(_) => {
            return Err(fault(&of("apiVersion"), "unsupported apiVersion for KMS provider, only v2 is supported"));
        }
    }
    if name.is_empty() {
        return Err(fault(&of("name"), "name is a mandatory field for a provider"));
    }
    if name.contains(':') {
        return Err(fault(&of("name"), &format!("invalid KMS provider name {name}, must not contain ':'")));
    }
    if !services.insert(name.clone()) {
        return Err(fault(&of("name"), &format!("duplicate KMS provider name {name}, names must be unique")));
    }
    let timeout = match timeout {
        None => KMS_TIMEOUT,
        Some(text) => duration::parse_unsigned(&text)
            .filter(|timeout| !timeout.is_zero())
            .ok_or_else(|| fault(&of("timeout"), "timeout should be a positive value, such as 3s"))?,
    };
    if endpoint.is_empty() {
        return Err(fault(&of("endpoint"), "endpoint is a mandatory field for a kms"));
    }
    let Some(socket) = endpoint.strip_prefix("unix://") else {
        let scheme = endpoint.split_once(':').map_or("", |(scheme, _)| scheme);
        let why = format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported");
        return Err(fault(&of("endpoint"), &why));
    };
    if cache_size.is_some() {
        return Err(fault(&of("cachesize"), "cachesize is not supported in v2"));
    }
    let socket = if socket.starts_with("/@") { &socket[1..] } else { socket };
    Ok(Kms { name, socket: socket.to_owned(), timeout })
}

fn check_overlap(resources: &[Named]) -> Result<(), &'static str> {
    for (at, one) in resources.iter().enumerate() {
        for other in resources.iter().skip(at + 1) {
            if one == other {
                return Err("the same resource cannot be specified multiple times");
            }
            let is_all = |named: &Named| named.group == "*" && named.resource == "*";
            let is_group = |named: &Named| named.resource == "*";
            if is_all(one) || is_all(other) || one.group == other.group && (is_group(one) || is_group(other)) {
                return Err(
                    "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked",
                );
            }
        }
    }
    Ok(())
}

fn fault_of_name(name: &str, named: &Named) -> Option<&'static str> {
    if name.chars().any(char::is_uppercase) {
        return Some("resource name should not contain capital letters");
    }
    match (name, &*named.resource, &*named.group) {
        ("*", ..) => Some("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"),
        ("apiserveripinfo" | "serviceipallocations" | "servicenodeportallocations", ..) => {
            Some("resources which do not have REST API/s cannot be encrypted")
        }
        (_, _, "events.k8s.io") => Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        ),
        (_, _, "extensions") => Some("'extensions' group has been removed and cannot be used for encryption"),
        (_, resource, "*") if resource != "*" => Some("encrypting the same resource across groups is not supported"),
        _ => None,
    }
}

fn required<T>(list: Option<Vec<T>>, field: &str, what: &str) -> Result<Vec<T>, ConfigurationError> {
    match list {
        Some(list) if !list.is_empty() => Ok(list),
        _ => Err(fault(field, &format!("at least one {what} is required"))),
    }
}

fn fault(field: &str, why: &str) -> ConfigurationError {
    ConfigurationError::Field { field: field.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests;
