//! Tests of the reviews that are sent, and of invalid answers.

use super::*;
use serde_json::json;

#[test]
fn a_call_takes_as_many_objects_as_fit_and_at_least_one() {
    let objects: Vec<Value> = (0..10).map(|n| json!({"text": "x".repeat(88), "n": n})).collect();
    let objects: Vec<&Value> = objects.iter().collect();
    let taken = |objects_max, bytes_max| request(&objects, "g/v", Some(ReviewVersion::V1), objects_max, bytes_max).2;
    assert_eq!(taken(4, 1_000_000), 4);
    assert_eq!(taken(100, 1_000_000), 10);
    assert_eq!(taken(100, 350), 3);
    assert_eq!(taken(100, 1), 1);
    let (uid, body, _) = request(&objects, "g/v", Some(ReviewVersion::V1Beta1), 2, 1000);
    let review: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(review["apiVersion"], "apiextensions.k8s.io/v1beta1");
    assert_eq!(review["request"], json!({"uid": uid, "desiredAPIVersion": "g/v", "objects": [objects[0], objects[1]]}));
}

#[test]
fn the_older_review_needs_no_uid_in_its_answer() {
    let sent = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a"}});
    let converted = json!({"apiVersion": "g/v2", "kind": "K", "metadata": {"name": "a"}});
    let reply = json!({"response": {"result": {"status": "Success"}, "convertedObjects": [converted]}}).to_string();
    let judged = |review| answer(reply.as_bytes(), review, "u", &[&sent], "g/v2");
    assert_eq!(judged(ReviewVersion::V1Beta1).unwrap(), std::slice::from_ref(&converted));
    assert!(judged(ReviewVersion::V1).is_err());
}

#[test]
fn what_is_no_answer_is_told_apart() {
    let sent = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a"}});
    for (reply, wanted) in [
        ("<html>", "failed: the answer is no JSON"),
        ("[]", "failed: no response provided"),
        (r#"{"response":{"result":{"status":"Success"},"convertedObjects":{}}}"#, "convertedObjects is no list"),
        (r#"{"response":{"result":{"status":"Success"},"convertedObjects":[7]}}"#, "it is no object"),
    ] {
        let why = answer(reply.as_bytes(), ReviewVersion::V1Beta1, "u", &[&sent], "g/v2").unwrap_err();
        assert!(why.contains(wanted), "{why}");
    }
}
