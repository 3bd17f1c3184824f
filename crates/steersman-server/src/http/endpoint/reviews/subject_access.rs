//! `SelfSubjectAccessReview` (`kubectl auth can-i`), `SubjectAccessReview` and `LocalSubjectAccessReview`: whether a
//! user may do something, and why.

use crate::access::authz::{self, Attributes, Decision, ResourceAttributes};
use crate::http::endpoint::reviews::selectors::{self, Selectors};
use crate::shared::operation::Operation;
use crate::shared::status::Failure;
use crate::state::State;
use futures::future::BoxFuture;
use serde_json::json;
use steersman_kinds::user::User;
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::{at, set_at, str_at};
use steersman_machinery::{GroupKind, Value};

/// The message for a review whose metadata is not empty.
const EMPTY: &str = "must be empty";
/// The same for a review that is created in a namespace.
const EMPTY_BUT_NAMESPACE: &str = "must be empty except for namespace";

pub(super) fn may_self<'a>(
    state: &'a State,
    operation: &'a mut Operation<'_>,
    review: Value,
) -> BoxFuture<'a, Result<Value, Failure>> {
    Box::pin(async move {
        refuse(faults_of_question(&review, EMPTY))?;
        answer(state, operation.user, review).await
    })
}

pub(super) fn may_subject<'a>(
    state: &'a State,
    _operation: &'a mut Operation<'_>,
    review: Value,
) -> BoxFuture<'a, Result<Value, Failure>> {
    Box::pin(async move {
        refuse([faults_of_question(&review, EMPTY), faults_of_subject(&review)].concat())?;
        let user = subject(&review);
        answer(state, &user, review).await
    })
}

pub(super) fn may_subject_here<'a>(
    state: &'a State,
    operation: &'a mut Operation<'_>,
    mut review: Value,
) -> BoxFuture<'a, Result<Value, Failure>> {
    Box::pin(async move {
        // The namespace is the one in the path.
        let metadata = review.get_mut("metadata").and_then(Value::as_object_mut);
        let namespace = metadata.and_then(|metadata| metadata.remove("namespace"));
        let mut faults = [faults_of_question(&review, EMPTY_BUT_NAMESPACE), faults_of_subject(&review)].concat();
        let path = Path::new("spec.resourceAttributes.namespace");
        let asked = str_at(&review, &["spec", "resourceAttributes", "namespace"]).unwrap_or_default();
        if asked != operation.namespace().unwrap_or_default() {
            faults.push(Error::invalid(&path, asked, "must match metadata.namespace"));
        }
        if at(&review, &["spec", "nonResourceAttributes"]).is_some() {
            let path = Path::new("spec.nonResourceAttributes");
            faults.push(Error::invalid(&path, Value::Null, "disallowed on this kind of request"));
        }
        refuse(faults)?;
        if let Some(namespace) = namespace {
            set_at(&mut review, &["metadata", "namespace"], namespace);
        }
        let user = subject(&review);
        answer(state, &user, review).await
    })
}

/// The user of a review.
fn subject(review: &Value) -> User {
    let spec = &review["spec"];
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: str_at(spec, &["user"]).unwrap_or_default().to_owned(),
        uid: str_at(spec, &["uid"]).unwrap_or_default().to_owned(),
        groups: texts(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.to_lowercase(), texts(values))).collect(),
    }
}

async fn answer(state: &State, user: &User, mut review: Value) -> Result<Value, Failure> {
    let selectors = Selectors::read(&review["spec"]);
    let verdict = {
        let attributes = attributes(&review["spec"], &selectors);
        authz::verdict(&*state.authorizer, user, &attributes).await
    };
    let mut status = json!({"allowed": verdict.is_allowed()});
    if verdict.decision == Decision::Deny {
        status["denied"] = true.into();
    }
    if !verdict.reason.is_empty() {
        status["reason"] = verdict.reason.to_string().into();
    }
    let errors: Vec<String> = verdict.error.into_iter().chain(selectors.left_out).collect();
    if !errors.is_empty() {
        status["evaluationError"] = errors.join("; ").into();
    }
    set_at(&mut review, &["status"], status);
    Ok(review)
}

/// The request that a review is about.
fn attributes<'a>(spec: &'a Value, selectors: &'a Selectors) -> Attributes<'a> {
    if let Some(asked) = spec.get("nonResourceAttributes") {
        let text = |key: &str| str_at(asked, &[key]).unwrap_or_default();
        return Attributes::NonResource { verb: text("verb"), path: text("path") };
    }
    let text = |key: &str| str_at(spec, &["resourceAttributes", key]).unwrap_or_default();
    let some = |key: &str| Some(text(key)).filter(|text| !text.is_empty());
    Attributes::Resource(ResourceAttributes {
        verb: text("verb"),
        group: text("group"),
        // A review without a version is about all versions.
        version: some("version").unwrap_or("*"),
        resource: text("resource"),
        subresource: some("subresource"),
        namespace: some("namespace"),
        name: some("name"),
        field_selector: selectors.fields.as_ref(),
        label_selector: selectors.labels.as_ref(),
    })
}

/// The validation errors of a review. `metadata` is the message for metadata that is not empty.
fn faults_of_question(review: &Value, metadata: &str) -> Vec<Error> {
    let mut faults = Vec::new();
    let asks = |key: &str| at(review, &["spec", key]).is_some_and(|asked| !asked.is_null());
    match (asks("resourceAttributes"), asks("nonResourceAttributes")) {
        (true, true) => faults.push(Error::invalid(
            &Path::new("spec.nonResourceAttributes"),
            review["spec"]["nonResourceAttributes"].clone(),
            "cannot be specified in combination with resourceAttributes",
        )),
        (false, false) => faults.push(Error::invalid(
            &Path::new("spec.resourceAttributes"),
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        (true, false) | (false, true) => {}
    }
    faults.extend(selectors::faults(review));
    let fields = review["metadata"].as_object();
    let is_empty = fields.is_none_or(|metadata| metadata.keys().all(|key| key == "managedFields"));
    if !is_empty {
        faults.push(Error::invalid(&Path::new("metadata"), review["metadata"].clone(), metadata));
    }
    faults
}

fn faults_of_subject(review: &Value) -> Vec<Error> {
    let has_user = str_at(review, &["spec", "user"]).is_some_and(|user| !user.is_empty());
    let has_groups = at(review, &["spec", "groups"]).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let why = "at least one of user or group must be specified";
    if has_user || has_groups { Vec::new() } else { vec![Error::invalid(&Path::new("spec.user"), "", why)] }
}

fn refuse(faults: Vec<Error>) -> Result<(), Failure> {
    if faults.is_empty() {
        return Ok(());
    }
    // Upstream's message has no kind.
    Err(Failure::invalid(&GroupKind::new("authorization.k8s.io", ""), "", &faults))
}
