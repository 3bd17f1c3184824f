//! `clouds.yaml` and `secure.yaml`, in the format of openstacksdk.
//!
//! The first directory that has a `clouds.yaml` wins; an entry of the same name in the first `secure.yaml` found overrides
//! it key by key, so that secrets can be kept apart. Keys that do not concern networks are ignored.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::config::settings::{Settings, Style, expand_home};
use crate::config::{Error, Source};

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Default, Deserialize)]
struct Document {
    clouds: Option<BTreeMap<String, Option<Entry>>>,
}

#[derive(Debug, Default, Deserialize)]
struct Entry {
    auth: Option<Auth>,
    auth_type: Option<String>,
    cacert: Option<String>,
    default_domain: Option<String>,
    endpoint_type: Option<String>,
    identity_api_version: Option<String>,
    insecure: Option<bool>,
    interface: Option<String>,
    network_endpoint_override: Option<String>,
    network_interface: Option<String>,
    profile: Option<String>,
    region_name: Option<String>,
    regions: Option<Vec<Region>>,
    verify: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct Auth {
    application_credential_id: Option<String>,
    application_credential_name: Option<String>,
    application_credential_secret: Option<String>,
    auth_url: Option<String>,
    default_domain_id: Option<String>,
    endpoint: Option<String>,
    password: Option<String>,
    project_domain_id: Option<String>,
    project_domain_name: Option<String>,
    project_id: Option<String>,
    project_name: Option<String>,
    tenant_id: Option<String>,
    tenant_name: Option<String>,
    user_domain_id: Option<String>,
    user_domain_name: Option<String>,
    user_id: Option<String>,
    username: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Region {
    Name(String),
    Entry { name: String },
}

/// The settings of one cloud.
pub(crate) fn load(cloud: &str, source: &Source<'_>) -> Result<Settings, Error> {
    let Some((path, mut clouds)) = find("clouds", "OS_CLIENT_CONFIG_FILE", source)? else {
        let searched: Vec<String> = source.dirs.iter().map(|dir| dir.display().to_string()).collect();
        return Err(Error::NoCloudsFile { cloud: cloud.to_owned(), searched: searched.join(", ") });
    };
    let Some(entry) = clouds.remove(cloud) else {
        let known: Vec<String> = clouds.into_keys().collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(Error::UnknownCloud { path, cloud: cloud.to_owned(), known });
    };
    let origin = format!("cloud {cloud:?} of {}", path.display());
    let secure = match find("secure", "OS_CLIENT_SECURE_FILE", source)? {
        Some((_, mut clouds)) => clouds.remove(cloud).flatten().unwrap_or_default(),
        None => Entry::default(),
    };
    combine(origin, entry.unwrap_or_default(), secure)
}

type Found = Option<(PathBuf, BTreeMap<String, Option<Entry>>)>;

/// The first file of this kind, in the directories or at the path in a variable.
fn find(stem: &str, variable: &str, source: &Source<'_>) -> Result<Found, Error> {
    let named = source.vars.get(variable).filter(|path| !path.is_empty());
    let candidates: Vec<PathBuf> = match named {
        Some(path) => vec![expand_home(path, source.vars)],
        None => {
            let in_dir = |dir: &PathBuf| [dir.join(format!("{stem}.yaml")), dir.join(format!("{stem}.yml"))];
            source.dirs.iter().flat_map(in_dir).collect()
        }
    };
    for path in candidates {
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if named.is_none() && is_absent(&error) => continue,
            Err(source) => return Err(Error::Io { path, source }),
        };
        let clouds = parse(&path, &bytes)?;
        return Ok(Some((path, clouds)));
    }
    Ok(None)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<BTreeMap<String, Option<Entry>>, Error> {
    let refuse = |reason: String| Error::File { path: path.to_owned(), reason };
    if FILE_BYTES_MAX < bytes.len() {
        return Err(refuse(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    let text = str::from_utf8(bytes).map_err(|error| refuse(error.to_string()))?;
    // Errors have no excerpt: the lines around a fault may contain a password.
    let options = serde_saphyr::options! { with_snippet: false };
    let document: Option<Document> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| refuse(error.to_string()))?;
    Ok(document.unwrap_or_default().clouds.unwrap_or_default())
}

/// Settings of the secure file override those of the other.
fn combine(origin: String, open: Entry, secure: Entry) -> Result<Settings, Error> {
    if let Some(profile) = secure.profile.or(open.profile) {
        return Err(Error::Unsupported {
            origin,
            key: "profile".to_owned(),
            value: profile,
            remedy: "write the profile's auth_url and region_name into the cloud itself",
        });
    }
    let regions = secure.regions.or(open.regions).unwrap_or_default();
    let first_region = regions.into_iter().next().map(|region| match region {
        Region::Name(name) | Region::Entry { name } => name,
    });
    let insecure = secure.insecure.or(open.insecure).unwrap_or(false) || secure.verify.or(open.verify) == Some(false);
    let (open_auth, secure_auth) = (open.auth.unwrap_or_default(), secure.auth.unwrap_or_default());
    Ok(Settings {
        origin,
        style: Style::Key,
        application_credential_id: secure_auth.application_credential_id.or(open_auth.application_credential_id),
        application_credential_name: secure_auth.application_credential_name.or(open_auth.application_credential_name),
        application_credential_secret: secure_auth
            .application_credential_secret
            .or(open_auth.application_credential_secret),
        auth_type: secure.auth_type.or(open.auth_type),
        auth_url: secure_auth.auth_url.or(open_auth.auth_url),
        cacert: secure.cacert.or(open.cacert),
        default_domain: secure_auth
            .default_domain_id
            .or(open_auth.default_domain_id)
            .or(secure.default_domain)
            .or(open.default_domain),
        endpoint: secure
            .network_endpoint_override
            .or(open.network_endpoint_override)
            .or(secure_auth.endpoint)
            .or(open_auth.endpoint),
        identity_api_version: secure.identity_api_version.or(open.identity_api_version),
        insecure,
        interface: secure
            .network_interface
            .or(open.network_interface)
            .or(secure.interface)
            .or(open.interface)
            .or(secure.endpoint_type)
            .or(open.endpoint_type),
        password: secure_auth.password.or(open_auth.password),
        project_domain_id: secure_auth.project_domain_id.or(open_auth.project_domain_id),
        project_domain_name: secure_auth.project_domain_name.or(open_auth.project_domain_name),
        project_id: secure_auth.project_id.or(open_auth.project_id).or(secure_auth.tenant_id).or(open_auth.tenant_id),
        project_name: secure_auth
            .project_name
            .or(open_auth.project_name)
            .or(secure_auth.tenant_name)
            .or(open_auth.tenant_name),
        region: secure.region_name.or(open.region_name).or(first_region),
        user_domain_id: secure_auth.user_domain_id.or(open_auth.user_domain_id),
        user_domain_name: secure_auth.user_domain_name.or(open_auth.user_domain_name),
        user_id: secure_auth.user_id.or(open_auth.user_id),
        username: secure_auth.username.or(open_auth.username),
    })
}
