//! When transactions start: one after the other (closed loop), or at a fixed rate (open loop).
//!
//! In the open loop a transaction's latency counts from when it was *meant* to start. A server that stalls delays what was
//! to start meanwhile, and that delay counts: nothing is omitted because the caller had to wait. What never got its turn is
//! recorded too, with the time that it had waited by then, and counted as not started.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};

/// How long after the end a transaction that was meant to start before it may still start.
const START_GRACE: Duration = Duration::from_secs(1);

/// The most starts that wait for their turn; beyond it their times stand, and they come later.
const MAX_WAITING_STARTS: usize = 65_536;

/// When transactions start.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// Each of the callers starts its next one when its last one is done.
    Closed,
    /// At this many a second, whatever becomes of them.
    Open(f64),
}

/// How a start went.
pub(super) enum Ran<T> {
    /// It ran to this end.
    Done(T),
    /// Its turn never came.
    NotStarted,
}

/// Runs transactions 0, 1, 2, ... for a time, at most `concurrency` at once, and tells `record` of each with its latency.
/// It returns when the last one is done, however long after the time that is.
pub(super) async fn run<T, F>(
    pace: Pace,
    concurrency: usize,
    time: Duration,
    execute: impl Fn(u64) -> F + Clone + Send + 'static,
    record: impl Fn(Ran<T>, Duration) + Clone + Send + 'static,
) where
    T: Send,
    F: Future<Output = T> + Send + 'static,
{
    let places = match pace {
        Pace::Closed => closed(concurrency, time, execute, record),
        Pace::Open(per_second) => open(per_second, concurrency, time, execute, record).await,
    };
    // Every transaction has given its place back when all of them can be had.
    let all = u32::try_from(concurrency).unwrap_or(u32::MAX);
    // Nobody closes the semaphore.
    let _ = places.acquire_many(all).await;
}

fn closed<T, F>(
    concurrency: usize,
    time: Duration,
    execute: impl Fn(u64) -> F + Clone + Send + 'static,
    record: impl Fn(Ran<T>, Duration) + Clone + Send + 'static,
) -> Arc<Semaphore>
where
    T: Send,
    F: Future<Output = T> + Send + 'static,
{
    let (places, next) = (Arc::new(Semaphore::new(concurrency)), Arc::new(AtomicU64::new(0)));
    let began = Instant::now();
    for _ in 0..concurrency {
        let place = Arc::clone(&places).try_acquire_owned();
        let (execute, record, next) = (execute.clone(), record.clone(), Arc::clone(&next));
        tokio::spawn(async move {
            let _place = place;
            while began.elapsed() < time {
                let started = Instant::now();
                let done = execute(next.fetch_add(1, Ordering::Relaxed)).await;
                record(Ran::Done(done), started.elapsed());
            }
        });
    }
    places
}

async fn open<T, F>(
    per_second: f64,
    concurrency: usize,
    time: Duration,
    execute: impl Fn(u64) -> F + Clone + Send + 'static,
    record: impl Fn(Ran<T>, Duration) + Clone + Send + 'static,
) -> Arc<Semaphore>
where
    T: Send,
    F: Future<Output = T> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(concurrency));
    let began = Instant::now();
    let mut starts = schedule(began, per_second, time);
    let last_start = tokio::time::Instant::from_std(began + time + START_GRACE);
    while let Some((number, meant)) = starts.recv().await {
        let place = tokio::time::timeout_at(last_start, Arc::clone(&places).acquire_owned()).await;
        let (Ok(Ok(place)), true) = (place, tokio::time::Instant::now() < last_start) else {
            record(Ran::NotStarted, meant.elapsed());
            continue;
        };
        let (execute, record) = (execute.clone(), record.clone());
        tokio::spawn(async move {
            let done = execute(number).await;
            record(Ran::Done(done), meant.elapsed());
            drop(place);
        });
    }
    places
}

/// Numbers with the times at which they are meant to start, each no earlier than that.
///
/// A thread of its own sleeps more exactly than the runtime's timer, whose step of a millisecond would be a large part of a
/// short latency.
fn schedule(began: Instant, per_second: f64, time: Duration) -> mpsc::Receiver<(u64, Instant)> {
    let (sender, starts) = mpsc::channel(MAX_WAITING_STARTS);
    let tell = move || {
        for number in 0.. {
            let offset = Duration::from_secs_f64(number as f64 / per_second);
            let meant = began + offset;
            if offset >= time {
                return;
            }
            std::thread::sleep(meant.saturating_duration_since(Instant::now()));
            if sender.blocking_send((number, meant)).is_err() {
                return;
            }
        }
    };
    tokio::task::spawn_blocking(tell);
    starts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::time::sleep;

    type Seen = Arc<Mutex<Vec<(bool, Duration)>>>;

    fn recorder() -> (Seen, impl Fn(Ran<()>, Duration) + Clone + Send + 'static) {
        let seen = Seen::default();
        let into = Arc::clone(&seen);
        let record = move |ran: Ran<()>, latency| {
            let done = matches!(ran, Ran::Done(()));
            into.lock().unwrap().push((done, latency));
        };
        (seen, record)
    }

    /// A server that takes one call at a time and stalls once for 300 ms.
    async fn stalls_once(number: u64) {
        if number == 100 {
            sleep(Duration::from_millis(300)).await;
        }
    }

    fn slow(seen: &Seen) -> usize {
        let seen = seen.lock().unwrap();
        seen.iter()
            .filter(|(_, latency)| *latency >= Duration::from_millis(100))
            .count()
    }

    #[tokio::test]
    async fn what_a_stall_delays_is_slow_in_the_open_loop() {
        let (seen, record) = recorder();
        let time = Duration::from_secs(1);
        run(Pace::Open(500.0), 1, time, stalls_once, record).await;
        // Those meant to start in the first 200 ms of the stall waited at least 100 ms.
        assert!(slow(&seen) >= 100, "only {} were slow", slow(&seen));
        assert_eq!(seen.lock().unwrap().len(), 500);
    }

    #[tokio::test]
    async fn the_closed_loop_hides_the_same_stall() {
        let (seen, record) = recorder();
        let execute = async |number| {
            sleep(Duration::from_millis(1)).await;
            stalls_once(number).await;
        };
        run(
            Pace::Closed,
            1,
            Duration::from_secs(1),
            move |number| Box::pin(execute(number)),
            record,
        )
        .await;
        assert!(slow(&seen) <= 20, "{} were slow", slow(&seen));
    }

    #[tokio::test]
    async fn what_never_had_its_turn_is_recorded_with_how_long_it_waited() {
        let (seen, record) = recorder();
        let execute = |_| sleep(Duration::from_secs(2));
        run(Pace::Open(100.0), 1, Duration::from_millis(500), execute, record).await;
        let seen = seen.lock().unwrap();
        assert_eq!(
            (seen.len(), seen.iter().filter(|(done, _)| *done).count()),
            (50, 1)
        );
        assert!(seen.iter().all(|(_, latency)| *latency >= Duration::from_secs(1)));
    }

    #[tokio::test]
    async fn no_more_than_asked_for_are_under_way() {
        let (under_way, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (now, peak) = (Arc::clone(&under_way), Arc::clone(&most));
        let execute = move |_| {
            let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
            async move {
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(Duration::from_millis(5)).await;
                now.fetch_sub(1, Ordering::SeqCst);
            }
        };
        run(Pace::Closed, 8, Duration::from_millis(100), execute, |_, _| ()).await;
        assert_eq!(most.load(Ordering::SeqCst), 8);
        assert_eq!(under_way.load(Ordering::SeqCst), 0);
    }
}
