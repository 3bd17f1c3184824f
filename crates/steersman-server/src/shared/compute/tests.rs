//! Heavy requests on real threads: when they move to another thread, and how they end.

use super::*;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use steersman_machinery::budget::Interrupt;
use tokio::task::yield_now;

const HEAVY: usize = 1 << 20;

fn pool(options: Compute) -> Arc<Pool> {
    Arc::new(Pool::new(options.slots(NonZeroUsize::MIN)))
}

fn job(load: &Load) -> Job {
    let user = Arc::new(User::authenticated("alice", []));
    Job { user, deadline: Instant::now() + Duration::from_secs(60), load: load.clone(), answers: None }
}

fn thread() -> thread::ThreadId {
    thread::current().id()
}

#[tokio::test]
async fn a_request_changes_its_thread_when_it_becomes_heavy_and_not_before() {
    let pool = pool(Compute::default());
    let load = Load::of_request(10, Interrupt::default());
    let inner = load.clone();
    let threads = pool.carry_out(
        job(&load),
        Box::pin(async move {
            let mut threads = vec![thread()];
            inner.expect(10).await;
            yield_now().await;
            threads.push(thread());
            inner.expect(HEAVY).await;
            threads.push(thread());
            tokio::time::sleep(Duration::from_millis(1)).await;
            threads.push(thread());
            threads
        }),
    );
    let threads = threads.await.unwrap();
    assert!(threads[..2].iter().all(|id| *id == thread()));
    assert!(threads[2..].iter().all(|id| *id != thread()));
    assert_eq!(pool.queue.lock().figures(), queue::Figures::default());
}

#[tokio::test]
async fn the_work_of_the_server_itself_is_done_where_it_is() {
    Load::default().expect(HEAVY).await;
    assert!(!Load::default().is_interrupted() && !Load::default().interrupt());
}

/// A request that computes until it is interrupted.
fn endless(load: &Load) -> Pin<Box<impl Future<Output = u32> + Send + 'static>> {
    let load = load.clone();
    Box::pin(async move {
        let mut n: u32 = 0;
        while !load.is_interrupted() {
            n = n.wrapping_add(1);
            std::hint::spin_loop();
        }
        n
    })
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_what_computes() {
    // The pool has a runtime of its own, whose threads do not hold up the paused clock.
    let threads = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let pool = pool(Compute::default().on(threads.handle().clone()));
    let load = Load::of_request(HEAVY, Interrupt::default());
    let begun = Instant::now();
    assert!(pool.carry_out(job(&load), endless(&load)).await.is_ok());
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert_eq!(pool.interrupted.load(Ordering::Relaxed), 1);
    threads.shutdown_background();
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_time_is_over_before_its_turn_is_not_begun() {
    let threads = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let pool = pool(Compute::default().on(threads.handle().clone()));
    let (first, second) =
        (Load::of_request(HEAVY, Interrupt::default()), Load::of_request(HEAVY, Interrupt::default()));
    let mut endless = Box::pin(
        pool.carry_out(Job { deadline: Instant::now() + Duration::from_secs(90), ..job(&first) }, endless(&first)),
    );
    assert!(futures::poll!(endless.as_mut()).is_pending());
    let late = pool.carry_out(job(&second), Box::pin(async { panic!("it was begun") })).await;
    let late: Failure = late.map(|(): ()| ()).unwrap_err();
    assert_eq!(
        (late.code(), late.status.message.as_str()),
        (504, "Timeout: request did not complete within the allotted timeout")
    );
    first.interrupt();
    assert!(endless.await.is_ok());
    threads.shutdown_background();
}

/// A request that has stored something, then becomes heavy, and says at its end whether it was interrupted.
async fn stored_then_heavy(load: Load) -> bool {
    load.write();
    load.expect(HEAVY).await;
    load.is_interrupted()
}

#[tokio::test]
async fn a_request_that_has_stored_something_is_not_refused_by_a_full_queue() {
    let pool = pool(Compute::default());
    let n_waiting = Bounds::of(1).waiting_of_user_max;
    let ids: Vec<_> = (0..n_waiting).map(|_| pool.queue.lock().enter("alice", HEAVY).unwrap()).collect();
    let refused = Load::of_request(HEAVY, Interrupt::default());
    assert_eq!(pool.carry_out(job(&refused), Box::pin(async {})).await.unwrap_err().code(), 429);
    let load = Load::of_request(10, Interrupt::default());
    assert!(!pool.carry_out(job(&load), Box::pin(stored_then_heavy(load))).await.unwrap());
    for id in ids {
        pool.queue.lock().leave(id);
    }
    assert_eq!(pool.queue.lock().figures(), queue::Figures::default());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_stored_something_goes_on_although_its_time_is_over_before_its_turn() {
    let threads = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let pool = pool(Compute::default().on(threads.handle().clone()));
    let (first, second) = (Load::of_request(HEAVY, Interrupt::default()), Load::of_request(10, Interrupt::default()));
    let ninety = Job { deadline: Instant::now() + Duration::from_secs(90), ..job(&first) };
    let mut endless = Box::pin(pool.carry_out(ninety, endless(&first)));
    assert!(futures::poll!(endless.as_mut()).is_pending());
    let stored = pool.carry_out(job(&second), Box::pin(stored_then_heavy(second)));
    let (stored, _) = tokio::join!(stored, endless);
    assert!(stored.unwrap(), "it was polled, and found that its time is over");
    threads.shutdown_background();
}

#[tokio::test]
async fn a_request_that_is_dropped_ends_and_gives_its_slot_back() {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    let pool = pool(Compute::default().freed(|| {
        FREED.fetch_add(1, Ordering::Relaxed);
    }));
    let load = Load::of_request(HEAVY, Interrupt::default());
    let mut dropped = Box::pin(pool.carry_out(job(&load), endless(&load)));
    assert!(futures::poll!(dropped.as_mut()).is_pending());
    drop(dropped);
    let next = Load::of_request(HEAVY, Interrupt::default());
    assert_eq!(pool.carry_out(job(&next), Box::pin(async { 7 })).await.unwrap(), 7);
    assert_eq!(FREED.load(Ordering::Relaxed), 2, "each has freed its memory on the thread that it computed on");
    assert_eq!(pool.queue.lock().figures(), queue::Figures::default());
}

#[tokio::test]
async fn a_panic_goes_on_in_the_caller_and_the_slot_is_free() {
    let pool = pool(Compute::default());
    let load = Load::of_request(HEAVY, Interrupt::default());
    let panics = pool.carry_out(job(&load), Box::pin(async { panic!("on purpose") }));
    let panic = futures::FutureExt::catch_unwind(AssertUnwindSafe(panics)).await;
    let panic = panic.map(|outcome: Result<(), Failure>| outcome.is_ok()).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    let next = Load::of_request(HEAVY, Interrupt::default());
    assert_eq!(pool.carry_out(job(&next), Box::pin(async { 7 })).await.unwrap(), 7);
}

#[tokio::test]
async fn a_request_that_waits_for_another_holds_no_slot() {
    let pool = pool(Compute::default());
    let (tell, told) = oneshot::channel();
    let (first, second) =
        (Load::of_request(HEAVY, Interrupt::default()), Load::of_request(HEAVY, Interrupt::default()));
    let waits = pool.carry_out(job(&first), Box::pin(async { told.await.unwrap() }));
    let tells = pool.carry_out(job(&second), Box::pin(async { tell.send(7).unwrap() }));
    let (waited, told) = tokio::join!(waits, tells);
    assert_eq!((waited.unwrap(), told.unwrap()), (7, ()));
}
