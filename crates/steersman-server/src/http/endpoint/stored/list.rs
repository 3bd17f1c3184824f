//! LIST: selects objects at a resourceVersion, page by page.

use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::http::endpoint::stored::select::Selection;
use crate::http::representation::{ListHead, Reload};
use crate::shared::request::negotiate::{Form, Shape};
use crate::shared::request::options::{self, Match, Token};
use crate::shared::status::Failure;
use std::sync::Arc;
use steersman_machinery::{Budget, GroupResource, Object, ObjectKey, Revision, Value, value};
use steersman_storage::{At, List, Page, ReadError, Scope, Store};

/// The most bytes of objects that are read at a time to write them in another form than they are stored in.
const AT_ONCE_BYTES: usize = 1 << 20;

pub(crate) async fn list(cx: &Context<'_>) -> Result<Answer, Failure> {
    let representation = cx.representation(cx.negotiate(Shape::List)?)?;
    let options = options::List::parse(cx.query, options::Purpose::List)?;
    let selection = Selection::new(cx, &options)?;
    let at = version(cx, &options).await?;
    let start = options.token.as_ref().map(|token| ObjectKey::parse(token.key()));
    let page = Page { start_after: start.as_ref(), limit: options.limit };
    let (store, resource, scope) = (&cx.state.store, cx.operation.storage(), cx.operation.list_scope());
    selection.expect(&cx.operation, store.count_in(resource, &scope)).await;
    let budget = &cx.operation.budget;
    let found = select(store, resource, &scope, at, page, &selection, budget);
    let mut found = found.await.map_err(|error| expired(&error, &options))?;
    budget.check()?;
    let last = found.objects.last().map(|last| last.key.clone());
    selection.expect_refining(&cx.operation, &found.objects).await;
    found.objects = selection.refine(found.objects, budget).await?;
    if !representation.is_verbatim() {
        let bytes = found.objects.iter().map(|object| object.json().len()).sum::<usize>();
        cx.operation.load.expect(bytes.min(AT_ONCE_BYTES)).await;
    }
    let token = match (found.more, last) {
        (true, Some(last)) => Some(Token::after(&last.to_string(), found.revision).encode()),
        _ => None,
    };
    let remaining = found.remaining.filter(|remaining| *remaining > 0 && selection.is_everything_visible());
    let head = ListHead { revision: Some(found.revision), token, remaining };
    let order = cx.operation.strategy().rows_ordered_by().filter(|_| representation.form() == Form::Table);
    if let Some(path) = order {
        // The rest of a list can only be read again in the order of the store.
        return Answer::list(sorted(found.objects, path), &head, None, cx.rest(), representation).await;
    }
    // The webhook might select others when it is asked again.
    let reload = (!selection.is_refined()).then(|| reload(cx, found.revision, selection));
    Answer::list(found.objects, &head, reload, cx.rest(), representation).await
}

/// Objects in the order of a number, and then of their names.
fn sorted(mut objects: Vec<Arc<Object>>, path: &[&str]) -> Vec<Arc<Object>> {
    let number = |object: &Object| {
        let parsed = serde_json::from_slice::<Value>(object.json()).ok();
        parsed.and_then(|value| value::at(&value, path)?.as_i64()).unwrap_or(0)
    };
    objects.sort_by_cached_key(|object| (number(object), object.key.name.clone()));
    objects
}

/// A page of the selected objects: the current ones from the cache, older ones from as far back as history is kept. It ends early when the
/// budget is exceeded, which [`Budget::check`] tells.
pub(super) async fn select(
    store: &Store,
    resource: &GroupResource,
    scope: &Scope,
    at: At,
    page: Page<'_>,
    selection: &Selection,
    budget: &Budget,
) -> Result<List, ReadError> {
    let keep = |object: &Object| selection.selects_within(object, budget);
    match (at, selection.is_everything_visible()) {
        (At::Exact(revision), true) => {
            store.list_visible_at(resource, scope, revision, page, selection.visibility).await
        }
        (At::Exact(revision), false) => store.list_where_at(resource, scope, revision, page, keep).await,
        (At::Latest, true) => store.list_visible(resource, scope, at, page, selection.visibility),
        (At::Latest, false) => store.list_where(resource, scope, at, page, keep),
    }
}

/// Reads the rest of a list again, for a slow client whose objects were released.
fn reload(cx: &Context<'_>, revision: Revision, selection: Selection) -> Reload {
    let (store, resource, scope) = (cx.state.store.clone(), cx.operation.storage().clone(), cx.operation.list_scope());
    let rest = Arc::new((store, resource, scope, selection, cx.operation.budget.renewed()));
    Box::new(move |after: ObjectKey, objects_max| {
        let rest = rest.clone();
        Box::pin(async move {
            let (store, resource, scope, selection, budget) = &*rest;
            let page = Page { start_after: Some(&after), limit: Some(objects_max) };
            // The whole list was within the budget of the request, so each page of it is.
            let budget = budget.renewed();
            let found = select(store, resource, scope, At::Exact(revision), page, selection, &budget).await;
            budget.check()?;
            found.map(|found| found.objects).map_err(|error| Failure::of_read(&error))
        })
    })
}

/// The version of the list. Waits until the cache has reached it.
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
            cx.state.sync_since(cx.operation.arrived).await?;
        }
        return Ok(At::Latest);
    };
    cx.state.wait_for(wanted).await?;
    let is_exact =
        options.version_match == Some(Match::Exact) || options.version_match.is_none() && options.limit.is_some();
    Ok(if is_exact { At::Exact(wanted) } else { At::Latest })
}

/// The failure of a list whose version is compacted. A client that was reading pages gets a token with which it can
/// continue.
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
