//! Tests of paths: parsing, finding, setting, and errors.

use crate::json_path::JsonPath;
use proptest::prelude::*;
use serde_json::json;
use steersman_machinery::Value;

fn object() -> Value {
    json!({
        "spec": {"a": [{"b": 1}, {"b": 2}], "x.y": {"q'": true}, "n": null},
        "status": {"conditions": [
            {"type": "Synced", "status": "False", "n": 1},
            {"type": "Ready", "status": "True", "n": 2, "reason": "a)b"},
        ]},
    })
}

#[track_caller]
fn check(path: &str, want: Option<Value>) {
    assert_eq!(JsonPath::parse(path).unwrap().get(&object()), want.as_ref(), "{path}");
}

#[test]
fn paths_reach_what_they_name() {
    check(".spec.a[0].b", Some(json!(1)));
    check(".spec.a[-1].b", Some(json!(2)));
    check(".spec.a[2].b", None);
    check(".spec.a[-3].b", None);
    check(r".spec.x\.y", Some(json!({"q'": true})));
    check(".spec['x.y']", Some(json!({"q'": true})));
    check(r#".spec.["x.y"]['q\'']"#, Some(json!(true)));
    check(".spec.n", Some(json!(null)));
    check(".spec.n.m", None);
    check(".", Some(object()));
}

#[test]
fn columns_may_search_and_show_the_first_found() {
    check(r#".status.conditions[?(@.type=="Ready")].status"#, Some(json!("True")));
    check(".status.conditions[?(@.type == 'Synced')].status", Some(json!("False")));
    check(".status.conditions[?(@.type!='Ready')].type", Some(json!("Synced")));
    check(".status.conditions[?(@.n>1)].type", Some(json!("Ready")));
    check(".status.conditions[?(@.n<=1.5)].type", Some(json!("Synced")));
    check(".status.conditions[?(@.reason)].type", Some(json!("Ready")));
    check(".status.conditions[?(@['reason']==\"a)b\")].type", Some(json!("Ready")));
    check(".status.conditions[?(@.type=='Absent')].status", None);
    check(".status.conditions[?(@.n=='1')].status", None);
    check(".status.conditions[*].type", Some(json!("Synced")));
    check(".status.*[1].type", Some(json!("Ready")));
    check(".status.conditions[1:].type", Some(json!("Ready")));
    check(".status.conditions[-1:].type", Some(json!("Ready")));
    check(".status.conditions[0:1].type", Some(json!("Synced")));
    check(".spec[?(@.b==1)]", None);
    check("..reason", Some(json!("a)b")));
}

#[test]
fn of_several_the_first_found_is_shown() {
    check(".status.conditions[1,0].n", Some(json!(2)));
    check(".status.conditions[ 5, 0 ].n", Some(json!(1)));
    check(".spec['absent',\"n\"]", Some(json!(null)));
    check(".status.conditions[::2].n", Some(json!(1)));
    check("..b", Some(json!(1)));
    check("..conditions..n", Some(json!(1)));
    check("....b", Some(json!(1)));
}

#[test]
fn searches_upon_searches_end() {
    let get = |path: &str, value: &Value| JsonPath::parse(path).unwrap().get(value).cloned();
    let small = json!({"a": [1, 2]});
    assert_eq!(get(&format!("{}b", ".".repeat(60)), &small), None);
    assert_eq!(get(&format!("{}a[0]", ".".repeat(60)), &small), Some(json!(1)));
    assert!(JsonPath::parse(&".".repeat(60)).is_err());
    // Without bounds, every `[*,*,*]` would triple the visits, and every `..*` visit all values below.
    let deep = (0..60).fold(json!(0), |inner, _| json!([inner]));
    assert_eq!(get(&format!(".{}.b", "[*,*,*]".repeat(60)), &deep), None);
    assert_eq!(get(&format!(".{}.b", "..*".repeat(30)), &deep), None);
    assert_eq!(get(&format!(".{}", "[?(@..x[?(@..y[?(@..z)])])]".repeat(2)), &deep), None);
}

#[test]
fn a_search_goes_through_large_objects() {
    let large = json!({"items": (0..5000).map(|n| json!({"n": n, "more": {"m": [n]}})).collect::<Vec<_>>()});
    let get = |path: &str| JsonPath::parse(path).unwrap().get(&large).cloned();
    assert_eq!(get(".items[?(@.n==4999)].more.m[0]"), Some(json!(4999)));
    assert_eq!(get("..[?(@.n==4999)].n"), Some(json!(4999)));
    assert_eq!(get("..absent"), None);
}

#[test]
fn setting_makes_objects_on_the_way() {
    let set =
        |path: &str, mut object: Value| JsonPath::parse(path).unwrap().set(&mut object, json!(3)).then_some(object);
    assert_eq!(set(".spec.replicas", json!({})), Some(json!({"spec": {"replicas": 3}})));
    assert_eq!(
        set(".spec.replicas", json!({"spec": {"replicas": 1, "x": 2}})),
        Some(json!({"spec": {"replicas": 3, "x": 2}}))
    );
    assert_eq!(set(".a[0]", json!({"a": [1]})), Some(json!({"a": [3]})));
    assert_eq!(set(".a[1]", json!({"a": [1]})), None);
    assert_eq!(set(".a.b", json!({"a": "text"})), None);
    assert_eq!(set(".a[*]", json!({"a": [1]})), None);
    assert!(JsonPath::parse(".a[0].b").unwrap().is_simple() && !JsonPath::parse(".a[*]").unwrap().is_simple());
}

#[test]
fn what_is_no_path_is_told() {
    for (text, want) in [
        ("", "must not be empty"),
        ("spec.a", "must be a simple json path starting with ."),
        (".a.b c", "must be a json path in the dot notation: \".a.b c\" cannot be read from byte 2"),
        (&".a".repeat(600), "must have at most 1024 bytes, not 1200: name the place from its nearest field on"),
        (&".a".repeat(65), "must have at most 64 steps"),
    ] {
        assert_eq!(JsonPath::parse(text).unwrap_err().to_string(), want);
    }
    for text in [
        ".a[",
        ".a[x]",
        ".a['x]",
        ".a.",
        ".a]b",
        "{.a}",
        r".a\",
        ".a[?(]",
        ".a[?(@.b=1)]",
        ".a[?(b==1)]",
        "..",
        ".a[1:2:0]",
    ] {
        assert!(JsonPath::parse(text).is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\.?[a\\.\\[\\]'\"\\\\0-9*\\-:é ?(@=)]{0,16}") {
        if let Ok(path) = JsonPath::parse(&text) {
            let mut object = json!({"a": {"b": [1, {"c": 2}]}});
            path.get(&object);
            if path.set(&mut object, json!("new")) {
                prop_assert_eq!(path.get(&object), Some(&json!("new")));
            }
        }
    }
}
