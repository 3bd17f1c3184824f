//! Content negotiation: the media type and the form of an answer: the object itself, a table, or metadata only.
//!
//! Follows apiserver's `endpoints/handlers/negotiation`: the entries of `Accept` are tried in order, and the first that can
//! be served wins.

use crate::shared::status::Failure;
use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING};

/// The media types that error messages list.
pub const MEDIA_TYPES: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const STREAM_MEDIA_TYPES: [&str; 2] =
    ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

/// The layout of JSON.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Layout {
    /// In one line.
    Compact,
    /// With a line for each value, for people.
    Indented,
}

/// The serialisation of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Encoding {
    Json,
    Protobuf,
    Yaml,
}

/// The form of the objects in an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// The objects themselves.
    Object,
    /// Only kind, apiVersion and metadata.
    PartialMetadata,
    /// The objects as the rows of a table.
    Table,
}

/// The version of `meta.k8s.io` in which a table, or partial metadata, is sent. The two differ only in their names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetaVersion {
    V1,
    /// Requested by older clients.
    V1beta1,
}

/// The kind of answer, on which the possible forms depend.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// A list.
    List,
    /// One object, or a Status.
    One,
    /// A document that has no other form, such as discovery.
    Plain,
    /// One object that has no table, such as a review.
    Review,
    /// A stream of events.
    Stream,
}

/// The negotiated form of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Negotiated {
    pub encoding: Encoding,
    pub form: Form,
    /// Without effect if the form is the object itself.
    pub meta_version: MetaVersion,
}

/// The media type and the parameters of one entry of an `Accept` header.
pub(crate) struct Entry<'a> {
    pub(crate) media_type: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Entry<'_> {
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(one, _)| *one == name).map(|(_, value)| *value)
    }
}

/// The entries of the `Accept` header in the order in which they are tried; empty without the header.
pub(crate) fn entries(headers: &HeaderMap) -> Vec<Entry<'_>> {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let entries = accept.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let mut entries: Vec<(f32, Entry<'_>)> = entries.map(entry).collect();
    entries.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    entries.into_iter().filter(|(quality, _)| *quality > 0.0).map(|(_, entry)| entry).collect()
}

fn entry(text: &str) -> (f32, Entry<'_>) {
    let mut parts = text.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or("");
    let parameters: Vec<(&str, &str)> = parts
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
        .collect();
    let quality =
        parameters.iter().find(|(name, _)| *name == "q").and_then(|(_, value)| value.parse().ok()).unwrap_or(1.0);
    (quality, Entry { media_type, parameters })
}

/// Decides the form of an answer that can have all of them, such as a built-in kind or a Status.
///
/// # Errors
/// 406, with one of upstream's two messages.
pub fn negotiate(headers: &HeaderMap, shape: Shape) -> Result<Negotiated, Failure> {
    negotiate_for(headers, shape, || true)
}

/// Decides the form of an answer. `has_protobuf` says whether the objects themselves have a protobuf form, which custom
/// resources lack; partial metadata always have one, and tables never.
///
/// # Errors
/// 406, with one of upstream's two messages.
pub fn negotiate_for(
    headers: &HeaderMap,
    shape: Shape,
    has_protobuf: impl Fn() -> bool,
) -> Result<Negotiated, Failure> {
    let entries = entries(headers);
    if entries.is_empty() {
        return Ok(Negotiated::new(Encoding::Json, Form::Object));
    }
    let mut is_known_type = false;
    for entry in &entries {
        let Some(encoding) = encoding(entry.media_type) else { continue };
        is_known_type = true;
        if shape == Shape::Stream && encoding == Encoding::Yaml {
            continue;
        }
        let Some((form, meta_version)) = form(entry, shape) else { continue };
        let is_served = match (encoding, form) {
            (Encoding::Json | Encoding::Yaml, _) | (Encoding::Protobuf, Form::PartialMetadata) => true,
            (Encoding::Protobuf, Form::Object) => has_protobuf(),
            (Encoding::Protobuf, Form::Table) => false,
        };
        if is_served {
            return Ok(Negotiated { encoding, form, meta_version });
        }
    }
    match shape {
        Shape::Stream => Err(Failure::not_acceptable(&STREAM_MEDIA_TYPES)),
        _ if is_known_type => Err(Failure::not_acceptable(&MEDIA_TYPES)),
        _ => Err(Failure::not_acceptable_type(&MEDIA_TYPES)),
    }
}

/// The serialisation of an error, which is never refused because of `Accept`.
pub fn error_encoding(headers: &HeaderMap) -> Encoding {
    entries(headers).iter().find_map(|entry| encoding(entry.media_type)).unwrap_or(Encoding::Json)
}

/// Whether the client accepts an answer compressed with gzip.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("");
    accepted.split(',').map(|one| entry(one.trim())).any(|(quality, entry)| entry.media_type == "gzip" && quality > 0.0)
}

fn encoding(media_type: &str) -> Option<Encoding> {
    match media_type {
        "application/json" | "*/*" => Some(Encoding::Json),
        "application/vnd.kubernetes.protobuf" => Some(Encoding::Protobuf),
        "application/yaml" => Some(Encoding::Yaml),
        _ => None,
    }
}

fn form(entry: &Entry<'_>, shape: Shape) -> Option<(Form, MetaVersion)> {
    let (kind, version) = match (entry.parameter("as"), entry.parameter("g"), entry.parameter("v")) {
        (None, None, None) => return Some((Form::Object, MetaVersion::V1)),
        (Some(kind), Some("meta.k8s.io"), Some("v1")) => (kind, MetaVersion::V1),
        (Some(kind), Some("meta.k8s.io"), Some("v1beta1")) => (kind, MetaVersion::V1beta1),
        _ => return None,
    };
    let form = match (kind, shape) {
        ("Table", Shape::List | Shape::One | Shape::Stream) => Form::Table,
        ("PartialObjectMetadata", Shape::One | Shape::Review | Shape::Stream)
        | ("PartialObjectMetadataList", Shape::List) => Form::PartialMetadata,
        _ => return None,
    };
    Some((form, version))
}

