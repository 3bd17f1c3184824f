//! The sources of a client's configuration, and the errors without one.

use std::error::Error;

use steersman::client::ClientError;
use steersman::{ClientOptions, client};

const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: secret}}]
contexts:
- {name: here, context: {cluster: c, user: u, namespace: team}}
- {name: there, context: {cluster: c, user: u, namespace: other}}
"#;

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn with_file(file: &tempfile::NamedTempFile) -> ClientOptions {
    ClientOptions::default().kubeconfig(file.path().to_owned())
}

#[tokio::test]
async fn a_kubeconfig_gives_its_current_context_or_the_one_asked_for() {
    let file = file(KUBECONFIG);
    let options = with_file(&file);
    assert_eq!(client(&options).await.unwrap().default_namespace(), "team");
    let options = options.context("there".to_owned());
    assert_eq!(client(&options).await.unwrap().default_namespace(), "other");
}

#[tokio::test]
async fn a_master_alone_is_enough() {
    let options = ClientOptions::default().master("http://127.0.0.1:1".to_owned());
    assert_eq!(client(&options).await.unwrap().default_namespace(), "default");
}

#[tokio::test]
async fn what_cannot_be_used_is_named() {
    let broken = file("clusters: 7");
    let contextless = with_file(&broken).context("nowhere".to_owned());
    let missing = ClientOptions::default().kubeconfig(std::path::PathBuf::from("/does/not/exist"));
    let master = ClientOptions::default().master("localhost".to_owned());
    let good = file(KUBECONFIG);
    let agent = with_file(&good).user_agent("a\nb".to_owned());
    for (options, expected) in [
        (with_file(&broken), format!("kubeconfig {} cannot be used", broken.path().display())),
        (contextless, format!("kubeconfig {} cannot be used", broken.path().display())),
        (missing, "kubeconfig /does/not/exist cannot be used".to_owned()),
        (master, r#"master "localhost" is not a URL such as https://127.0.0.1:6443"#.to_owned()),
        (agent, r#"user agent "a\nb" cannot be sent in a header: use printable ASCII"#.to_owned()),
    ] {
        // `Client` does not implement Debug, which `unwrap_err` requires.
        let Err(error) = client(&options).await else { panic!("{options:?} made a client") };
        assert_eq!(error.to_string(), expected);
        assert_eq!(matches!(error, ClientError::Kubeconfig { .. }), error.source().is_some());
    }
}
