//! The columns of a custom resource's tables.

use crate::builtin::rules::age;
use crate::catalog::Column;
use crate::crd::text;
use crate::projection::Projection;
use jiff::Timestamp;
use std::io::{self, Write};
use steersman_machinery::Value;
use steersman_machinery::time as times;
use steersman_schema::JsonPath;
use steersman_schema::json_path::{Step, Visits};

/// The most bytes that the texts of a row may have together.
const ROW_BYTES_MAX: usize = 256 << 10;
/// The text of a cell for which there is no room.
const TOO_LONG: &str = "<too long for a table>";

/// The sources of the cells after the name.
#[derive(Debug)]
pub(super) struct Columns(Vec<Cell>);

#[derive(Debug)]
struct Cell {
    /// The column's type.
    kind: Box<str>,
    /// The path of the value; a path that cannot be parsed gives an empty cell.
    path: Option<JsonPath>,
}

impl Columns {
    /// The columns of a version, or the age by default, and the headers with the name first.
    pub(super) fn new(written: &[Value]) -> (Columns, Vec<Column>) {
        let mut headers = vec![Column {
            name: "Name".into(),
            kind: "string".into(),
            format: "name".into(),
            description: "The name, unique among the objects of its kind and namespace.".into(),
            priority: 0,
        }];
        if written.is_empty() {
            let path = ".metadata.creationTimestamp";
            headers.push(Column {
                name: "Age".into(),
                kind: "date".into(),
                format: "".into(),
                description: "How long ago the object was created.".into(),
                priority: 0,
            });
            return (Columns(vec![Cell { kind: "date".into(), path: JsonPath::parse(path).ok() }]), headers);
        }
        headers.extend(written.iter().map(header));
        let cell = |column: &Value| Cell {
            kind: text(column, &["type"]).into(),
            path: JsonPath::parse(text(column, &["jsonPath"])).ok(),
        };
        (Columns(written.iter().map(cell).collect()), headers)
    }

    /// The fields that the cells depend on: for each path its leading field names.
    pub(super) fn read(&self) -> Projection {
        let mut read = Projection::of(&["metadata.name"]);
        for path in self.0.iter().filter_map(|cell| cell.path.as_ref()) {
            let fields = path.steps().iter().map_while(|step| match step {
                Step::Field(name) => Some(&**name),
                _ => None,
            });
            read.add(fields, Projection::All);
        }
        read
    }

    /// The cells of an object. A cell whose search visits too many values is empty, and one whose text has no room in its row says so.
    pub(super) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let name = object["metadata"].get("name").cloned().unwrap_or_default();
        let (mut visits, mut bytes_left) = (Visits::of(object), ROW_BYTES_MAX);
        let others = self.0.iter().map(|cell| {
            let found = cell.path.as_ref().and_then(|path| path.get_within(object, &mut visits));
            found.map_or(Value::Null, |value| show(&cell.kind, value, now, &mut bytes_left))
        });
        std::iter::once(name).chain(others).collect()
    }
}

fn header(column: &Value) -> Column {
    let description = match text(column, &["description"]) {
        "" => format!("Custom resource definition column (in JSONPath format): {}", text(column, &["jsonPath"])),
        given => given.to_owned(),
    };
    Column {
        name: text(column, &["name"]).into(),
        kind: text(column, &["type"]).into(),
        format: text(column, &["format"]).into(),
        description: description.into(),
        priority: column.get("priority").and_then(Value::as_i64).unwrap_or_default(),
    }
}

/// A value as shown in a column of this type; null if it does not match the type.
fn show(kind: &str, value: &Value, now: Timestamp, bytes_left: &mut usize) -> Value {
    match kind {
        "boolean" => value.as_bool().map_or(Value::Null, Value::from),
        "date" => value.as_str().map_or(Value::Null, |time| Value::from(how_long_ago(time, now))),
        "integer" => {
            value.as_i64().or_else(|| value.as_f64().map(|float| float as i64)).map_or(Value::Null, Value::from)
        }
        "number" => {
            if value.is_number() {
                value.clone()
            } else {
                Value::Null
            }
        }
        _ => {
            let text = match value {
                Value::String(text) => Some(text).filter(|text| text.len() <= *bytes_left).cloned(),
                Value::Null => Some("<nil>".to_owned()),
                other => json_within(other, *bytes_left),
            };
            *bytes_left -= text.as_ref().map_or(0, String::len).min(*bytes_left);
            text.map_or_else(|| Value::from(TOO_LONG), Value::from)
        }
    }
}

/// A value as JSON of so many bytes at most.
fn json_within(value: &Value, bytes_max: usize) -> Option<String> {
    let mut limited = Limited { out: Vec::new(), bytes_max };
    serde_json::to_writer(&mut limited, value).ok()?;
    String::from_utf8(limited.out).ok()
}

/// Bytes of a bounded number.
struct Limited {
    out: Vec<u8>,
    bytes_max: usize,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes_max < self.out.len() + bytes.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn how_long_ago(time: &str, now: Timestamp) -> String {
    match times::parse(time) {
        Some(time) => age::human(now.as_second() - time.as_second()),
        None => "<invalid>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cells(columns: usize, path: &str, object: &Value) -> Vec<Value> {
        let column = json!({"name": "a", "type": "string", "jsonPath": path});
        Columns::new(&vec![column; columns]).0.cells(object, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn the_texts_of_a_row_are_bounded_together() {
        let bytes = |cells: &[Value]| cells.iter().filter_map(Value::as_str).map(str::len).sum::<usize>();
        for value in [json!("x".repeat(100_000)), json!(vec!["x"; 25_000])] {
            let object = json!({"metadata": {"name": "a"}, "spec": value});
            let cells = cells(120, ".spec", &object);
            assert!(bytes(&cells) < ROW_BYTES_MAX + 120 * TOO_LONG.len(), "{}", bytes(&cells));
            assert_eq!(cells[1].as_str().map(str::len), cells[2].as_str().map(str::len));
            assert_eq!(cells[120], TOO_LONG);
        }
        let small = json!({"metadata": {"name": "a"}, "spec": {"b": [1, "c"]}});
        assert_eq!(cells(2, ".spec", &small), ["a", r#"{"b":[1,"c"]}"#, r#"{"b":[1,"c"]}"#]);
    }

    #[test]
    fn the_searches_of_a_row_are_bounded_together() {
        let mut object = json!({"metadata": {"name": "a"}, "spec": vec![json!({"a": {"b": 1}}); 2_000]});
        object["status"] = json!({"last": "found"});
        let last = |paths: &[&str]| {
            let columns = paths.iter().map(|path| json!({"name": "a", "type": "string", "jsonPath": path}));
            Columns::new(&columns.collect::<Vec<_>>()).0.cells(&object, Timestamp::UNIX_EPOCH).pop()
        };
        assert_eq!(last(&["..last"]), Some(json!("found")));
        assert_eq!(last(&[&["..missing"; 60][..], &["..last"]].concat()), Some(Value::Null), "no visits are left");
        assert_eq!(last(&[&["..missing"; 60][..], &[".status.last"]].concat()), Some(json!("found")), "it needs few");
    }
}
