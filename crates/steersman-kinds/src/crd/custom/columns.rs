//! The columns of a custom resource's tables.

use crate::builtin::rules::age;
use crate::catalog::Column;
use crate::crd::text;
use crate::projection::Projection;
use jiff::Timestamp;
use steersman_machinery::Value;
use steersman_machinery::time as times;
use steersman_schema::JsonPath;
use steersman_schema::json_path::Step;

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

    pub(super) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let name = object["metadata"].get("name").cloned().unwrap_or_default();
        let others = self.0.iter().map(|cell| {
            let found = cell.path.as_ref().and_then(|path| path.get(object));
            found.map_or(Value::Null, |value| show(&cell.kind, value, now))
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
fn show(kind: &str, value: &Value, now: Timestamp) -> Value {
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
        _ => Value::from(match value {
            Value::String(text) => text.clone(),
            Value::Null => "<nil>".to_owned(),
            other => other.to_string(),
        }),
    }
}

fn how_long_ago(time: &str, now: Timestamp) -> String {
    match times::parse(time) {
        Some(time) => age::human(now.as_second() - time.as_second()),
        None => "<invalid>".to_owned(),
    }
}
