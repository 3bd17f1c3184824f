//! Lists: which objects, as of when, and how many at a time.

use crate::answer::{Answer, ListHead};
use crate::endpoint::context::Context;
use crate::endpoint::stored::select::Selection;
use crate::negotiate::{Negotiated, Shape, negotiate};
use crate::options::{self, Match, Token};
use crate::payload::Payload;
use crate::status::Failure;
use std::sync::Arc;
use steersman_machinery::{Object, ObjectKey, Revision};
use steersman_storage::{At, Page, ReadError};

pub(crate) async fn list(cx: &Context<'_>) -> Result<Answer, Failure> {
    let negotiated = negotiate(cx.headers, Shape::List)?;
    let options = options::List::parse(cx.query, false)?;
    let selection = Selection::new(cx, &options)?;
    let at = version(cx, &options).await?;
    let start = options.token.as_ref().map(|token| ObjectKey::parse(token.key()));
    let page = Page { start_after: start.as_ref(), limit: options.limit };
    let store = &cx.state.store;
    let found = if selection.is_everything() {
        store.list(cx.operation.storage(), &cx.operation.list_scope(), at, page)
    } else {
        store.list_where(cx.operation.storage(), &cx.operation.list_scope(), at, page, |object| {
            selection.selects(cx, object)
        })
    };
    let found = found.map_err(|error| expired(&error, &options))?;
    let token = match (found.more, found.objects.last()) {
        (true, Some(last)) => Some(Token::after(&last.key.to_string(), found.revision).encode()),
        _ => None,
    };
    let remaining = found.remaining.filter(|remaining| *remaining > 0 && selection.is_everything());
    answer(cx, found.objects, found.revision, token, remaining, negotiated)
}

/// Writes objects as a list.
pub(crate) fn answer(
    cx: &Context<'_>,
    objects: Vec<Arc<Object>>,
    revision: Revision,
    token: Option<String>,
    remaining: Option<usize>,
    negotiated: Negotiated,
) -> Result<Answer, Failure> {
    let head = ListHead { revision, token, remaining };
    Answer::list(cx, objects.into_iter().map(Payload::Stored).collect(), &head, negotiated)
}

/// As of when the list is wanted; waits until the cache is as new.
pub(crate) async fn version(cx: &Context<'_>, options: &options::List) -> Result<At, Failure> {
    if let Some(token) = &options.token {
        return match u64::try_from(token.version) {
            Ok(version) => Ok(At::Exact(Revision(version))),
            Err(_) => Ok(At::Latest),
        };
    }
    let wanted =
        options.revision().map_err(|error| Failure::bad_request(format!("invalid resource version: {error}")))?;
    let Some(wanted) = wanted else {
        if !options.takes_any() {
            cx.state.sync().await?;
        }
        return Ok(At::Latest);
    };
    cx.state.wait_for(wanted).await?;
    let is_exact =
        options.version_match == Some(Match::Exact) || options.version_match.is_none() && options.limit.is_some();
    Ok(if is_exact { At::Exact(wanted) } else { At::Latest })
}

/// The failure of a list whose version is gone; a client that was reading pages is told where to go on.
fn expired(error: &ReadError, options: &options::List) -> Failure {
    let (ReadError::Compacted { .. }, Some(token)) = (error, &options.token) else {
        return Failure::of_read(error);
    };
    let mut failure = Failure::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
         the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
         Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
         deleted between the time the first chunk was returned and now may show up in the list.",
    );
    failure.status.metadata.insert("continue".to_owned(), token.at_any_version().encode().into());
    failure
}
