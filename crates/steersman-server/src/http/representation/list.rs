//! Lists, written item by item as their clients read them.
//!
//! The first chunk is made before the head of the answer is sent, so that an early failure gets a proper error answer,
//! and a short list has a length. A later failure breaks the body off, so that no client takes a part for the whole.
//! Other tasks get a turn between two chunks.

mod supply;

use self::supply::{Next, Supply};
use crate::http::representation::encoding::Envelope;
use crate::http::representation::{Representation, text};
use crate::shared::compute::AnswerCompute;
use crate::shared::conversion::{BATCH_BYTES, BATCH_OBJECTS, batch_len};
use crate::shared::request::body::{Body, CHUNK_BYTES, COMPRESS_BYTES_MIN, Chunks, Error};
use crate::shared::request::negotiate::Form;
use crate::shared::request::payload::Payload;
use crate::shared::status::Failure;
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use steersman_kinds::protobuf::NotJson;
use steersman_machinery::value::Map;
use steersman_machinery::{Object, Revision, Value};

pub(crate) use self::supply::Reload;

/// Other tasks get a turn when this many bytes of objects have been read, even if little is written of them.
const READ_BYTES_MAX: usize = 256 * 1024;
/// The most bytes of objects that are written in another form at a time, except that a single one may be larger: enough that they are written
/// on another thread.
const PART_BYTES: usize = 2 * CHUNK_BYTES;
/// The assumed size of the objects that are searched for a page of released objects.
const PAGE_BYTES: usize = 1024 * 1024;
/// If the length of a list must be known first, one with up to this many bytes of JSON is made as a whole.
const WHOLE_BYTES_MAX: usize = 1024 * 1024;

/// The metadata of a list.
#[derive(Debug)]
pub(crate) struct ListHead {
    /// `None` for objects that were made for the list.
    pub(crate) revision: Option<Revision>,
    pub(crate) token: Option<String>,
    pub(crate) remaining: Option<usize>,
}

/// The items of a list in written form.
struct Items {
    /// Their total size.
    bytes: usize,
    /// The items themselves; empty unless they are kept.
    kept: Vec<u8>,
}

/// Items that are being written on another thread.
type Writing = Pin<Box<dyn Future<Output = Result<Written, Failure>> + Send>>;

/// Items in written form, and their number.
struct Written {
    bytes: Vec<u8>,
    n_items: usize,
}

/// A list that is being sent.
struct ListChunks {
    representation: Representation,
    envelope: Envelope,
    supply: Arc<Supply>,
    /// A read of released objects in progress.
    reading: Option<supply::Page>,
    /// Items that are being written.
    writing: Option<Writing>,
    /// Objects that are sent as they are stored.
    ready: VecDeque<Payload>,
    /// Writes items after the first chunk, which is made by the request itself.
    rest: Option<AnswerCompute>,
    /// Bytes that are written but not sent yet.
    out: Vec<u8>,
    scratch: Vec<u8>,
    n_written: usize,
    /// Bytes of objects that were read since other tasks last had a turn.
    n_read: usize,
    is_done: bool,
    /// Whether to yield before the next chunk.
    gives_way: bool,
    /// Releases the objects of a client that does not read. `None` for a list that is complete before it is sent.
    guard: Option<supply::Guard>,
}

/// The body of a list.
///
/// # Errors
/// When one of the first objects cannot be read or converted to the requested version.
pub(crate) async fn list(
    representation: Representation,
    objects: Vec<Arc<Object>>,
    head: &ListHead,
    reload: Option<Reload>,
    rest: AnswerCompute,
) -> Result<Body, Failure> {
    let mut items_bytes = 0;
    if representation.encoder().is_prefixed() {
        let json_bytes: usize = objects.iter().map(|object| object.json().len()).sum();
        let is_kept = json_bytes <= WHOLE_BYTES_MAX;
        let items = representation.measure(&objects, is_kept).await?;
        if is_kept {
            return representation.whole_list(head, objects.len(), &items.kept).map(Body::full);
        }
        items_bytes = items.bytes;
    }
    let mut chunks = ListChunks::new(representation, objects, head, items_bytes, reload)?;
    poll_fn(|cx| chunks.poll_make(cx, COMPRESS_BYTES_MIN)).await?;
    if chunks.is_done {
        return Ok(Body::full(std::mem::take(&mut chunks.out)));
    }
    chunks.rest = Some(rest);
    chunks.guard = Some(supply::Guard::new(&chunks.supply));
    Ok(Body::chunks(chunks))
}

