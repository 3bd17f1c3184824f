//! Writes the file of an open store anew when a block of it has gone bad. Readers and the writer go on with the new file.
//!
//! redb fails when it reads the block, for a reader or for the writer, and reads nothing more of the file. A reader then asks the writer for
//! a new file, and reads again. The writer makes the new file before its next command, and decides the writes that it could not commit once
//! more. Lost keys are named as after an open, and history is dropped. If the file is damaged again and again, the next renewal waits for
//! its turn (`pace`); damaged keys stay named meanwhile, and everything that is in memory is served.

pub(super) mod pace;
pub(super) mod rebuild;

use crate::disk::file::{self, Opened};
use crate::disk::renewal::pace::Clock;
use crate::disk::survey::{Lost, Survey};
use crate::disk::writer::{Command, Writer};
use crate::disk::{Current, Shared};
use crate::kv::Cause;
use crate::kv::tail::Renewals;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

/// The cause when a store that is in no directory of its own is damaged while it is open.
#[derive(Debug, thiserror::Error)]
#[error("a block of the file is damaged, and there is no directory in which it could be written anew")]
struct NoDirectory;

/// The means of the writer to write the file anew.
pub(super) struct Renewing {
    pub(super) clock: Arc<dyn Clock>,
    /// The directory of the file; `None` if it is in none.
    pub(super) dir: Option<PathBuf>,
}

impl Shared {
    pub(super) fn renewals(&self) -> Renewals {
        self.current.lock().as_ref().map(|current| current.renewals).unwrap_or_default()
    }

    /// Whether a read that failed may be done again on another file. Waits until a damaged file is written anew.
    pub(super) async fn is_renewed(&self, seen: Renewals) -> bool {
        let is_damaged = match &*self.current.lock() {
            None => return false,
            Some(current) if current.renewals != seen => return true,
            Some(current) => current.storage.damage().is_some(),
        };
        let Some(queue) = self.wake.upgrade().filter(|_| is_damaged) else { return false };
        let (reply, answer) = oneshot::channel();
        self.waiting.lock().push(reply);
        // If the queue is full, the writer is awake.
        if let Err(TrySendError::Closed(_)) = queue.try_send(Command::Renew) {
            return false;
        }
        // While somebody has a sender, the writer does not end.
        drop(queue);
        matches!(answer.await, Ok(Ok(())))
    }
}

impl Writer {
    /// Writes the file anew if it is damaged, when it is its turn. After a failure nothing more is written. Breaks if that is left to the next
    /// start, because the store is being closed and no write needs the new file.
    pub(super) fn renew_if_damaged(&mut self, drained: &[Command]) -> ControlFlow<()> {
        if self.current.storage.damage().is_none() || self.shared.poison.get().is_some() {
            return ControlFlow::Continue(());
        }
        self.wait_for_turn();
        let is_needed = !self.commands.is_empty() || drained.iter().any(|command| !matches!(command, Command::Renew));
        if self.is_closing() && !is_needed {
            tracing::warn!("the store is damaged and is being closed: the next start writes it anew");
            return ControlFlow::Break(());
        }
        if let Err(source) = self.renew() {
            self.poison(source);
        }
        ControlFlow::Continue(())
    }

    fn is_closing(&self) -> bool {
        self.shared.closing.load(Ordering::Acquire)
    }