impl Negotiated {
    /// A form in the current version of `meta.k8s.io`.
    pub const fn new(encoding: Encoding, form: Form) -> Negotiated {
        Negotiated { encoding, form, meta_version: MetaVersion::V1 }
    }
}

impl MetaVersion {
    /// The name of the version.
    pub fn name(self) -> &'static str {
        match self {
            MetaVersion::V1 => "v1",
            MetaVersion::V1beta1 => "v1beta1",
        }
    }

    /// The version with its group.
    pub fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

impl Encoding {
    /// The `Content-Type` of an answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
            Encoding::Yaml => "application/yaml",
        }
    }

    /// The `Content-Type` of a watch.
    pub fn stream_content_type(self) -> &'static str {
        match self {
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Encoding::Json | Encoding::Yaml => self.content_type(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &str, shape: Shape, want: Result<(Encoding, Form), &str>) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        match (negotiate(&headers, shape), want) {
            (Ok(got), Ok(want)) => assert_eq!((got.encoding, got.form), want),
            (Err(got), Err(want)) => assert!(got.status.message.starts_with(want), "{}", got.status.message),
            (got, want) => panic!("{got:?}, want {want:?}"),
        }
    }

    #[test]
    fn the_first_entry_that_can_be_served_wins() {
        check("*/*", Shape::One, Ok((Encoding::Json, Form::Object)));
        check("text/html, image/png, application/json", Shape::One, Ok((Encoding::Json, Form::Object)));
        check(
            "application/json;as=Chair;v=v1;g=meta.k8s.io,application/json",
            Shape::List,
            Ok((Encoding::Json, Form::Object)),
        );
        check("application/json;as=Table;v=v1;g=meta.k8s.io", Shape::List, Ok((Encoding::Json, Form::Table)));
        check(
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            Shape::List,
            Ok((Encoding::Json, Form::PartialMetadata)),
        );
        check(
            "application/vnd.kubernetes.protobuf,application/json",
            Shape::List,
            Ok((Encoding::Protobuf, Form::Object)),
        );
    }

    #[test]
    fn tables_and_metadata_have_a_version_of_their_own() {
        for version in [MetaVersion::V1, MetaVersion::V1beta1] {
            for (kind, shape) in [
                ("Table", Shape::List),
                ("Table", Shape::Stream),
                ("PartialObjectMetadata", Shape::Review),
                ("PartialObjectMetadataList", Shape::List),
            ] {
                let accept = format!("application/json;as={kind};v={};g=meta.k8s.io", version.name());
                let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
                assert_eq!(negotiate(&headers, shape).map(|one| one.meta_version).ok(), Some(version), "{accept}");
            }
        }
    }

    #[test]
    fn protobuf_is_passed_over_where_there_is_none() {
        let mut headers = HeaderMap::new();
        let negotiated = |headers: &HeaderMap, shape| {
            negotiate_for(headers, shape, || false)
                .map(|negotiated| (negotiated.encoding, negotiated.form))
                .map_err(|failure| failure.status.message)
        };
        headers.insert(ACCEPT, "application/vnd.kubernetes.protobuf,application/json".parse().unwrap());
        assert_eq!(negotiated(&headers, Shape::One), Ok((Encoding::Json, Form::Object)));
        headers.insert(ACCEPT, "application/vnd.kubernetes.protobuf".parse().unwrap());
        let refusal = negotiated(&headers, Shape::List).unwrap_err();
        assert!(refusal.starts_with("only the following media types are accepted"), "{refusal}");
        for (shape, kind) in [(Shape::One, "PartialObjectMetadata"), (Shape::List, "PartialObjectMetadataList")] {
            let accept = format!("application/vnd.kubernetes.protobuf;as={kind};g=meta.k8s.io;v=v1");
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(negotiated(&headers, shape), Ok((Encoding::Protobuf, Form::PartialMetadata)));
        }
        // Cells may be anything, so no table has a protobuf form.
        let table = "as=Table;g=meta.k8s.io;v=v1";
        let accept = format!("application/vnd.kubernetes.protobuf;{table},application/json;{table}");
        check(&accept, Shape::List, Ok((Encoding::Json, Form::Table)));
    }

    #[test]
    fn what_nobody_serves_is_not_acceptable() {
        check("text/html", Shape::One, Err("406: Not Acceptable"));
        check("application/*", Shape::One, Err("406: Not Acceptable"));
        check("application/json;as=Chair;v=v1;g=meta.k8s.io", Shape::List, Err("only the following media types"));
        check("application/json;as=Table;v=v2;g=meta.k8s.io", Shape::List, Err("only the following media types"));
        check(
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Shape::List,
            Err("only the following media types"),
        );
        for shape in [Shape::Plain, Shape::Review] {
            check("application/json;as=Table;v=v1;g=meta.k8s.io", shape, Err("only the following media types"));
        }
        check(
            "application/yaml, application/json;q=0",
            Shape::Stream,
            Err("only the following media types are accepted: application/json;stream=watch"),
        );
    }

    #[test]
    fn gzip_is_a_matter_of_being_asked() {
        for (header, want) in [
            ("gzip", true),
            ("deflate, gzip;q=0.5, br", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0, identity", false),
            ("br", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, header.parse().expect("a header's value"))]);
            assert_eq!(takes_gzip(&headers), want, "{header}");
        }
    }
}
