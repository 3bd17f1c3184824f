//! Reviews: virtual kinds, which are answered and not stored. A client posts one and gets it back with a status.
//!
//! The catalog's row of such a kind has `Handling::Virtual`. To add one, write its row (`builtin/review.rs`), a file here
//! with the function that answers, and a row of [`REVIEWS`].

mod selectors;
mod self_subject;
mod subject_access;
mod subject_rules;
mod token;

use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::shared::operation::Operation;
use crate::shared::request::negotiate::{Shape, negotiate};
use crate::shared::request::options::WriteKind;
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::admission;
use crate::write::registry;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::Method;
use steersman_machinery::Value;

/// Answers a review. It is in the requested form, decoded, defaulted and admitted.
type Answers = for<'a> fn(&'a State, &'a mut Operation<'_>, Value) -> BoxFuture<'a, Result<Value, Failure>>;

/// The answering function of a resource's reviews.
struct Review {
    group: &'static str,
    resource: &'static str,
    answers: Answers,
}

static REVIEWS: [Review; 6] = [
    Review { group: "authentication.k8s.io", resource: "selfsubjectreviews", answers: self_subject::who },
    Review { group: "authentication.k8s.io", resource: "tokenreviews", answers: token::whose },
    Review {
        group: "authorization.k8s.io",
        resource: "localsubjectaccessreviews",
        answers: subject_access::may_subject_here,
    },
    Review { group: "authorization.k8s.io", resource: "selfsubjectaccessreviews", answers: subject_access::may_self },
    Review { group: "authorization.k8s.io", resource: "selfsubjectrulesreviews", answers: subject_rules::of_self },
    Review { group: "authorization.k8s.io", resource: "subjectaccessreviews", answers: subject_access::may_subject },
];

/// Carries out a request on a virtual kind, which can only be created.
///
/// # Errors
/// With the answer for the client.
pub(super) async fn handle(cx: &mut Context<'_>, method: &Method, body: Bytes) -> Result<Answer, Failure> {
    let attributes = cx.operation.attributes;
    let review = REVIEWS.iter().find(|row| attributes.is_about(row.group, row.resource));
    let Some(review) = review.filter(|_| attributes.subresource.is_none()) else {
        return Err(Failure::unknown_resource());
    };
    if *method != Method::POST || cx.target.has_name_in_path {
        return Err(Failure::method_not_allowed());
    }
    let representation = cx.representation(negotiate(&cx.parts.headers, Shape::Review)?)?;
    let mut object = cx.read_object(WriteKind::Create, &body).await?;
    registry::record(&cx.operation, None, &mut object).await;
    admission::admit(cx.state, &mut cx.operation, &mut object).await?;
    let answered = (review.answers)(cx.state, &mut cx.operation, object).await?;
    Answer::object(201, Payload::Tree(answered), &representation).await
}
