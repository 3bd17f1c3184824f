//! Configurations from variables and files, and the error messages.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fs;
use std::path::PathBuf;

use expect_test::{Expect, expect};
use proptest::prelude::{any, prop_assert, proptest};

use super::{Access, Config, Credentials, Domain, Identity, Keystone, Named, Source, search_dirs};

fn vars(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn named(named: &Named) -> String {
    match named {
        Named::Id(id) => format!("id {id}"),
        Named::InDomain { name, domain: Domain::Id(domain) } => format!("{name} in domain id {domain}"),
        Named::InDomain { name, domain: Domain::Name(domain) } => format!("{name} in domain {domain}"),
        Named::OfUser { name, user } => format!("{name} of {}", self::named(user)),
    }
}

fn summary(config: &Config) -> String {
    let Keystone { auth_url, credentials, region, interface, endpoint } = match &config.access {
        Access::Keystone(keystone) => keystone,
        Access::Unauthenticated { endpoint } => return format!("open {endpoint}"),
        Access::Headers { endpoint, identity } => return format!("headers {endpoint} {}", identity.project_id),
    };
    let who = match credentials {
        Credentials::ApplicationCredential { credential, secret } => {
            format!("credential {} secret {}", named(credential), secret.0)
        }
        Credentials::Password { user, password, project } => {
            format!("user {} password {} project {}", named(user), password.0, named(project))
        }
    };
    let endpoint = endpoint.as_ref().map(ToString::to_string);
    format!("{auth_url}\n{who}\nregion {region:?} interface {interface} endpoint {endpoint:?}")
}

#[track_caller]
fn check_vars(pairs: &[(&str, &str)], expected: Expect) {
    let vars = vars(pairs);
    let text = match Config::keystone(&Source { vars: &vars, cloud: None, dirs: &[] }) {
        Ok(config) => summary(&config),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&text);
}

#[track_caller]
fn check_files(files: &[(&str, &str)], cloud: &str, expected: Expect) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
        fs::write(dir.path().join(name), text).unwrap();
    }
    let dirs = [dir.path().join("a"), dir.path().join("b")];
    let vars = vars(&[("OS_AUTH_URL", "http://from-the-environment"), ("HOME", &dir.path().display().to_string())]);
    let text = match Config::keystone(&Source { vars: &vars, cloud: Some(cloud), dirs: &dirs }) {
        Ok(config) => summary(&config),
        Err(error) => match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    };
    expected.assert_eq(&text.replace(&dir.path().display().to_string(), "DIR"));
}

const PASSWORD: [(&str, &str); 5] = [
    ("OS_AUTH_URL", "http://k:5000"),
    ("OS_USERNAME", "u"),
    ("OS_PASSWORD", " p "),
    ("OS_PROJECT_NAME", "x"),
    ("OS_REGION_NAME", ""),
];

fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    PASSWORD.iter().chain(more).copied().collect()
}

