//! The options of a request from its query (and for deletions from its body), checked as apimachinery checks them.

use crate::shared::request::query::Query;
use crate::shared::status::Failure;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::selector::{Fields, Labels};
use steersman_machinery::{GroupKind, Revision, Value};

/// The meaning of the resourceVersion of a list or watch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Match {
    Exact,
    NotOlderThan,
}

/// The options of lists, watches and deletions of collections.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    pub(crate) labels: Labels,
    pub(crate) fields: Fields,
    pub(crate) limit: Option<usize>,
    pub(crate) token: Option<Token>,
    /// As the client sent it; `None` if it is empty.
    pub(crate) version: Option<String>,
    pub(crate) version_match: Option<Match>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) wants_bookmarks: bool,
    /// Whether objects that wait for initializers are included.
    pub(crate) includes_uninitialized: bool,
    pub(crate) sends_initial_events: Option<bool>,
}

/// The continue token of a list.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Token {
    #[serde(rename = "v")]
    format: String,
    /// The version that all pages show; below zero for the newest state.
    #[serde(rename = "rv")]
    pub(crate) version: i64,
    /// The last key of the previous page and a zero byte.
    #[serde(rename = "start")]
    start: String,
}

/// The treatment of unknown fields.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FieldValidation {
    Ignore,
    Strict,
    Warn,
}

/// A write with options: an apply, and a patch of another type, differ in what they need.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WriteKind {
    Apply,
    Create,
    Patch,
    Update,
}

/// The options of creations, updates and patches.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) is_dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    /// Whether the client has set `field_validation`.
    pub(crate) is_field_validation_given: bool,
    pub(crate) field_manager: Option<String>,
    pub(crate) is_forced: Option<bool>,
}

/// The options of deletions.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Delete {
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) preconditions: Preconditions,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) propagation_policy: Option<String>,
    dry_run: Vec<String>,
    #[serde(rename = "ignoreStoreReadErrorWithClusterBreakingPotential")]
    ignores_read_error: Option<bool>,
}

/// The option of deletions that removes a stored object that cannot be read.
pub(crate) const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

impl Delete {
    /// The options of the second half of a deletion. The first half has stored the object at this revision.
    pub(crate) fn after(&self, revision: Revision) -> Delete {
        let mut options = self.clone();
        if let Some(version) = &mut options.preconditions.resource_version {
            *version = revision.to_string();
        }
        options
    }
}

/// The conditions that an object must meet to be deleted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

/// The longest duration of a watch.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// The most different requirements of a selector. Each object of a list and each event of a watch may be held against all of them.
const REQUIREMENTS_MAX: usize = 1024;
const TOKEN_FORMAT: &str = "meta.k8s.io/v1";
const MANAGER_BYTES_MAX: usize = 128;

/// The request whose options are read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    List,
    Watch,
}

/// Checks the number of a selector's requirements.
fn check_number(kind: &str, n_requirements: usize) -> Result<(), Failure> {
    if n_requirements <= REQUIREMENTS_MAX {
        return Ok(());
    }
    Err(Failure::bad_request(format!(
        "the {kind} selector has {n_requirements} different requirements, and the most is {REQUIREMENTS_MAX}: send fewer of them, or join those of one key as `key in (a,b)`"
    )))
}

// === impl List ===

