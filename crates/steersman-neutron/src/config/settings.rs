//! The settings that variables and `clouds.yaml` share, and the checks that turn them into a configuration.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::{Access, Config, Credentials, Domain, Error, Keystone, Named, Secret, keystone_url, service_url};

/// The settings as given, unchecked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Where the setting comes from, for error messages.
    pub(crate) origin: String,
    /// Whether error messages name variables or keys.
    pub(crate) style: Style,
    pub(crate) application_credential_id: Option<String>,
    pub(crate) application_credential_name: Option<String>,
    pub(crate) application_credential_secret: Option<String>,
    pub(crate) auth_type: Option<String>,
    pub(crate) auth_url: Option<String>,
    pub(crate) cacert: Option<String>,
    pub(crate) default_domain: Option<String>,
    pub(crate) endpoint: Option<String>,
    pub(crate) identity_api_version: Option<String>,
    /// Whether to skip the check of the server's certificate.
    pub(crate) insecure: bool,
    pub(crate) interface: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) project_domain_id: Option<String>,
    pub(crate) project_domain_name: Option<String>,
    pub(crate) project_id: Option<String>,
    pub(crate) project_name: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) user_domain_id: Option<String>,
    pub(crate) user_domain_name: Option<String>,
    pub(crate) user_id: Option<String>,
    pub(crate) username: Option<String>,
}

/// The spelling of settings in their source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Style {
    /// `auth_url`
    #[default]
    Key,
    /// `OS_AUTH_URL`
    Variable,
}

impl Settings {
    pub(crate) fn from_vars(vars: &BTreeMap<String, String>) -> Self {
        let read = |names: &[&str]| {
            let values = names.iter().filter_map(|name| vars.get(*name));
            values.map(|value| value.trim().to_owned()).find(|value| !value.is_empty())
        };
        // A password may begin or end with a space.
        let read_verbatim = |name: &str| vars.get(name).filter(|value| !value.is_empty()).cloned();
        Self {
            origin: "the environment".to_owned(),
            style: Style::Variable,
            application_credential_id: read(&["OS_APPLICATION_CREDENTIAL_ID"]),
            application_credential_name: read(&["OS_APPLICATION_CREDENTIAL_NAME"]),
            application_credential_secret: read_verbatim("OS_APPLICATION_CREDENTIAL_SECRET"),
            auth_type: read(&["OS_AUTH_TYPE"]),
            auth_url: read(&["OS_AUTH_URL"]),
            cacert: read(&["OS_CACERT"]),
            default_domain: read(&["OS_DEFAULT_DOMAIN_ID", "OS_DEFAULT_DOMAIN"]),
            endpoint: read(&["OS_NETWORK_ENDPOINT_OVERRIDE"]),
            identity_api_version: read(&["OS_IDENTITY_API_VERSION"]),
            insecure: read(&["OS_INSECURE"]).is_some_and(|value| is_true(&value)),
            interface: read(&["OS_INTERFACE", "OS_ENDPOINT_TYPE"]),
            password: read_verbatim("OS_PASSWORD"),
            project_domain_id: read(&["OS_PROJECT_DOMAIN_ID"]),
            project_domain_name: read(&["OS_PROJECT_DOMAIN_NAME"]),
            project_id: read(&["OS_PROJECT_ID", "OS_TENANT_ID"]),
            project_name: read(&["OS_PROJECT_NAME", "OS_TENANT_NAME"]),
            region: read(&["OS_REGION_NAME"]),
            user_domain_id: read(&["OS_USER_DOMAIN_ID"]),
            user_domain_name: read(&["OS_USER_DOMAIN_NAME"]),
            user_id: read(&["OS_USER_ID"]),
            username: read(&["OS_USERNAME"]),
        }
    }

    pub(crate) fn into_config(self, vars: &BTreeMap<String, String>) -> Result<Config, Error> {
        if self.insecure {
            let (key, value) = match self.style {
                Style::Key => ("verify", "false"),
                Style::Variable => ("insecure", "true"),
            };
            return Err(self.unsupported(
                key,
                value,
                "name the authority that signed the server's certificate as cacert",
            ));
        }
        if let Some(version) = &self.identity_api_version
            && version.split('.').next() != Some("3")
        {
            return Err(self.unsupported("identity_api_version", version, "use 3, the only one Keystone still has"));
        }
        let access = match self.auth_type.as_deref() {
            Some("none" | "noauth") => Access::Unauthenticated { endpoint: self.require_endpoint()? },
            Some("application_credential" | "v3applicationcredential") => {
                Access::Keystone(self.keystone(self.application_credential()?)?)
            }
            Some("password" | "v3password") => Access::Keystone(self.keystone(self.password()?)?),
            None if self.has_application_credential() => {
                Access::Keystone(self.keystone(self.application_credential()?)?)
            }
            // Without any setting, the first error is the missing URL of Keystone.
            None if self.auth_url.is_none() => return Err(self.missing(&["auth_url"])),
            None => Access::Keystone(self.keystone(self.password()?)?),
            Some(other) => {
                return Err(self.unsupported("auth_type", other, "use password or v3applicationcredential"));
            }
        };
        let ca_certificates = match &self.cacert {
            Some(file) => {
                let path = expand_home(file, vars);
                Some(fs::read(&path).map_err(|source| Error::Io { path, source })?)
            }
            None => None,
        };
        Ok(Config { ca_certificates, ..Config::new(access) })
    }

