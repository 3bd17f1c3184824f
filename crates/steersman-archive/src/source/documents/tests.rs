//! Texts as kubectl and other tools write them.

use crate::error::DocumentError;
use crate::limits::Limits;
use crate::source::documents::{Documents, Hint};
use proptest::prelude::*;

fn read(text: &str) -> Result<Vec<String>, DocumentError> {
    let mut documents = Documents::new(&Limits::default());
    documents.read(text.as_bytes(), &Hint::default())?;
    let named = documents
        .objects
        .iter()
        .map(|raw| format!("{} {} {}/{} {}", raw.api_version, raw.kind, raw.namespace, raw.name, raw.revision));
    Ok(named.collect())
}

#[track_caller]
fn check(text: &str, want: &[&str]) {
    assert_eq!(read(text).unwrap(), want);
}

fn pod(name: &str) -> String {
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"d","resourceVersion":"7"}}}}"#
    )
}

#[test]
fn one_object_a_list_an_array_and_several_documents_are_objects() {
    check(&pod("a"), &["v1 Pod d/a 7"]);
    check(&format!("{}\n{}", pod("a"), pod("b")), &["v1 Pod d/a 7", "v1 Pod d/b 7"]);
    check(&format!("[{},{}]", pod("a"), pod("b")), &["v1 Pod d/a 7", "v1 Pod d/b 7"]);
    check(&format!(r#"{{"apiVersion":"v1","items":[{}],"kind":"List"}}"#, pod("a")), &["v1 Pod d/a 7"]);
    check(
        r#"{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}}]}"#,
        &["apps/v1 Deployment /a 0"],
    );
    check(r#"{"items":[{"metadata":{"name":"a"}}],"kind":"NodeList","apiVersion":"v1"}"#, &["v1 Node /a 0"]);
}

#[test]
fn lines_with_three_hyphens_divide_yaml() {
    check(
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n---\n# nothing\n--- \napiVersion: v1\nkind: Node\nmetadata: {name: b}\n",
        &["v1 Node /a 0", "v1 Node /b 0"],
    );
    check(
        "\u{feff}apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a, namespace: b}\n  data:\n    x: |\n      ---\n      y\nkind: List\n",
        &["v1 ConfigMap b/a 0"],
    );
}

#[test]
fn an_object_with_items_is_no_list() {
    check(
        r#"{"kind":"Basket","apiVersion":"a.io/v1","metadata":{"name":"a"},"items":[1,{"x":2}]}"#,
        &["a.io/v1 Basket /a 0"],
    );
}

#[test]
fn what_is_no_object_is_passed_over() {
    check(r#"{"major":"1","minor":"30"}"#, &[]);
    check("just a text\n", &[]);
    check("[1, 2, \"x\"]", &[]);
    check(r#"{"kind":"List","apiVersion":"v1","items":null}"#, &[]);
}

#[test]
fn damage_and_too_much_are_named() {
    let cut = read(r#"{"kind":"Pod","metadata":{"#).unwrap_err();
    assert!(cut.to_string().starts_with("its JSON is damaged or cut off, EOF while parsing"), "{cut}");
    assert!(matches!(read("a: [b\nc: d\n").unwrap_err(), DocumentError::Yaml(_)));
    let limits = Limits { objects: 1, ..Limits::default() };
    let two = format!("[{},{}]", pod("a"), pod("b"));
    let error = Documents::new(&limits).read(two.as_bytes(), &Hint::default()).unwrap_err();
    assert_eq!(error, DocumentError::Limit { limit: 1, of: "objects" });
}

#[test]
fn aliases_that_repeat_each_other_are_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..9 {
        let before = format!("*a{}, ", n - 1).repeat(10);
        text += &format!("a{n}: &a{n} [{}]\n", before.trim_end_matches(", "));
    }
    assert!(matches!(read(&text).unwrap_err(), DocumentError::Yaml(_)));
}

#[test]
fn a_large_text_that_is_repeated_often_is_refused() {
    let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a, ".repeat(100).trim_end_matches(", "));
    assert!(matches!(read(&text).unwrap_err(), DocumentError::Yaml(_)));
    check("kind: A\napiVersion: b.c/v1\nmetadata: {name: &n x}\ny: [*n, *n]\n", &["b.c/v1 A /x 0"]);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[ -~\n]{0,200}") {
        let _read = read(&text);
    }
}