impl List {
    /// Reads the options of a list or watch.
    ///
    /// # Errors
    /// 400 for options that cannot be read, 422 for options that exclude each other.
    pub(crate) fn parse(query: &Query, purpose: Purpose) -> Result<List, Failure> {
        let number = |name: &str| -> Result<Option<i64>, Failure> {
            let Some(text) = query.non_empty(name) else { return Ok(None) };
            text.parse().map(Some).map_err(|_| Failure::bad_request(format!("{name}: {text:?} is not a whole number")))
        };
        let labels = Labels::parse(query.first("labelSelector").unwrap_or(""))
            .map_err(|error| Failure::bad_request(error.to_string()))?;
        let fields = Fields::parse(query.first("fieldSelector").unwrap_or(""))
            .map_err(|error| Failure::bad_request(error.to_string()))?;
        check_number("label", labels.requirements().len())?;
        check_number("field", fields.requirements.len())?;
        let limit = number("limit")?.filter(|limit| *limit > 0).and_then(|limit| usize::try_from(limit).ok());
        let timeout = number("timeoutSeconds")?
            .filter(|seconds| *seconds > 0)
            .map(|seconds| Duration::from_secs(seconds.unsigned_abs()).min(TIMEOUT_MAX));
        let mut list = List {
            labels,
            fields,
            limit,
            token: None,
            version: query.non_empty("resourceVersion").map(str::to_owned),
            version_match: match query.non_empty("resourceVersionMatch") {
                Some("Exact") => Some(Match::Exact),
                Some("NotOlderThan") => Some(Match::NotOlderThan),
                _ => None,
            },
            timeout,
            wants_bookmarks: query.is_true("allowWatchBookmarks"),
            includes_uninitialized: query.is_true("includeUninitialized"),
            sends_initial_events: query.first("sendInitialEvents").map(|_| query.is_true("sendInitialEvents")),
        };
        list.check(query, purpose)?;
        // Other parameters are judged before the token is read, and the version beside it afterwards.
        list.token = query.non_empty("continue").map(Token::decode).transpose()?;
        if list.token.is_some() && list.version.as_deref().is_some_and(|version| version != "0") {
            return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
        }
        Ok(list)
    }

