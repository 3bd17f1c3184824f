//! DELETE of a collection: every object that the request selects, many concurrently.

use crate::http::answer::Answer;
use crate::http::endpoint::context::Context;
use crate::http::endpoint::stored::select::Selection;
use crate::http::endpoint::stored::{list, object};
use crate::http::representation::ListHead;
use crate::shared::operation::{Annotation, Operation};
use crate::shared::request::negotiate::Shape;
use crate::shared::request::options::{self, Delete};
use crate::shared::status::Failure;
use crate::state::State;
use crate::write::registry::{self, Change};
use bytes::Bytes;
use futures::StreamExt as _;
use std::sync::Arc;
use steersman_kinds::catalog::Verb;
use steersman_machinery::Object;
use steersman_storage::{Page, Visibility};
use tokio_util::sync::CancellationToken;

/// The most concurrent deletions. Deletions that wait together share one commit of the store.
const AT_A_TIME: usize = 64;
/// The cost of one deletion, in bytes of objects that are read in the same time.
const DELETION_BYTES: usize = 2048;
/// The maximum number of warnings that are sent, and of annotations that are logged: admission adds some for each object.
const WARNINGS_MAX: usize = 256;
const ANNOTATIONS_MAX: usize = 256;

/// Deletes the objects and answers with them. It stops at the first failure and when the client disconnects; objects
/// deleted until then stay deleted.
pub(super) async fn delete_collection(cx: &mut Context<'_>, bytes: Bytes) -> Result<Answer, Failure> {
    let representation = cx.representation(cx.negotiate(Shape::List)?)?;
    let options = object::delete_options(cx, &bytes)?;
    let list = options::List::parse(cx.query, options::Purpose::List)?;
    let mut selection = Selection::new(cx, &list)?;
    // Objects that wait for initializers are deleted too.
    selection.visibility = Visibility::All;
    let at = list::version(cx, &list).await?;
    let (store, resource, scope) = (&cx.state.store, cx.operation.storage(), cx.operation.list_scope());
    selection.expect(&cx.operation, store.count_in(resource, &scope)).await;
    let found = list::select(store, resource, &scope, at, Page::ALL, &selection, &cx.operation.budget);
    let mut found = found.await.map_err(|error| Failure::of_read(&error))?;
    cx.operation.budget.check()?;
    selection.expect_refining(&cx.operation, &found.objects).await;
    found.objects = selection.refine(found.objects, &cx.operation.budget).await?;
    cx.operation.load.expect_work(found.objects.len().saturating_mul(DELETION_BYTES)).await;
    let revision = found.revision;
    let (state, operation) = (&**cx.state, &cx.operation);
    // Deletions that have begun are finished even after one has failed; but no further ones are begun.
    let ended = cx.abandoned.map(CancellationToken::child_token).unwrap_or_default();
    let deletions = futures::stream::iter(found.objects).map(|object| async {
        match ended.is_cancelled() {
            true => (Ok(None), Vec::new(), Vec::new()),
            false => delete_one(state, operation, &options, object).await,
        }
    });
    // `buffered` keeps the order of the list, which is the order of the answer.
    let mut deletions = deletions.buffered(AT_A_TIME);
    let (mut deleted, mut failed) = (Vec::new(), None);
    let (mut warnings, mut annotations): (Vec<String>, Vec<Annotation>) = (Vec::new(), Vec::new());
    while let Some((done, warned, annotated)) = deletions.next().await {
        warnings.extend(warned.into_iter().take(WARNINGS_MAX - warnings.len()));
        annotations.extend(annotated.into_iter().take(ANNOTATIONS_MAX - annotations.len()));
        match done {
            Ok(object) => deleted.extend(object),
            Err(failure) => {
                ended.cancel();
                failed.get_or_insert(failure);
            }
        }
    }
    drop(deletions);
    warnings.into_iter().for_each(|warning| cx.operation.warn(warning));
    cx.operation.audit_annotations.append(&mut annotations);
    match failed {
        Some(failure) => Err(failure),
        None => {
            let head = ListHead { revision: Some(revision), token: None, remaining: None };
            Answer::list(deleted, &head, None, cx.rest(), representation).await
        }
    }
}

/// Deletes one object, and returns the notes of admission. `None` if it was deleted by another request in the meantime:
/// then it is not part of the answer.
async fn delete_one(
    state: &State,
    operation: &Operation<'_>,
    options: &Delete,
    object: Arc<Object>,
) -> (Result<Option<Arc<Object>>, Failure>, Vec<String>, Vec<Annotation>) {
    let mut one = operation.on(Verb::Delete, &object.key);
    one.is_of_collection = true;
    let written = registry::write(state, &mut one, &Change::Delete(options)).await;
    let (warnings, annotations) = (one.warnings, one.audit_annotations);
    let done = match written {
        Ok(_) => Ok(Some(object)),
        Err(failure) if failure.code() == 404 => Ok(None),
        Err(failure) => Err(failure),
    };
    (done, warnings, annotations)
}
