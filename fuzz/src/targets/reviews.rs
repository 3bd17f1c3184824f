//! Answers of webhooks that authenticate, authorize and convert: what is not clearly granted is not, and conversion changes no
//! name. A document with the answer, one with the object that was sent for conversion.

use crate::input;
use serde_json::{Value, json};
use steersman_machinery::value::at;
use steersman_server::authz::Decision;
use steersman_server::fuzzing::{access_review, conversion_review, token_review};

const API_VERSION: &str = "example.com/v2";

pub fn run(data: &[u8]) {
    let parts = input::documents(data);
    let Some(answer) = parts.first() else { return };
    // Bytes that are no UTF-8 are skipped with the field that they are in, if nothing reads it; a tree has all fields.
    if std::str::from_utf8(answer).is_err() {
        return;
    }
    let tree: Option<Value> = serde_json::from_slice(answer).ok();
    let said = |path: &[&str]| tree.as_ref().and_then(|tree| at(tree, path)).cloned().unwrap_or_default();
    if let Some((user, audiences)) = token_review(answer, "a") {
        assert_eq!(said(&["status", "authenticated"]), json!(true), "{user:?}");
        assert!(!user.name.is_empty());
        assert_eq!(audiences, ["a"], "a token for others is none for us: {user:?}");
    }
    if let Some(decision) = access_review(answer) {
        let (allowed, denied) = (said(&["status", "allowed"]) == true, said(&["status", "denied"]) == true);
        assert_eq!(decision == Decision::Allow, allowed && !denied, "{tree:?}");
        assert_eq!(decision == Decision::Deny, denied, "{tree:?}");
    }
    let sent = parts.get(1).and_then(|json| input::tree(json));
    let sent = sent.unwrap_or_else(|| json!({"kind": "Thing", "metadata": {"name": "a", "namespace": "b", "uid": "c", "labels": {"d": "e"}}}));
    for converted in conversion_review(answer, &sent, API_VERSION).into_iter().flatten() {
        assert_eq!(converted.len(), 1);
        for object in converted {
            assert_eq!(object["apiVersion"], API_VERSION);
            for field in ["name", "namespace", "uid", "ownerReferences", "finalizers", "managedFields"] {
                assert_eq!(object["metadata"][field], sent["metadata"][field], "{field} of {object}");
            }
        }
    }
}