    fn check(&self, query: &Query, purpose: Purpose) -> Result<(), Failure> {
        let match_path = Path::new("resourceVersionMatch");
        let mut errors = Vec::new();
        let match_text = query.non_empty("resourceVersionMatch");
        if let Some(sends) = self.sends_initial_events {
            let path = Path::new("sendInitialEvents");
            if purpose == Purpose::List {
                errors.push(Error::forbidden(&path, "sendInitialEvents is forbidden for list"));
            } else if sends && self.version_match != Some(Match::NotOlderThan) {
                errors.push(Error::forbidden(
                    &match_path,
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
        } else if purpose == Purpose::Watch && match_text.is_some() {
            errors.push(Error::forbidden(
                &match_path,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if let (Purpose::List, Some(text)) = (purpose, match_text) {
            if self.version.is_none() {
                errors.push(Error::forbidden(
                    &match_path,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if query.non_empty("continue").is_some() {
                errors
                    .push(Error::forbidden(&match_path, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if self.version_match.is_none() {
                errors.push(Error::not_supported(&match_path, text, &["Exact", "NotOlderThan", ""]));
            }
            if self.version_match == Some(Match::Exact) && self.version.as_deref() == Some("0") {
                errors.push(Error::forbidden(
                    &match_path,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        refuse("ListOptions", errors)
    }

    /// The version if it is a number above zero.
    ///
    /// # Errors
    /// When it is no number.
    pub(crate) fn revision(&self) -> Result<Option<Revision>, steersman_machinery::revision::ParseError> {
        let Some(text) = &self.version else { return Ok(None) };
        Revision::parse(text).map(|revision| Some(revision).filter(|revision| *revision > Revision::ZERO))
    }

    /// Whether the client accepts any version (version `0`).
    pub(crate) fn takes_any(&self) -> bool {
        self.version.as_deref() == Some("0")
    }
}

// === impl Token ===

impl Token {
    /// A token that continues after a key, at a version.
    pub(crate) fn after(key: &str, revision: Revision) -> Token {
        let version = i64::try_from(revision.0).unwrap_or(i64::MAX);
        Token { format: TOKEN_FORMAT.to_owned(), version, start: format!("{key}\0") }
    }

    /// A token for the same position in the newest state, for a client whose version is gone.
    pub(crate) fn at_any_version(&self) -> Token {
        Token { version: -1, ..self.clone() }
    }

    /// The key after which the list continues.
    pub(crate) fn key(&self) -> &str {
        self.start.trim_end_matches('\0')
    }

    pub(crate) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    fn decode(text: &str) -> Result<Token, Failure> {
        let bad = |why: &str| Failure::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| {
            // Go counts a last letter that stands alone as the invalid one.
            let offset = match error {
                base64::DecodeError::InvalidByte(offset, _) | base64::DecodeError::InvalidLastSymbol(offset, _) => {
                    offset
                }
                base64::DecodeError::InvalidLength(length) => length.saturating_sub(1),
                base64::DecodeError::InvalidPadding => text.len(),
            };
            bad(&format!("illegal base64 data at input byte {offset}"))
        })?;
        let token: Token = serde_json::from_slice(&bytes).map_err(|error| bad(&error.to_string()))?;
        if token.format != TOKEN_FORMAT {
            return Err(bad(&format!("server does not recognize this encoded version {:?}", token.format)));
        }
        if token.version == 0 {
            return Err(bad(&format!("incorrect encoded start resourceVersion (version {TOKEN_FORMAT})")));
        }
        if token.key().is_empty() {
            return Err(bad(&format!("encoded start key empty (version {TOKEN_FORMAT})")));
        }
        // A list stays within its namespace whatever the key is, so this check is not for safety: no token of this
        // server has such a key.
        if token.key().split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(bad("its start is a path and no key"));
        }
        Ok(token)
    }
}

// === impl WriteKind ===

impl WriteKind {
    /// The kind of the options.
    fn as_str(self) -> &'static str {
        match self {
            WriteKind::Apply | WriteKind::Patch => "PatchOptions",
            WriteKind::Create => "CreateOptions",
            WriteKind::Update => "UpdateOptions",
        }
    }
}

// === impl Write ===

impl Write {
    /// Reads the options.
    ///
    /// # Errors
    /// 422 with all validation errors.
    pub(crate) fn parse(query: &Query, kind: WriteKind) -> Result<Write, Failure> {
        let mut errors = Vec::new();
        let is_dry_run = dry_run(&query.all("dryRun").map(str::to_owned).collect::<Vec<_>>(), &mut errors);
        let field_manager = query.non_empty("fieldManager").map(str::to_owned);
        let path = Path::new("fieldManager");
        match &field_manager {
            Some(manager) if manager.len() > MANAGER_BYTES_MAX => {
                errors.push(Error::too_long(&path, MANAGER_BYTES_MAX));
            }
            Some(manager) => {
                if let Some(odd) = manager.chars().find(|char| char.is_control()) {
                    errors.push(Error::invalid(
                        &path,
                        manager.as_str(),
                        format!("should only contain printable characters, has {odd:?}"),
                    ));
                }
            }
            None if kind == WriteKind::Apply => errors.push(Error::required(&path, "is required for apply patch")),
            None => {}
        }
        let is_forced = query.first("force").map(|_| query.is_true("force"));
        if is_forced.is_some() && kind == WriteKind::Patch {
            errors.push(Error::forbidden(&Path::new("force"), "may not be specified for non-apply patch"));
        }
        let is_field_validation_given = query.non_empty("fieldValidation").is_some();
        let field_validation = match query.first("fieldValidation").unwrap_or("") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(Error::not_supported(
                    &Path::new("fieldValidation"),
                    other,
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        refuse(kind.as_str(), errors)?;
        Ok(Write { is_dry_run, field_validation, is_field_validation_given, field_manager, is_forced })
    }
}

// === impl FieldValidation ===

impl FieldValidation {
    /// The value of the query parameter.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            FieldValidation::Ignore => "Ignore",
            FieldValidation::Strict => "Strict",
            FieldValidation::Warn => "Warn",
        }
    }
}

// === impl Delete ===

impl Delete {
    /// Writes the options into an object in the form of `DeleteOptions`, except for the dry run.
    pub(crate) fn describe(&self, out: &mut Value) {
        if let Some(seconds) = self.grace_period_seconds {
            out["gracePeriodSeconds"] = seconds.into();
        }
        let Preconditions { uid, resource_version } = &self.preconditions;
        for (key, value) in [("uid", uid), ("resourceVersion", resource_version)] {
            if let Some(value) = value {
                out["preconditions"][key] = value.as_str().into();
            }
        }
        if let Some(orphans) = self.orphan_dependents {
            out["orphanDependents"] = orphans.into();
        }
        if let Some(policy) = &self.propagation_policy {
            out["propagationPolicy"] = policy.as_str().into();
        }
    }

    /// Reads the options from the body if there is one, else from the query: as upstream, a body replaces the query
    /// parameters.
    ///
    /// # Errors
    /// 400 for options that cannot be read, 422 for options that exclude each other.
    pub(crate) fn parse(query: &Query, body: Option<Value>) -> Result<Delete, Failure> {
        let delete = match body {
            Some(body) => Delete::of_body(body)?,
            None => Delete::of_query(query)?,
        };
        delete.check()?;
        Ok(delete)
    }

    fn of_body(mut body: Value) -> Result<Delete, Failure> {
        let fail = |why: String| Failure::bad_request(format!("the body is no DeleteOptions: {why}"));
        if let Some(fields) = body.as_object_mut() {
            // Serde would accept a list as the fields of the struct in their order.
            if fields
                .get("preconditions")
                .is_some_and(|preconditions| !preconditions.is_object() && !preconditions.is_null())
            {
                return Err(fail("preconditions must be an object".to_owned()));
            }
            fields.retain(|_, value| !value.is_null());
        }
        serde_json::from_value(body).map_err(|error| fail(error.to_string()))
    }

    fn of_query(query: &Query) -> Result<Delete, Failure> {
        let mut delete = Delete::default();
        if let Some(text) = query.non_empty("gracePeriodSeconds") {
            let fail = || Failure::bad_request(format!("gracePeriodSeconds: {text:?} is not a whole number"));
            delete.grace_period_seconds = Some(text.parse().map_err(|_| fail())?);
        }
        if let Some(policy) = query.non_empty("propagationPolicy") {
            delete.propagation_policy = Some(policy.to_owned());
        }
        if query.first("orphanDependents").is_some() {
            delete.orphan_dependents = Some(query.is_true("orphanDependents"));
        }
        delete.dry_run.extend(query.all("dryRun").map(str::to_owned));
        if query.first(IGNORE_READ_ERROR).is_some() {
            delete.ignores_read_error = Some(query.is_true(IGNORE_READ_ERROR));
        }
        Ok(delete)
    }

    fn check(&self) -> Result<(), Failure> {
        let mut errors = Vec::new();
        self.check_read_error(&mut errors);
        let policy_path = Path::new("propagationPolicy");
        match self.propagation_policy.as_deref() {
            Some(_) if self.orphan_dependents.is_some() => {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(Error::invalid(&policy_path, self.propagation_policy.clone().unwrap_or_default(), detail));
            }
            None | Some("Foreground" | "Background" | "Orphan") => {}
            Some(other) => {
                errors.push(Error::not_supported(&policy_path, other, &["Foreground", "Background", "Orphan", "nil"]));
            }
        }
        dry_run(&self.dry_run, &mut errors);
        refuse("DeleteOptions", errors)
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    /// Whether a stored object that cannot be read is to be removed.
    pub(crate) fn ignores_read_error(&self) -> bool {
        self.ignores_read_error == Some(true)
    }

    /// Refuses options that would have to be compared with, or stored in, an object that cannot be read.
    fn check_read_error(&self, errors: &mut Vec<Error>) {
        let Preconditions { uid, resource_version } = &self.preconditions;
        let others = [
            (".dryRun", self.is_dry_run()),
            (".propagationPolicy", self.propagation_policy.is_some()),
            (".orphanDependents", self.orphan_dependents.is_some()),
            (".gracePeriodSeconds", self.grace_period_seconds.is_some()),
            (".preconditions", uid.is_some() || resource_version.is_some()),
        ];
        for (other, _) in others.iter().filter(|(_, is_set)| self.ignores_read_error() && *is_set) {
            let detail = format!("cannot be set together with {other}");
            errors.push(Error::invalid(&Path::new(IGNORE_READ_ERROR), true, detail));
        }
    }
}

fn dry_run(values: &[String], errors: &mut Vec<Error>) -> bool {
    if values.iter().any(|value| value != "All") {
        errors.push(Error::not_supported(&Path::new("dryRun"), values.to_vec(), &["All"]));
    }
    !values.is_empty()
}

fn refuse(kind: &str, errors: Vec<Error>) -> Result<(), Failure> {
    if errors.is_empty() { Ok(()) } else { Err(Failure::invalid(&GroupKind::new("meta.k8s.io", kind), "", &errors)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn list(query: &str, purpose: Purpose, want: &str) {
        let got = List::parse(&Query::parse(query), purpose)
            .map(|_| "ok".to_owned())
            .unwrap_or_else(|failure| format!("{} {}", failure.code(), failure.status.message));
        assert!(got.starts_with(want), "{got}");
    }

    #[test]
    fn a_version_match_needs_what_it_matches() {
        let invalid = |text: &str| format!("422 ListOptions.meta.k8s.io \"\" is invalid: {text}");
        list("resourceVersion=5&resourceVersionMatch=Exact", Purpose::List, "ok");
        list(
            "resourceVersionMatch=Exact",
            Purpose::List,
            &invalid("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless"),
        );
        list(
            "resourceVersion=0&resourceVersionMatch=Exact",
            Purpose::List,
            &invalid("resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\""),
        );
        list(
            "resourceVersion=5&resourceVersionMatch=Older",
            Purpose::List,
            &invalid(
                "resourceVersionMatch: Unsupported value: \"Older\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
            ),
        );
        list("sendInitialEvents=true", Purpose::List, &invalid("sendInitialEvents: Forbidden"));
        list(
            "sendInitialEvents=true",
            Purpose::Watch,
            &invalid("resourceVersionMatch: Forbidden: sendInitialEvents requires"),
        );
        list("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", Purpose::Watch, "ok");
        list(
            "resourceVersion=5&resourceVersionMatch=NotOlderThan",
            Purpose::Watch,
            &invalid("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch"),
        );
        list("limit=abc", Purpose::List, "400 limit");
        list(
            "resourceVersionMatch=Exact&continue=abc",
            Purpose::List,
            &invalid("[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless"),
        );
    }

    #[test]
    fn a_token_goes_out_and_comes_back() {
        let token = Token::after("ns/name", Revision(7));
        let query = format!("continue={}", token.encode());
        let parsed = List::parse(&Query::parse(&query), Purpose::List).unwrap();
        assert_eq!(parsed.token.as_ref().map(Token::key), Some("ns/name"));
        assert_eq!(parsed.token, Some(token));
        list("continue=abc", Purpose::List, "400 invalid continue token: continue key is not valid");
        list(
            &format!("{query}&resourceVersion=5"),
            Purpose::List,
            "400 specifying resource version is not allowed when using continue",
        );
    }

    #[test]
    fn options_of_writes_are_checked_together() {
        let parse =
            |query: &str, kind| Write::parse(&Query::parse(query), kind).err().map(|failure| failure.status.message);
        assert_eq!(parse("dryRun=All&fieldValidation=Strict", WriteKind::Create), None);
        assert_eq!(
            parse("dryRun=Yes", WriteKind::Create).as_deref(),
            Some(
                "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Yes\"]: supported values: \"All\""
            )
        );
        assert!(parse("dryRun=", WriteKind::Create).is_some());
        assert!(parse("force=true", WriteKind::Patch).unwrap().contains("may not be specified for non-apply patch"));
        assert!(
            parse("", WriteKind::Apply).unwrap().contains("fieldManager: Required value: is required for apply patch")
        );
    }

    #[test]
    fn the_body_of_a_deletion_replaces_its_parameters() {
        let query = Query::parse("dryRun=All&propagationPolicy=x&gracePeriodSeconds=x");
        let body = serde_json::json!({"kind": "DeleteOptions", "preconditions": null, "orphanDependents": true});
        let delete = Delete::parse(&query, Some(body)).unwrap();
        assert_eq!((delete.is_dry_run(), delete.orphan_dependents), (false, Some(true)));
        let list = Delete::parse(&query, Some(serde_json::json!({"preconditions": []}))).unwrap_err();
        assert_eq!(list.status.message, "the body is no DeleteOptions: preconditions must be an object");
    }

    #[test]
    fn a_policy_that_there_is_not_is_refused() {
        let parse = |query: &str| Delete::parse(&Query::parse(query), None).err().map(|failure| failure.status.message);
        assert_eq!(parse("propagationPolicy=Orphan"), None);
        assert!(
            parse("propagationPolicy=Maybe")
                .unwrap()
                .ends_with("supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"")
        );
        assert!(parse("propagationPolicy=Orphan&orphanDependents=true").is_some());
        assert!(parse("gracePeriodSeconds=abc").is_some());
    }
}