impl ListChunks {
    fn new(
        representation: Representation,
        objects: Vec<Arc<Object>>,
        head: &ListHead,
        items_bytes: usize,
        reload: Option<Reload>,
    ) -> Result<ListChunks, Failure> {
        let envelope = representation.envelope(head);
        let mut out = Vec::with_capacity(CHUNK_BYTES);
        representation.encoder().open(&envelope, items_bytes, &mut out).map_err(not_json)?;
        Ok(ListChunks {
            representation,
            envelope,
            supply: Arc::new(Supply::new(objects, reload)),
            reading: None,
            writing: None,
            ready: VecDeque::new(),
            rest: None,
            out,
            scratch: Vec::new(),
            n_written: 0,
            n_read: 0,
            is_done: false,
            gives_way: false,
            guard: None,
        })
    }

    /// Writes items until `out` has this many bytes, or the list ends.
    fn poll_make(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<Result<(), Failure>> {
        while !self.is_done && self.out.len() < bytes {
            if READ_BYTES_MAX <= self.n_read {
                self.n_read = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Some(payload) = self.ready.pop_front() {
                let item = self.representation.item(&payload, &mut self.scratch)?;
                self.n_read += payload.stored_bytes().max(item.len());
                self.representation.encoder().item(item, self.n_written, &mut self.out).map_err(not_json)?;
                self.n_written += 1;
                continue;
            }
            if let Some(writing) = &mut self.writing {
                let written = ready!(writing.as_mut().poll(cx));
                self.writing = None;
                let Written { bytes, n_items } = written?;
                self.n_read += bytes.len();
                self.out.extend_from_slice(&bytes);
                self.n_written += n_items;
                continue;
            }
            if let Some(reading) = &mut self.reading {
                let page = ready!(reading.as_mut().poll(cx));
                self.reading = None;
                self.supply.resume(page?)?;
            }
            let is_verbatim = self.representation.is_verbatim();
            match self.supply.next(BATCH_OBJECTS, if is_verbatim { BATCH_BYTES } else { PART_BYTES })? {
                Next::End => {
                    let encoder = self.representation.encoder();
                    encoder.close(&self.envelope, self.n_written, &mut self.out).map_err(not_json)?;
                    self.is_done = true;
                    self.supply.end();
                }
                Next::Page(page) => {
                    self.reading = Some(match self.rest.clone() {
                        Some(rest) => Box::pin(async move { rest.carry_out(PAGE_BYTES, page).await? }),
                        None => page,
                    });
                }
                Next::Objects(objects) if is_verbatim => {
                    self.ready.extend(objects.into_iter().map(Payload::Stored));
                }
                Next::Objects(objects) => self.writing = Some(self.write(objects)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the next items.
    fn write(&self, objects: Vec<Arc<Object>>) -> Writing {
        let (representation, n_before) = (self.representation.clone(), self.n_written);
        let n_read = objects.iter().map(|object| object.json().len()).sum();
        let writing = async move {
            let (mut scratch, mut bytes, mut n_items) = (Vec::new(), Vec::new(), 0);
            for payload in representation.convert(objects).await? {
                let item = representation.item(&payload, &mut scratch)?;
                representation.encoder().item(item, n_before + n_items, &mut bytes).map_err(not_json)?;
                n_items += 1;
            }
            Ok(Written { bytes, n_items })
        };
        match self.rest.clone() {
            Some(rest) => Box::pin(async move { rest.carry_out(n_read, writing).await? }),
            None => Box::pin(writing),
        }
    }
}

impl Chunks for ListChunks {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        if self.is_done && self.out.is_empty() {
            return Poll::Ready(None);
        }
        if self.supply.is_cut() {
            return Poll::Ready(Some(Err(Error::TooSlow)));
        }
        self.supply.asked();
        if std::mem::take(&mut self.gives_way) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match ready!(self.poll_make(cx, CHUNK_BYTES)) {
            Ok(()) => {
                self.supply.taken(self.out.len());
                self.gives_way = true;
                let capacity = if self.is_done { 0 } else { CHUNK_BYTES + CHUNK_BYTES / 8 };
                let chunk = std::mem::replace(&mut self.out, Vec::with_capacity(capacity));
                Poll::Ready(Some(Ok(chunk.into())))
            }
            Err(failure) => {
                tracing::warn!(error = %failure.status.message, "a list is broken off");
                Poll::Ready(Some(Err(Error::Broken(failure.status.message.clone()))))
            }
        }
    }

    fn hold(&mut self, permit: Box<dyn Send>) {
        self.supply.hold(permit);
    }

    fn next_bytes(&self) -> Option<usize> {
        match self.is_done {
            // Its end takes no memory.
            true => (!self.out.is_empty()).then_some(self.out.len()),
            false => Some(self.supply.next_bytes().max(self.out.len())),
        }
    }

    fn first_bytes(&self) -> Option<usize> {
        Some(self.out.len())
    }

    fn is_compressible(&self) -> bool {
        true
    }
}

impl fmt::Debug for ListChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListChunks").field("n_written", &self.n_written).finish_non_exhaustive()
    }
}

impl Representation {
    /// The size of a list's items, for a serialisation that begins with it. Every item is written for that. Unless the
    /// items are kept they are written again when they are sent, so that no long list is in memory as a whole.
    async fn measure(&self, objects: &[Arc<Object>], is_kept: bool) -> Result<Items, Failure> {
        let (mut scratch, mut items) = (Vec::new(), Items { bytes: 0, kept: Vec::new() });
        let (mut left, mut n_read) = (objects, 0);
        while !left.is_empty() {
            let (batch, rest) = left.split_at(batch_len(left));
            left = rest;
            for payload in self.convert(batch.to_vec()).await? {
                n_read += payload.stored_bytes();
                if READ_BYTES_MAX <= n_read {
                    n_read = 0;
                    tokio::task::yield_now().await;
                }
                let before = items.kept.len();
                let item = self.item(&payload, &mut scratch)?;
                self.encoder().item(item, 0, &mut items.kept).map_err(not_json)?;
                items.bytes += items.kept.len() - before;
                if !is_kept {
                    items.kept.clear();
                }
            }
        }
        Ok(items)
    }

    /// A list of objects that were made for it. It has no version.
    ///
    /// # Errors
    /// When the serialisation fails.
    pub(crate) fn list_of_made(&self, made: &[Payload]) -> Result<Vec<u8>, Failure> {
        let (mut scratch, mut items) = (Vec::new(), Vec::new());
        for (index, payload) in made.iter().enumerate() {
            let item = self.item(payload, &mut scratch)?;
            self.encoder().item(item, index, &mut items).map_err(not_json)?;
        }
        self.whole_list(&ListHead { revision: None, token: None, remaining: None }, made.len(), &items)
    }

    /// A list of items that are already written.
    fn whole_list(&self, head: &ListHead, n_items: usize, items: &[u8]) -> Result<Vec<u8>, Failure> {
        let (envelope, encoder) = (self.envelope(head), self.encoder());
        let mut out = Vec::with_capacity(items.len() + 256);
        encoder.open(&envelope, items.len(), &mut out).map_err(not_json)?;
        out.extend_from_slice(items);
        encoder.close(&envelope, n_items, &mut out).map_err(not_json)?;
        Ok(out)
    }

    /// The fields of a list other than its items.
    fn envelope(&self, head: &ListHead) -> Envelope {
        let (kind, api_version) = match self.form {
            Form::Object => (self.resource().list_kind.to_string(), self.served.api_version()),
            Form::PartialMetadata => {
                ("PartialObjectMetadataList".to_owned(), self.meta_version.api_version().to_owned())
            }
            Form::Table => ("Table".to_owned(), self.meta_version.api_version().to_owned()),
        };
        let mut fields =
            vec![("kind", text(&kind)), ("apiVersion", text(&api_version)), ("metadata", text(&list_metadata(head)))];
        if self.form == Form::Table {
            fields.push(("columnDefinitions", self.columns()));
            // Upstream collects the rows of plain columns in a list that it makes for the first of them.
            let nothing = if self.served.version().has_plain_columns() { "null" } else { "[]" };
            return Envelope { fields, items: "rows", nothing };
        }
        // Upstream collects the metadata in a list that it makes for the first item.
        let nothing = if self.form == Form::PartialMetadata { "null" } else { "[]" };
        Envelope { fields, items: "items", nothing }
    }
}

fn not_json(error: NotJson) -> Failure {
    Failure::internal(error.to_string())
}

fn list_metadata(head: &ListHead) -> Value {
    let mut metadata = Map::new();
    if let Some(revision) = head.revision {
        metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
    }
    if let Some(token) = &head.token {
        metadata.insert("continue".to_owned(), token.as_str().into());
    }
    if let Some(remaining) = head.remaining {
        metadata.insert("remainingItemCount".to_owned(), remaining.into());
    }
    Value::Object(metadata)
}

#[cfg(test)]
mod tests;
