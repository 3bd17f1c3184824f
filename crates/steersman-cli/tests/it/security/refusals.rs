//! Requests that must be refused, sent to a real server over TLS, and beside each kind of them one that must be
//! granted.
//!
//! The tables are in `tests/refusals`; this file has the senders of their rows. Each answer is compared with its row,
//! and afterwards the connection must be closed or in step: no part of a request may be taken for another request. At
//! the end the server runs, no request has made its code panic, and none of its logs contains a credential.

mod certificates;
mod foreign;
mod forged;
mod frames;
mod table;
mod wire;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rcgen::{DnType, DnValue, KeyPair};
use serde_json::{Value, json};
use steersman_server::authn::{Algorithm, SigningKey};

use crate::security::refusals::foreign::Foreign;
use crate::security::refusals::forged::Forger;
use crate::security::refusals::table::{Request, Row, Want};
use crate::security::refusals::wire::{Credential, Outcome, Server};
use crate::support::eventually;
use crate::support::plane::Plane;

/// The fewest refusals in all tables together.
const REFUSALS_MIN: usize = 100;

/// Users with a static token, and their groups. Their permissions are in [`ROLES`].
const USERS: [(&str, &str); 20] = [
    ("master", "system:masters"),
    ("alice", "developers"),
    ("reader", ""),
    ("updater", ""),
    ("lister", ""),
    ("one-name", ""),
    ("writer", ""),
    ("cluster-writer", ""),
    ("impersonator", ""),
    ("prober", ""),
    ("scraper", ""),
    ("requester", ""),
    ("approver", ""),
    ("judged-allowed", ""),
    ("judged-both", ""),
    ("judged-denied", ""),
    ("judged-failing", ""),
    ("judged-late", ""),
    ("judged-nonsense", ""),
    ("judged-undecided", ""),
];

/// Tokens about which the webhook answers.
const HOOKED: [&str; 6] =
    ["hook-babbles", "hook-elsewhere", "hook-fails", "hook-knows", "hook-nameless", "hook-refuses"];

