//! Audit policies: a document with the policy, one with requests, each a line of a method and a path. The policy rules the same of a
//! request however its file is written.

use crate::input;
use http::Method;
use steersman_machinery::Value;
use steersman_server::audit::Policy;
use steersman_server::fuzzing::{audit_ruling, decode_yaml};
use steersman_server::query::Query;
use steersman_server::request_info::RequestInfo;
use steersman_server::user::User;

const REQUESTS: &str = "GET /api/v1/namespaces/a/pods/a/log\nPOST /apis/apps/v1/deployments?dryRun=All\nGET /healthz/ping";

pub fn run(data: &[u8]) {
    let parts = input::documents(data);
    let Some(text) = parts.first().and_then(|text| std::str::from_utf8(text).ok()) else { return };
    let Ok(policy) = Policy::parse(text) else { return };
    // A text such as `on` or `010` without quotes is another value in JSON.
    let json = decode_yaml(text.as_bytes()).ok().filter(|(tree, n_repeated)| has_only_texts(tree) && *n_repeated == 0);
    let as_json = json.and_then(|(tree, _)| Policy::parse(&tree.to_string()).ok());
    let requests = parts.get(1).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or(REQUESTS);
    let user = User::authenticated("a", ["b".to_owned()]);
    for line in requests.lines() {
        let (method, target) = line.split_once(' ').unwrap_or(("GET", line));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let Ok(method) = Method::from_bytes(method.as_bytes()) else { continue };
        let info = RequestInfo::new(&method, path, &Query::parse(query));
        let attributes = info.attributes();
        for user in [None, Some(&user)] {
            let ruling = audit_ruling(&policy, user, &attributes);
            assert_eq!(audit_ruling(&policy, user, &attributes), ruling, "{line:?}: a ruling can be repeated");
            if let Some(as_json) = &as_json {
                assert_eq!(audit_ruling(as_json, user, &attributes), ruling, "{line:?}: the same policy in JSON\n{text}");
            }
        }
    }
}

fn has_only_texts(value: &Value) -> bool {
    match value {
        Value::String(_) => true,
        Value::Bool(_) | Value::Null | Value::Number(_) => false,
        Value::Array(items) => items.iter().all(has_only_texts),
        Value::Object(fields) => fields.iter().all(|(key, value)| key == "omitManagedFields" || has_only_texts(value)),
    }
}