    /// Writes the file anew, and takes up what is in it.
    pub(super) fn renew(&mut self) -> Result<(), Cause> {
        let Some(dir) = self.renewing.dir.clone() else { return Err(Arc::new(NoDirectory)) };
        let began = self.renewing.clock.now();
        let published = self.shared.tail.revision();
        let opened = file::renew(&dir, &self.current.storage, published);
        let Opened { database, storage, survey } = opened.map_err(|error| Arc::new(error) as Cause)?;
        let Survey { mut index, lost, .. } = survey;
        index.keep_count(&self.index);
        self.index = index;
        let renewals = Renewals(self.current.renewals.0 + 1);
        self.current = Current { database: Arc::new(database), renewals, storage };
        self.shared.compacted.store(self.index.compacted().0, Ordering::Release);
        *self.shared.damaged.lock() = lost.into_iter().map(Lost::malformed).collect();
        self.shared.opened.lock().take();
        self.shared.view.lock().take();
        *self.shared.volume.lock() = self.index.volume();
        *self.shared.current.lock() = Some(self.current.clone());
        self.shared.tail.renew(renewals);
        let ended = self.renewing.clock.now();
        self.pace.end(ended - began, ended);
        Ok(())
    }

    /// Waits until the file may be written anew, or until the store is being closed.
    pub(super) fn wait_for_turn(&mut self) {
        let now = self.renewing.clock.now();
        let wait = self.pace.begin(now);
        if !wait.is_zero() {
            tracing::error!(
                ?wait,
                "the store is damaged again soon after it was written anew: writes wait, replace the disk"
            );
            self.renewing.clock.wait(now + wait, &|| self.is_closing());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::file::pages::PAGE;
    use crate::disk::{Disk, FILE, FILE_DAMAGED, PAGE_CACHE_BYTES, WRITES_QUEUED_MAX};
    use crate::kv::tail::RENEWALS_MAX;
    use crate::kv::{Error, Kv, Op, Range, Remedy, Txn};
    use parking_lot::Mutex;
    use redb::StorageBackend;
    use std::io::{Seek, SeekFrom, Write};
    use std::path::Path;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::task::{Context, Waker};
    use std::time::Duration;
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    /// A clock on which time passes only while somebody waits. The test ends the wait.
    struct Held {
        go: Mutex<Receiver<()>>,
        now: Mutex<Instant>,
        waits: SyncSender<Duration>,
    }

    impl Clock for Held {
        fn now(&self) -> Instant {
            *self.now.lock()
        }

        fn wait(&self, until: Instant, _: &dyn Fn() -> bool) {
            self.waits.send(until - self.now()).unwrap();
            self.go.lock().recv().unwrap();
            *self.now.lock() = until;
        }
    }

    /// A clock that has stopped, so that only the close ends a wait.
    struct Stopped(Instant, SyncSender<()>);

    impl Clock for Stopped {
        fn now(&self) -> Instant {
            self.0
        }

        fn wait(&self, until: Instant, is_over: &dyn Fn() -> bool) {
            self.1.send(()).unwrap();
            assert!(self.now() < until);
            for _ in 0..20 {
                if is_over() {
                    return;
                }
                std::thread::park_timeout(Duration::from_secs(1));
            }
            panic!("the close did not end the wait");
        }
    }

    /// Makes a store whose values can be found in the file by their text, and closes it.
    async fn make(dir: &Path) {
        let disk = Disk::open(dir).unwrap();
        for n in 0..6 {
            disk.txn(put(&format!("key-{n}"), format!("value-{n}|"))).await.unwrap();
        }
        disk.close().await.unwrap();
    }

    fn put(key: &str, value: String) -> Txn {
        let op = Op::Put { key: key.to_owned().into(), value: value.into() };
        Txn { compares: Vec::new(), ops: vec![op] }
    }

    /// Overwrites a value in the open file, and reads its block. The task returns whether a read may be done again, once that is known.
    fn damage(disk: &Disk, dir: &Path, n: usize) -> JoinHandle<bool> {
        let path = dir.join(FILE);
        let image = std::fs::read(&path).unwrap();
        let text = format!("value-{n}|");
        let current = disk.shared.current.lock().clone().unwrap();
        let mut file = std::fs::File::options().write(true).open(&path).unwrap();
        for at in memchr::memmem::find_iter(&image, text.as_bytes()) {
            file.seek(SeekFrom::Start(at as u64)).unwrap();
            file.write_all(b"########").unwrap();
            let _damaged = current.storage.read((at / PAGE * PAGE) as u64, &mut [0; PAGE]);
        }
        assert!(current.storage.damage().is_some());
        let (shared, seen) = (disk.shared.clone(), current.renewals);
        tokio::spawn(async move { shared.is_renewed(seen).await })
    }

    fn damaged(disk: &Disk) -> usize {
        disk.damaged().len()
    }

    #[tokio::test]
    async fn a_file_that_is_damaged_again_and_again_waits_and_nothing_fails_because_of_that() {
        let scratch = tempfile::tempdir().unwrap();
        make(scratch.path()).await;
        let (waits, waiting) = sync_channel(9);
        let (let_go, go) = sync_channel(9);
        let clock = Arc::new(Held { go: Mutex::new(go), now: Mutex::new(Instant::now()), waits });
        let disk = Disk::open_with(scratch.path(), clock.clone()).unwrap();
        assert!(damage(&disk, scratch.path(), 0).await.unwrap());
        assert_eq!((damaged(&disk), waiting.try_recv().is_err()), (1, true), "the first is not delayed");
        for (n, seconds) in [(1, 1), (2, 2), (3, 4)] {
            let read = damage(&disk, scratch.path(), n);
            let wait = loop {
                match waiting.try_recv() {
                    Ok(wait) => break wait,
                    Err(_) => assert!(!read.is_finished(), "it did not wait"),
                }
                tokio::task::yield_now().await;
            };
            assert_eq!(wait, Duration::from_secs(seconds));
            assert!(!read.is_finished());
            assert_eq!(damaged(&disk), n, "what was damaged before is named");
            let write = disk.txn(put("new", "new".to_owned()));
            let_go.send(()).unwrap();
            assert!(read.await.unwrap());
            write.await.unwrap();
            assert_eq!(damaged(&disk), n + 1);
        }
        *clock.now.lock() += Duration::from_secs(60);
        assert!(damage(&disk, scratch.path(), 4).await.unwrap());
        assert!(waiting.try_recv().is_err(), "after a quiet time it is not delayed");
        disk.health().unwrap();
    }

    #[tokio::test]
    async fn a_close_does_not_wait_for_the_turn_and_finishes_what_is_queued_even_if_the_queue_is_full() {
        for n_writes in [1, WRITES_QUEUED_MAX] {
            let scratch = tempfile::tempdir().unwrap();
            make(scratch.path()).await;
            let (waits, waiting) = sync_channel(9);
            let disk = Disk::open_with(scratch.path(), Arc::new(Stopped(Instant::now(), waits))).unwrap();
            assert!(damage(&disk, scratch.path(), 0).await.unwrap());
            let read = damage(&disk, scratch.path(), 1);
            while waiting.try_recv().is_err() {
                assert!(!read.is_finished(), "it did not wait");
                tokio::task::yield_now().await;
            }
            let writes: Vec<_> = (0..n_writes).map(|_| disk.enqueue(put("new", "new".to_owned())).unwrap()).collect();
            // A read that comes now finds no place in the queue, and is not polled while the store is closed.
            let shared = disk.shared.clone();
            let mut late = pin!(shared.is_renewed(shared.renewals()));
            assert!(late.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            disk.close().await.unwrap();
            for write in writes {
                write.await.unwrap().unwrap();
            }
            assert!(read.await.unwrap() && late.await);
            drop(disk);
            let disk = Disk::open(scratch.path()).unwrap();
            assert_eq!((disk.read().await.unwrap().entries.len(), damaged(&disk)), (5, 2));
        }
    }

    #[tokio::test]
    async fn a_close_without_queued_writes_leaves_a_damaged_file_to_the_next_start() {
        let scratch = tempfile::tempdir().unwrap();
        make(scratch.path()).await;
        let (waits, waiting) = sync_channel(9);
        let disk = Disk::open_with(scratch.path(), Arc::new(Stopped(Instant::now(), waits))).unwrap();
        assert!(damage(&disk, scratch.path(), 0).await.unwrap());
        let read = damage(&disk, scratch.path(), 1);
        while waiting.try_recv().is_err() {
            assert!(!read.is_finished(), "it did not wait");
            tokio::task::yield_now().await;
        }
        let kept = scratch.path().join(FILE_DAMAGED);
        std::fs::remove_file(&kept).unwrap();
        disk.close().await.unwrap();
        assert_eq!((read.await.unwrap(), kept.exists()), (false, false));
        drop(disk);
        let disk = Disk::open(scratch.path()).unwrap();
        assert_eq!((disk.read().await.unwrap().entries.len(), damaged(&disk), kept.exists()), (4, 2, true));
    }

    /// A clock on which time passes only while somebody waits, and with each renewal a value of the new file goes bad.
    struct Spoiling {
        dir: PathBuf,
        n_asked: AtomicUsize,
        now: Mutex<Instant>,
        spoiled: Mutex<Vec<usize>>,
    }

    impl Clock for Spoiling {
        fn now(&self) -> Instant {
            // The third time that a renewal asks, it is done.
            if self.n_asked.fetch_add(1, Ordering::Relaxed) % 3 == 2
                && let Some(n) = self.spoiled.lock().pop()
            {
                spoil(&self.dir, n);
            }
            *self.now.lock()
        }

        fn wait(&self, until: Instant, _: &dyn Fn() -> bool) {
            *self.now.lock() = until;
        }
    }

    /// A value whose page is larger than what redb keeps in memory: a commit reads the page if it is the last one of the log.
    fn large(n: usize) -> String {
        let mut state = n as u64;
        let letter = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'A' + (state >> 40) as u8 % 26)
        };
        (0..PAGE_CACHE_BYTES * 33 / 64).map(letter).collect()
    }

    /// Overwrites a large value in the file.
    fn spoil(dir: &Path, n: usize) {
        let path = dir.join(FILE);
        let image = std::fs::read(&path).unwrap();
        let mut file = std::fs::File::options().write(true).open(&path).unwrap();
        let places: Vec<usize> = memchr::memmem::find_iter(&image, &large(n).as_bytes()[..500]).collect();
        assert!(!places.is_empty(), "the file does not have value {n}");
        for at in places {
            file.seek(SeekFrom::Start(at as u64)).unwrap();
            file.write_all(&[b'#'; 500]).unwrap();
        }
    }

    #[tokio::test]
    async fn a_commit_that_meets_damage_after_a_renewal_is_made_after_another_one_and_not_for_ever() {
        for n_spoiled in [2, RENEWALS_MAX + 1] {
            let scratch = tempfile::tempdir().unwrap();
            let dir = scratch.path();
            let spoiled = Mutex::new((1..n_spoiled).rev().collect());
            let clock =
                Spoiling { dir: dir.into(), n_asked: AtomicUsize::new(0), now: Mutex::new(Instant::now()), spoiled };
            let disk = Disk::open_with(dir, Arc::new(clock)).unwrap();
            // The last one goes bad first, then the one before it, and so on: they are numbered in that order.
            for n in (0..=n_spoiled).rev() {
                disk.txn(put(&format!("large-{n}"), large(n))).await.unwrap();
            }
            spoil(dir, 0);
            let written = disk.txn(put("new", "new".to_owned())).await;
            if n_spoiled <= RENEWALS_MAX {
                written.unwrap();
                disk.health().unwrap();
                assert_eq!(damaged(&disk), n_spoiled);
                assert_eq!(disk.range(Range::default()).await.unwrap().entries.len(), 2);
            } else {
                let Err(Error::Poisoned { remedy: Remedy::Restart, source }) = written else { panic!("{written:?}") };
                let want = "a write met damage again after the file was written anew 3 times for it: replace the disk, then start again";
                assert_eq!(source.to_string(), want);
            }
        }
    }
}