    fn keystone(&self, credentials: Credentials) -> Result<Keystone, Error> {
        let auth_url = self.auth_url.as_deref().ok_or_else(|| self.missing(&["auth_url"]))?;
        let interface = self.interface.as_deref().unwrap_or("public");
        let interface = interface.strip_suffix("URL").unwrap_or(interface);
        if !matches!(interface, "admin" | "internal" | "public") {
            return Err(self.unsupported("interface", interface, "use public, internal or admin"));
        }
        Ok(Keystone {
            auth_url: keystone_url(auth_url)?,
            credentials,
            region: self.region.clone(),
            interface: interface.to_owned(),
            endpoint: self.endpoint.as_deref().map(service_url).transpose()?,
        })
    }

    fn require_endpoint(&self) -> Result<reqwest::Url, Error> {
        let endpoint = self.endpoint.as_deref().ok_or_else(|| self.missing(&["network_endpoint_override"]))?;
        service_url(endpoint)
    }

    fn has_application_credential(&self) -> bool {
        self.application_credential_id.is_some() || self.application_credential_name.is_some()
    }

    fn application_credential(&self) -> Result<Credentials, Error> {
        let secret = self.application_credential_secret.clone();
        let secret = secret.ok_or_else(|| self.missing(&["application_credential_secret"]))?;
        let credential = match (&self.application_credential_id, &self.application_credential_name) {
            (Some(id), _) => Named::Id(id.clone()),
            (None, Some(name)) => Named::OfUser { name: name.clone(), user: Box::new(self.user()?) },
            (None, None) => {
                return Err(self.missing(&["application_credential_id", "application_credential_name"]));
            }
        };
        Ok(Credentials::ApplicationCredential { credential, secret: Secret(secret) })
    }

    fn password(&self) -> Result<Credentials, Error> {
        let user = self.user()?;
        let password = self.password.clone().ok_or_else(|| self.missing(&["password"]))?;
        let project = match (&self.project_id, &self.project_name) {
            (Some(id), _) => Named::Id(id.clone()),
            (None, Some(name)) => Named::InDomain {
                name: name.clone(),
                domain: self.domain(&self.project_domain_id, &self.project_domain_name),
            },
            (None, None) => return Err(self.missing(&["project_name", "project_id"])),
        };
        Ok(Credentials::Password { user, password: Secret(password), project })
    }

    fn user(&self) -> Result<Named, Error> {
        match (&self.user_id, &self.username) {
            (Some(id), _) => Ok(Named::Id(id.clone())),
            (None, Some(name)) => Ok(Named::InDomain {
                name: name.clone(),
                domain: self.domain(&self.user_domain_id, &self.user_domain_name),
            }),
            (None, None) => Err(self.missing(&["username", "user_id"])),
        }
    }

    /// Without a domain, the id `default` is used, which every Keystone has from its start.
    fn domain(&self, id: &Option<String>, name: &Option<String>) -> Domain {
        match (id, name) {
            (Some(id), _) => Domain::Id(id.clone()),
            (None, Some(name)) => Domain::Name(name.clone()),
            (None, None) => Domain::Id(self.default_domain.clone().unwrap_or_else(|| "default".to_owned())),
        }
    }

    /// The error that one of these keys is needed.
    fn missing(&self, keys: &[&str]) -> Error {
        let names: Vec<String> = keys.iter().map(|key| self.spelled(key)).collect();
        Error::Missing { origin: self.origin.clone(), missing: names.join(" or ") }
    }

    fn unsupported(&self, key: &str, value: &str, remedy: &'static str) -> Error {
        let (origin, key) = (self.origin.clone(), self.spelled(key));
        Error::Unsupported { origin, key, value: value.to_owned(), remedy }
    }

    /// The spelling of a key in the source of these settings.
    fn spelled(&self, key: &str) -> String {
        match self.style {
            Style::Key => key.to_owned(),
            Style::Variable => format!("OS_{}", key.to_ascii_uppercase()),
        }
    }
}

fn is_true(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
}

/// Replaces a leading `~/` by the user's home.
pub(crate) fn expand_home(file: &str, vars: &BTreeMap<String, String>) -> PathBuf {
    match (file.strip_prefix("~/"), vars.get("HOME")) {
        (Some(rest), Some(home)) => Path::new(home).join(rest),
        (_, _) => PathBuf::from(file),
    }
}
