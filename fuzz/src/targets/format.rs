//! Formats of schemas: the first line is the format, the rest the text.

use steersman_schema::format;

const FORMATS: &[&str] = &[
    "bsonobjectid", "byte", "cidr", "creditcard", "date", "date-time", "datetime", "duration", "email", "hexcolor", "hostname",
    "ipv4", "ipv6", "isbn", "isbn10", "isbn13", "mac", "password", "rgbcolor", "ssn", "uri", "uuid", "uuid3", "uuid4", "uuid5",
    "k8s-short-name", "k8s-long-name",
];

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.split_once('\n') {
        Some((name, text)) => {
            let _ = format::is_match(name, text);
        }
        None => FORMATS.iter().for_each(|name| {
            let _ = format::is_match(name, text);
        }),
    }
}