/// Permissions: a user, a namespace or none, rules.
const ROLES: [(&str, Option<&str>, &str); 13] = [
    (
        "reader",
        Some("team"),
        r#"[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","list","watch"]},{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]"#,
    ),
    ("judged-denied", Some("team"), r#"[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]"#),
    ("robot", Some("team"), r#"[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]"#),
    (
        "updater",
        Some("team"),
        r#"[{"apiGroups":["","rbac.authorization.k8s.io","coordination.k8s.io"],"resources":["configmaps","leases","services"],"verbs":["get","update","patch"]}]"#,
    ),
    ("lister", Some("team"), r#"[{"apiGroups":[""],"resources":["configmaps"],"verbs":["list"]}]"#),
    (
        "one-name",
        Some("team"),
        r#"[{"apiGroups":[""],"resources":["configmaps"],"resourceNames":["c"],"verbs":["*"]}]"#,
    ),
    (
        "writer",
        Some("team"),
        r#"[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles","rolebindings"],"verbs":["get","create","update","patch","delete"]},{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]},{"apiGroups":[""],"resources":["serviceaccounts"],"verbs":["get"]}]"#,
    ),
    (
        "cluster-writer",
        None,
        r#"[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["clusterroles","clusterrolebindings"],"verbs":["get","create","update","patch"]},{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]"#,
    ),
    (
        "impersonator",
        None,
        r#"[{"apiGroups":[""],"resources":["users"],"resourceNames":["jane"],"verbs":["impersonate"]},{"apiGroups":[""],"resources":["groups"],"resourceNames":["team"],"verbs":["impersonate"]},{"apiGroups":["authentication.k8s.io"],"resources":["userextras/scopes"],"resourceNames":["view"],"verbs":["impersonate"]}]"#,
    ),
    (
        "requester",
        None,
        r#"[{"apiGroups":["certificates.k8s.io"],"resources":["certificatesigningrequests"],"verbs":["create"]}]"#,
    ),
    (
        "approver",
        None,
        r#"[{"apiGroups":["certificates.k8s.io"],"resources":["certificatesigningrequests","certificatesigningrequests/approval"],"verbs":["get","update","patch"]}]"#,
    ),
    ("prober", None, r#"[{"nonResourceURLs":["/probe/*"],"verbs":["get"]}]"#),
    ("scraper", None, r#"[{"nonResourceURLs":["*"],"verbs":["get"]}]"#),
];

/// An audit policy that logs every request without its body.
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";

#[test]
fn requests_that_must_be_refused_are_and_others_are_not() {
    let home = tempfile::tempdir().unwrap();
    let (key, mut flags) = prepare(home.path());
    let foreign = Foreign::start();
    flags.extend(foreign.flags(home.path()));
    // Loops that would change objects of the rows, such as the taints of nodes, do not run.
    flags.push("--controllers=certificates,namespace,serviceaccount-token".to_owned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let plane = Plane::server(home.path(), &flags);
    let pki = home.path().join("data/pki");
    let server = Server::new(plane.listen(), &pki.join("ca.crt"));
    let read = |name: &str| std::fs::read_to_string(pki.join(name)).unwrap();
    let admin = Credential::Certificate(read("admin.crt"), read("admin.key"));
    let api = Api { server: &server, admin: &admin };
    set_up(&api);
    let mut senders = tokens(&api, &key);
    senders.extend(foreign.tokens().into_iter().map(|(name, token)| (name.to_owned(), Credential::Token(token))));
    senders.extend(HOOKED.map(|name| (name.to_owned(), Credential::Token(format!("{name}-0123456789")))));
    senders.extend(certificates::all(home.path(), &pki));
    senders.insert("admin".to_owned(), admin.clone());
    senders.insert("nobody".to_owned(), Credential::Nothing);
    let tokens = senders.iter().filter_map(|(name, sender)| match sender {
        Credential::Token(token) => Some((name.clone(), token.clone())),
        _ => None,
    });
    let tokens: BTreeMap<String, String> = tokens.collect();
    eventually("the graph of nodes is up with the pods", || {
        let path = "/api/v1/namespaces/team/secrets/of-n1";
        (api.send(&senders["node-one"], "GET", path, "").0 == 200).then_some(())
    });
    let mut values = tokens.clone();
    values.insert("request".to_owned(), certificates::request("somebody", "developers"));
    values.insert("request-of-masters".to_owned(), certificates::request("somebody", "system:masters"));
    let (name, group) = (DnType::CommonName, DnType::OrganizationName);
    let masters = DnValue::BmpString("system:masters".try_into().unwrap());
    let wide = certificates::request_of(&[(name.clone(), "somebody".into()), (group.clone(), masters)]);
    values.insert("request-of-wide-masters".to_owned(), wide);
    for (title, first, second) in
        [("n1-n2", "system:node:n1", "system:node:n2"), ("n2-n1", "system:node:n2", "system:node:n1")]
    {
        let subject = [
            (name.clone(), first.into()),
            (group.clone(), "system:nodes".into()),
            (certificates::second_name(), second.into()),
        ];
        values.insert(format!("request-of-{title}"), certificates::request_of(&subject));
    }

    let (mut wrong, mut n_refused) = (String::new(), 0);
    for path in tables() {
        let title = path.file_stem().unwrap().to_string_lossy().into_owned();
        let rows = table::parse(&std::fs::read_to_string(&path).unwrap(), &values);
        let n_granted = rows.iter().filter(|row| matches!(row.want, Want::Granted(_))).count();
        assert!(n_granted > 0, "{title} has no request that is granted: a server that refuses all would pass");
        n_refused += rows.len() - n_granted;
        for row in rows {
            let sender = senders.get(&row.who).unwrap_or_else(|| panic!("nobody is called {}: {}", row.who, row.name));
            let outcome = server.send(sender, &row.request);
            if let Some(difference) = difference(&row, &outcome) {
                writeln!(wrong, "{title}: {}\n    {difference}", row.name).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(n_refused >= REFUSALS_MIN, "{n_refused} refusals are in the tables");

    assert_eq!(api.ok("GET", "/api/v1/namespaces/team/configmaps/c", "")["data"], json!({"key": "value"}));
    let metrics = api.text("/metrics");
    assert!(metrics.contains("\napiserver_request_panics_total 0\n"), "a request has made the code panic");
    let Plane { process, .. } = plane;
    process.signal("TERM");
    let ended = process.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let log = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap();
    for (name, log) in [("access.log", log("access.log")), ("audit.log", log("audit.log")), ("stderr", ended.stderr)] {
        for (sender, token) in &tokens {
            // The signature alone is no credential, but a log that has it would likely have the rest too.
            let secret = token.rsplit('.').next().filter(|part| part.len() > 8).unwrap_or(token);
            // A row sends this token in the query, where no server reads it.
            let is_said = sender == "reader" && name != "stderr";
            assert!(is_said || !log.contains(secret), "the token of {sender} is in {name}");
        }
    }
}

/// The outcome, if it is not the one that the row requires.
fn difference(row: &Row, outcome: &Outcome) -> Option<String> {
    let is_as_wanted = match (&row.want, outcome) {
        (Want::Closed, Outcome::Closed(_)) => true,
        (Want::Granted(want), Outcome::Answer { status, body, .. }) => {
            let body = String::from_utf8_lossy(body);
            status == want && row.text.lines().all(|part| body.contains(part))
        }
        (Want::Text(want), Outcome::Answer { status, body, .. }) => {
            status == want && String::from_utf8_lossy(body).trim_end() == row.text
        }
        (Want::Refused(want, reason), Outcome::Answer { status, body, .. }) => {
            let said: Value = serde_json::from_slice(body).unwrap_or_default();
            let message = said["message"].as_str().unwrap_or_default();
            let says = match row.text.split_once("...") {
                Some((begin, end)) => message.starts_with(begin) && message.ends_with(end),
                None => message == row.text,
            };
            status == want && said["code"] == *want && said["reason"] == **reason && says
        }
        _ => false,
    };
    if is_as_wanted {
        return None;
    }
    Some(match outcome {
        Outcome::Answer { status, body, .. } => {
            let said = serde_json::from_slice::<Value>(body).unwrap_or_default();
            match (said["reason"].as_str(), said["message"].as_str()) {
                (Some(reason), Some(message)) => format!("{status} {reason}\n{message:.600}"),
                _ => format!("{status}\n{:.600}", String::from_utf8_lossy(body)),
            }
        }
        Outcome::OutOfStep(answer) => format!("out of step: {answer:.600}"),
        Outcome::Closed(why) => format!("closed: {why}"),
        Outcome::NoConnection(why) => format!("no connection: {why}"),
    })
}

fn tables() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refusals");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths
}

/// Writes the files for the server's start: the key that signs tokens, and the flags.
fn prepare(home: &Path) -> (KeyPair, Vec<String>) {
    let (_, pem) = SigningKey::generate(Algorithm::Rs256).unwrap();
    let file = |name: &str, text: &str| {
        let path = home.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let key_file = file("accounts.key", &pem);
    let users: String =
        USERS.map(|(name, group)| format!("{name}-0123456789,{name},uid-{name},\"{group}\"\n")).concat();
    let proxies = certificates::authority("proxies");
    let proxies_ca = file("proxies.crt", &proxies.1);
    for name in ["front-proxy", "other-proxy"] {
        let (chain, key) = certificates::certificate(&proxies.0, &[(DnType::CommonName, name)], |_| {});
        file(&format!("{name}.crt"), &chain);
        file(&format!("{name}.key"), &key);
    }
    let flags = vec![
        format!("--token-auth-file={}", file("users.csv", &users)),
        format!("--service-account-signing-key-file={key_file}"),
        format!("--service-account-key-file={key_file}"),
        format!("--access-log={}", home.join("access.log").display()),
        format!("--audit-log-path={}", home.join("audit.log").display()),
        format!("--audit-policy-file={}", file("policy.yaml", POLICY)),
        format!("--requestheader-client-ca-file={proxies_ca}"),
        "--requestheader-allowed-names=front-proxy".to_owned(),
        "--enable-bootstrap-token-auth".to_owned(),
    ];
    (KeyPair::from_pem(&pem).unwrap(), flags)
}

// === Prepared objects ===

/// The API as the administrator.
struct Api<'a> {
    server: &'a Server,
    admin: &'a Credential,
}

impl Api<'_> {
    fn send(&self, who: &Credential, method: &str, path: &str, body: &str) -> (u16, Vec<u8>) {
        let request = Request::Http1 {
            method: method.into(),
            path: path.into(),
            version: "HTTP/1.1".to_owned(),
            headers: Vec::new(),
            body: body.into(),
        };
        match self.server.send(who, &request) {
            Outcome::Answer { status, body, .. } => (status, body),
            other => panic!("{method} {path}: {other:?}"),
        }
    }

    fn text(&self, path: &str) -> String {
        String::from_utf8(self.send(self.admin, "GET", path, "").1).unwrap()
    }

    #[track_caller]
    fn ok(&self, method: &str, path: &str, body: impl ToString) -> Value {
        let (status, answer) = self.send(self.admin, method, path, &body.to_string());
        assert!((200..300).contains(&status), "{method} {path}: {status} {}", String::from_utf8_lossy(&answer));
        serde_json::from_slice(&answer).unwrap()
    }

    /// A token for an account of the namespace `team`.
    fn token(&self, account: &str, spec: Value) -> Credential {
        let path = format!("/api/v1/namespaces/team/serviceaccounts/{account}/token");
        let answer = self.ok("POST", &path, json!({ "spec": spec }));
        Credential::Token(answer["status"]["token"].as_str().unwrap().to_owned())
    }
}

fn set_up(api: &Api<'_>) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    for name in ["team", "other"] {
        api.ok("POST", "/api/v1/namespaces", json!({"metadata": {"name": name}}));
    }
    for name in ["robot", "spare", "gone", "recreated"] {
        api.ok("POST", "/api/v1/namespaces/team/serviceaccounts", json!({"metadata": {"name": name}}));
    }
    api.ok("POST", "/api/v1/namespaces/team/configmaps", json!({"metadata": {"name": "c"}, "data": {"key": "value"}}));
    let elsewhere = json!({"metadata": {"name": "c"}, "data": {"key": "elsewhere"}});
    api.ok("POST", "/api/v1/namespaces/other/configmaps", elsewhere);
    api.ok("POST", "/api/v1/namespaces/team/secrets", json!({"metadata": {"name": "s"}, "data": {"key": "aGlkZGVu"}}));
    for (user, namespace, rules) in ROLES {
        let subject = match user {
            "robot" => json!({"kind": "ServiceAccount", "namespace": "team", "name": user}),
            _ => json!({"kind": "User", "name": user}),
        };
        let (at, kind) = match namespace {
            Some(namespace) => (format!("{rbac}/namespaces/{namespace}/role"), "Role"),
            None => (format!("{rbac}/clusterrole"), "ClusterRole"),
        };
        let rules: Value = serde_json::from_str(rules).unwrap();
        api.ok("POST", &format!("{at}s"), json!({"metadata": {"name": user}, "rules": rules}));
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": user});
        let binding = json!({"metadata": {"name": user}, "roleRef": role, "subjects": [subject]});
        api.ok("POST", &format!("{at}bindings"), binding);
    }
    for node in ["n1", "n2"] {
        api.ok("POST", "/api/v1/nodes", json!({"metadata": {"name": node}}));
        let secret = format!("of-{node}");
        api.ok("POST", "/api/v1/namespaces/team/secrets", json!({"metadata": {"name": secret}}));
        let containers = json!([{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": secret}}]}]);
        let spec = json!({"nodeName": node, "serviceAccountName": "robot", "containers": containers});
        api.ok(
            "POST",
            "/api/v1/namespaces/team/pods",
            json!({"metadata": {"name": format!("on-{node}")}, "spec": spec}),
        );
    }
    for (id, kind, changes) in [
        ("joiner", "bootstrap.kubernetes.io/token", json!({})),
        ("past00", "bootstrap.kubernetes.io/token", json!({"expiration": "2020-01-01T00:00:00Z"})),
        ("when00", "bootstrap.kubernetes.io/token", json!({"expiration": "tomorrow"})),
        ("signer", "bootstrap.kubernetes.io/token", json!({"usage-bootstrap-authentication": "false"})),
        ("other0", "bootstrap.kubernetes.io/token", json!({"token-id": "joiner"})),
        ("master", "bootstrap.kubernetes.io/token", json!({"auth-extra-groups": "system:masters"})),
        ("opaque", "Opaque", json!({})),
    ] {
        let mut data =
            json!({"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"});
        data.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let secret = json!({"metadata": {"name": format!("bootstrap-token-{id}")}, "type": kind, "stringData": data});
        api.ok("POST", "/api/v1/namespaces/kube-system/secrets", secret);
    }
    for (user, path) in [("cluster-writer", "/api/v1/namespaces/team/configmaps/c"), ("prober", "/probe/x")] {
        let user_token = Credential::Token(format!("{user}-0123456789"));
        eventually("the roles are in force", || (api.send(&user_token, "GET", path, "").0 != 403).then_some(()));
    }
}

/// The tokens of users and of accounts, and forged ones.
fn tokens(api: &Api<'_>, key: &KeyPair) -> BTreeMap<String, Credential> {
    let mut tokens: BTreeMap<String, Credential> =
        USERS.iter().map(|(name, _)| ((*name).to_owned(), Credential::Token(format!("{name}-0123456789")))).collect();
    let pods = "/api/v1/namespaces/team/pods";
    let pod = |name: &str, account: &str| {
        let containers = json!([{"name": "c", "image": "i"}]);
        json!({"metadata": {"name": name}, "spec": {"serviceAccountName": account, "containers": containers}})
    };
    let secrets = "/api/v1/namespaces/team/secrets";
    for name in ["kept", "deleted", "replaced"] {
        api.ok("POST", pods, pod(name, "robot"));
        api.ok("POST", secrets, json!({"metadata": {"name": name}}));
        for kind in ["Pod", "Secret"] {
            let spec = json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}});
            tokens.insert(format!("of-{name}-{}", kind.to_lowercase()), api.token("robot", spec));
        }
    }
    for (name, account) in [("robot", "robot"), ("of-deleted-account", "gone"), ("of-replaced-account", "recreated")] {
        tokens.insert(name.to_owned(), api.token(account, json!({})));
    }
    tokens.insert("for-the-vault".to_owned(), api.token("robot", json!({"audiences": ["vault"]})));
    for name in ["deleted", "replaced"] {
        api.ok("DELETE", &format!("{pods}/{name}?gracePeriodSeconds=0"), "");
        api.ok("DELETE", &format!("{secrets}/{name}"), "");
    }
    api.ok("POST", pods, pod("replaced", "robot"));
    api.ok("POST", secrets, json!({"metadata": {"name": "replaced"}}));
    let accounts = "/api/v1/namespaces/team/serviceaccounts";
    for name in ["gone", "recreated"] {
        api.ok("DELETE", &format!("{accounts}/{name}"), "");
    }
    api.ok("POST", accounts, json!({"metadata": {"name": "recreated"}}));
    let Credential::Token(good) = &tokens["robot"] else { unreachable!("it was made above") };
    let forged = Forger { key, good }.all();
    tokens.extend(forged.into_iter().map(|(name, token)| (name.to_owned(), Credential::Token(token))));
    tokens
}