#[test]
fn variables_describe_a_password_sign_in() {
    check_vars(
        &PASSWORD,
        expect![[r#"
            http://k:5000/v3
            user u in domain id default password  p  project x in domain id default
            region None interface public endpoint None"#]],
    );
    check_vars(
        &with(&[
            ("OS_USER_DOMAIN_NAME", "people"),
            ("OS_PROJECT_ID", "42"),
            ("OS_REGION_NAME", "R"),
            ("OS_INTERFACE", "internalURL"),
            ("OS_NETWORK_ENDPOINT_OVERRIDE", "http://n:9696/v2.0"),
            ("OS_IDENTITY_API_VERSION", "3"),
        ]),
        expect![[r#"
            http://k:5000/v3
            user u in domain people password  p  project id 42
            region Some("R") interface internal endpoint Some("http://n:9696/")"#]],
    );
}

#[test]
fn variables_describe_an_application_credential() {
    check_vars(
        &[
            ("OS_AUTH_URL", "http://k/identity/v3/"),
            ("OS_APPLICATION_CREDENTIAL_ID", "c"),
            ("OS_APPLICATION_CREDENTIAL_SECRET", "s"),
        ],
        expect![[r#"
            http://k/identity/v3
            credential id c secret s
            region None interface public endpoint None"#]],
    );
    check_vars(
        &with(&[
            ("OS_AUTH_TYPE", "v3applicationcredential"),
            ("OS_APPLICATION_CREDENTIAL_NAME", "c"),
            ("OS_APPLICATION_CREDENTIAL_SECRET", "s"),
        ]),
        expect![[r#"
            http://k:5000/v3
            credential c of u in domain id default secret s
            region None interface public endpoint None"#]],
    );
}

#[test]
fn what_is_missing_or_unsupported_is_named() {
    check_vars(&[], expect!["the environment does not say OS_AUTH_URL"]);
    check_vars(&PASSWORD[..1], expect!["the environment does not say OS_USERNAME or OS_USER_ID"]);
    check_vars(&with(&[("OS_PASSWORD", "")]), expect!["the environment does not say OS_PASSWORD"]);
    check_vars(
        &with(&[("OS_AUTH_TYPE", "v3totp")]),
        expect![[
            r#"the environment: OS_AUTH_TYPE "v3totp" is not supported; use password or v3applicationcredential"#
        ]],
    );
    check_vars(
        &with(&[("OS_IDENTITY_API_VERSION", "2")]),
        expect![[
            r#"the environment: OS_IDENTITY_API_VERSION "2" is not supported; use 3, the only one Keystone still has"#
        ]],
    );
    check_vars(
        &with(&[("OS_INSECURE", "True")]),
        expect![[
            r#"the environment: OS_INSECURE "true" is not supported; name the authority that signed the server's certificate as cacert"#
        ]],
    );
    check_vars(
        &with(&[("OS_AUTH_URL", "k:5000")]),
        expect![[r#""k:5000" is not a usable URL: its scheme is k; it should look like http://host:9696"#]],
    );
}

const CLOUDS: &str = "
clouds:
  one:
    auth:
      auth_url: http://k/v3
      username: u
      password: 0123
      project_name: x
    regions: [R1, {name: R2}]
    interface: internal
    volume_api_version: 3
  two: &two
    auth: {auth_url: http://k, application_credential_id: c}
    region_name: R
  open:
    auth_type: none
    auth: {endpoint: 'http://n:9696/'}
  public: {profile: vexxhost}
  blind: {verify: false}
  empty:
";

#[test]
fn a_cloud_is_read_from_its_file() {
    check_files(
        &[("b/clouds.yaml", CLOUDS)],
        "one",
        expect![[r#"
            http://k/v3
            user u in domain id default password 0123 project x in domain id default
            region Some("R1") interface internal endpoint None"#]],
    );
    check_files(&[("a/clouds.yml", CLOUDS)], "open", expect!["open http://n:9696/"]);
}

#[test]
fn secrets_may_live_in_a_file_of_their_own() {
    check_files(
        &[
            ("b/clouds.yaml", CLOUDS),
            ("a/secure.yaml", "clouds: {two: {auth: {application_credential_secret: s}}, one: {}}"),
        ],
        "two",
        expect![[r#"
            http://k/v3
            credential id c secret s
            region Some("R") interface public endpoint None"#]],
    );
}

#[test]
fn the_first_directory_with_a_file_wins() {
    let other = "clouds: {two: {auth: {}}}";
    check_files(
        &[("b/clouds.yaml", CLOUDS), ("a/clouds.yaml", other)],
        "one",
        expect![[r#"DIR/a/clouds.yaml has no cloud "one", it has two"#]],
    );
}

#[test]
fn what_is_wrong_with_a_file_is_said_without_its_secrets() {
    check_files(&[], "one", expect![[r#"cloud "one" is asked for, but there is no clouds.yaml in DIR/a, DIR/b"#]]);
    check_files(
        &[("a/clouds.yaml", CLOUDS)],
        "public",
        expect![[
            r#"cloud "public" of DIR/a/clouds.yaml: profile "vexxhost" is not supported; write the profile's auth_url and region_name into the cloud itself"#
        ]],
    );
    check_files(
        &[("a/clouds.yaml", CLOUDS)],
        "blind",
        expect![[
            r#"cloud "blind" of DIR/a/clouds.yaml: verify "false" is not supported; name the authority that signed the server's certificate as cacert"#
        ]],
    );
    check_files(
        &[("a/clouds.yaml", CLOUDS)],
        "empty",
        expect![[r#"cloud "empty" of DIR/a/clouds.yaml does not say auth_url"#]],
    );
    check_files(
        &[("a/clouds.yaml", "clouds: {one: {auth: hunter2}}")],
        "one",
        expect!["DIR/a/clouds.yaml cannot be used: expected mapping start at line 1, column 22"],
    );
    check_files(
        &[("a/clouds.yaml", "clouds: {one: {auth: {password: [hunter2]}, verify: hunter2}}")],
        "one",
        expect!["DIR/a/clouds.yaml cannot be used: expected string scalar at line 1, column 33"],
    );
    check_files(
        &[("a/clouds.yaml", "clouds:\n  one:\n    auth:\n      password: hunter2\n     username: u\n")],
        "one",
        expect![
            "DIR/a/clouds.yaml cannot be used: while parsing a block mapping, did not find expected key at line 5, column 6"
        ],
    );
}

#[test]
fn directories_are_searched_from_near_to_far() {
    let paths = |pairs| search_dirs(&vars(pairs));
    let expected: Vec<PathBuf> = [".", "/h/.config/openstack", "/etc/openstack"].map(PathBuf::from).to_vec();
    assert_eq!(paths(&[("HOME", "/h")]), expected);
    assert_eq!(paths(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")])[1], PathBuf::from("/x/openstack"));
    assert_eq!(paths(&[]).len(), 2);
}

#[test]
fn urls_of_services_are_put_into_one_form() {
    let form =
        |url: &str| Config::unauthenticated(url).map(|config| summary(&config)).unwrap_or_else(|e| e.to_string());
    assert_eq!(form("http://h:9696/v2.0/"), "open http://h:9696/");
    assert_eq!(form("https://h/networking/"), "open https://h/networking");
    assert_eq!(
        form("ftp://h"),
        r#""ftp://h" is not a usable URL: its scheme is ftp; it should look like http://host:9696"#
    );
    assert!(!form("http://user:hunter2@h").contains("hunter2"));
}

#[test]
fn debug_output_hides_secrets() {
    let vars = vars(&PASSWORD);
    let config = Config::keystone(&Source { vars: &vars, cloud: None, dirs: &[] }).unwrap();
    assert!(!format!("{config:?}").contains(" p "));
}

#[test]
fn an_endpoint_can_be_put_in_the_catalogs_place() {
    let vars = vars(&PASSWORD);
    let config = Config::keystone(&Source { vars: &vars, cloud: None, dirs: &[] }).unwrap();
    let config = config.with_endpoint("http://n:9696").unwrap();
    assert!(summary(&config).ends_with(r#"endpoint Some("http://n:9696/")"#));
    let identity = Identity { user_id: None, project_id: "p".to_owned(), roles: Vec::new() };
    let config = Config::headers("http://a", identity).unwrap().with_endpoint("http://b").unwrap();
    assert_eq!(summary(&config), "headers http://b/ p");
}

proptest! {
    #[test]
    fn no_file_breaks_the_reader(text in "(clouds:\n)?[ a-z:{}\\[\\]&*!'\"\n-]{0,200}", bytes in any::<Vec<u8>>()) {
        let dir = tempfile::tempdir().unwrap();
        for content in [text.as_bytes(), &bytes] {
            fs::write(dir.path().join("clouds.yaml"), content).unwrap();
            let source = Source { vars: &BTreeMap::new(), cloud: Some("a"), dirs: &[dir.path().to_owned()] };
            prop_assert!(Config::keystone(&source).is_err());
        }
    }
}
