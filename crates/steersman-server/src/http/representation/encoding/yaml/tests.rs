//! Tests of the printed YAML: its layout, and that it is read back unchanged.

use super::Yaml;
use crate::http::representation::encoding::Encoder as _;
use crate::http::representation::encoding::tests::{any_tree, built, streamed};
use crate::shared::request::codec::decode_yaml;
use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_machinery::Budget;

mod from_tree;

fn print(value: &Value) -> String {
    let mut out = Vec::new();
    Yaml.document(value.to_string().as_bytes(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_layout_is_that_of_go_yaml() {
    let value = json!({
        "data": {"colon": "a: b", "empty": "", "lines": "a\nb\n", "n": "1", "t": "true", "list": [{"a": 1, "b": [2]}, []], "none": {}},
        "name": "y", "time": "2026-01-01T00:00:00Z", "null": null, "tail": "a\nb", "more": "a\n\n"
    });
    expect_test::expect![[r#"
        data:
          colon: 'a: b'
          empty: ""
          lines: |
            a
            b
          list:
          - a: 1
            b:
            - 2
          - []
          "n": "1"
          none: {}
          t: "true"
        more: |+
          a

        name: "y"
        "null": null
        tail: |-
          a
          b
        time: "2026-01-01T00:00:00Z"
    "#]]
    .assert_eq(&print(&value));
}

#[test]
fn a_text_that_looks_like_the_end_of_a_document_is_quoted() {
    let value = json!({"... a": "---", "b": "...", "c": "a ..."});
    assert_eq!(print(&value), "'... a': '---'\nb: '...'\nc: a ...\n");
    assert_eq!(decode_yaml(print(&value).as_bytes(), &Budget::unlimited()).unwrap().value, value);
}

#[test]
fn long_texts_fold_at_blanks() {
    let value = json!({"message": "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"});
    expect_test::expect![[r#"
        message: 'only the following media types are accepted: application/json;stream=watch,
          application/vnd.kubernetes.protobuf;stream=watch'
    "#]]
    .assert_eq(&print(&value));
}

#[test]
fn the_first_text_of_an_item_folds_as_in_the_whole_list() {
    for n_blanks in 0..8 {
        // Words of two letters, so that a column more or less moves the fold.
        let item = json!({"a": format!("{}{}", "x".repeat(n_blanks), "aa ".repeat(40).trim_end())});
        let whole: Value = serde_json::from_str(&built(std::slice::from_ref(&item))).unwrap();
        assert_eq!(streamed(&Yaml, &[item]), from_tree::print(&whole));
    }
}

/// go-yaml and others refuse a document with a control character, be it in quotes.
#[test]
fn what_readers_refuse_is_escaped_as_go_yaml_escapes_it() {
    for (text, want) in [
        ("a\u{7f}b", r#""a\x7Fb""#),
        ("a\u{80}\u{85}\u{9f}b", r#""a\x80\N\x9Fb""#),
        ("\u{0}\u{7}\u{8}\t\u{b}\u{c}\r\u{1b}\u{1}", r#""\0\a\b\t\v\f\r\e\x01""#),
        ("a\u{feff}\u{ffff}", r#""a\uFEFF\uFFFF""#),
        ("a\u{2028}\u{2029}b", r#""a\L\Pb""#),
        ("a\n\u{1f600}\"\\", r#""a\n\U0001F600\"\\""#),
        ("a\u{a0}\u{fc}\u{fffd}", "a\u{a0}\u{fc}\u{fffd}"),
        ("2020-01-01T\"", r#""2020-01-01T\"""#),
    ] {
        let value = json!({ text: text });
        let printed = print(&value);
        assert_eq!(printed, format!("{want}: {want}\n"));
        assert_eq!(decode_yaml(printed.as_bytes(), &Budget::unlimited()).unwrap().value, value);
    }
}

#[test]
fn lines_that_end_with_a_blank_are_quoted() {
    let value = json!({"a": "x \ny", "b": "x\ny ", "c": "x\n y"});
    assert_eq!(print(&value), "a: \"x \\ny\"\nb: \"x\\ny \"\nc: |-\n  x\n   y\n");
    let long = format!("{} end \n  of\t{}", "word ".repeat(16), "more ".repeat(20));
    let lines = [
        "a: \"word word word word word word word word word word word word word word word word",
        "  \\ end \\n  of\\tmore more more more more more more more more more more more more more",
        "  more more more more more more \"",
    ];
    assert_eq!(print(&json!({ "a": long })), format!("{}\n", lines.join("\n")));
    assert_eq!(decode_yaml(print(&json!({ "a": long })).as_bytes(), &Budget::unlimited()).unwrap().value["a"], long);
}

#[test]
fn keys_are_sorted_wherever_they_stood() {
    let mut out = Vec::new();
    Yaml.document(br#"{"b":{"z":1,"\u0061":2},"a":[]}"#, &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "a: []\nb:\n  a: 2\n  z: 1\n");
}

#[test]
fn an_empty_list_stands_in_one_line() {
    assert_eq!(streamed(&Yaml, &[]), "items: []\nkind: L\nmetadata:\n  a: \"1\"\n");
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(text in "[ -~]{0,12}|[a-z:#' \n-]{0,100}|\\PC{0,8}", key in "[a-z0-9:. -]{1,6}") {
        let value = json!({ key: [text.clone(), {"k": text}] });
        prop_assert_eq!(decode_yaml(print(&value).as_bytes(), &Budget::unlimited()).unwrap().value, value);
    }

    #[test]
    fn the_layout_is_that_of_the_tree(tree in any_tree()) {
        prop_assert_eq!(print(&tree), from_tree::print(&tree));
    }

    #[test]
    fn a_list_written_item_by_item_is_the_list_written_whole(items in prop::collection::vec(any_tree(), 0..4)) {
        let whole: Value = serde_json::from_str(&built(&items)).unwrap();
        prop_assert_eq!(streamed(&Yaml, &items), from_tree::print(&whole));
    }
}
