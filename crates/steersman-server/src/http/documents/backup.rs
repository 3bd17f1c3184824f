//! `GET /steersman/backup`: all that is stored, at one revision, as a file. Only for members of `system:masters`, whatever roles say: a role
//! that allows all paths is given to read health and metrics, and this is every Secret.

use crate::http::answer::Answer;
use crate::shared::request::body::{Body, Chunks, Error};
use crate::shared::status::Failure;
use crate::state::State;
use bytes::Bytes;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use steersman_kinds::user::{MASTERS, User};
use steersman_storage::ReadError;
use steersman_storage::backup::Backup;
use steersman_storage::kv::{self, SCAN_BYTES};

/// The path of the backup.
pub const BACKUP_PATH: &str = "/steersman/backup";
const CONTENT_TYPE: &str = "application/octet-stream";

type Reading = Pin<Box<dyn Future<Output = (Backup, Result<Option<Bytes>, kv::Error>)> + Send>>;

/// The answer to a user.
///
/// # Errors
/// 403 for a user who is not in the group, and when the store cannot be read.
pub(crate) async fn answer(state: &State, user: &User) -> Result<Answer, Failure> {
    if !user.is_in(MASTERS) {
        let why = format!("User {:?} cannot read the backup: it needs the group {MASTERS}", user.name);
        return Err(Failure::forbidden_path(&why));
    }
    let failed = |error| Failure::of_read(&ReadError::Kv(error));
    let seconds = u64::try_from(state.now().as_second()).ok();
    let mut backup = state.store.backup(seconds).await.map_err(failed)?;
    let first = backup.next().await.map_err(failed)?.unwrap_or_default();
    Ok(Answer::stream(
        CONTENT_TYPE,
        Body::chunks(BackupChunks { first: Some(first), reading: Some(read(backup)), permit: None }),
    ))
}

fn read(mut backup: Backup) -> Reading {
    Box::pin(async move {
        let next = backup.next().await;
        (backup, next)
    })
}

/// The body of the answer.
struct BackupChunks {
    first: Option<Bytes>,
    /// Held for as long as the backup is read.
    permit: Option<Box<dyn Send>>,
    /// `None` after the end.
    reading: Option<Reading>,
}

impl Chunks for BackupChunks {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let (backup, next) = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        Poll::Ready(match next {
            Ok(Some(chunk)) => {
                self.reading = Some(read(backup));
                Some(Ok(chunk))
            }
            Ok(None) => {
                self.permit = None;
                None
            }
            Err(error) => {
                self.permit = None;
                tracing::error!(%error, "a backup is broken off");
                Some(Err(Error::Broken(error.to_string())))
            }
        })
    }

    fn hold(&mut self, permit: Box<dyn Send>) {
        self.permit = Some(permit);
    }

    fn next_bytes(&self) -> Option<usize> {
        Some(self.first.as_ref().map_or(SCAN_BYTES, Bytes::len))
    }

    fn first_bytes(&self) -> Option<usize> {
        self.first.as_ref().map(Bytes::len)
    }
}
