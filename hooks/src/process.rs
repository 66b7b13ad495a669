//! The one place that starts processes, for hooks and for tools. [`Processes::run`] runs one to its end within bounds;
//! [`Processes::start`] starts one that is talked to while it runs.
//!
//! Nothing a process does holds us up or outlives its deadline. Its pipes are always drained, and kept to a bound, while
//! standard input is written. It leads a process group of its own. At the deadline, when its future is dropped, and when it
//! ends (unless `detach`), its whole family is killed:
//!
//! - On Linux we are the subreaper of all we start: whoever leaves the group or the session, or loses its parent, still
//!   hangs below the process or comes back to us as an orphan. Such an orphan is told apart by its process group, by the
//!   variable `HOOKGATE_PROCESS_ID` in its environment, and if it has neither, by its birth: it is ended with the last
//!   process that can have started it. Members are looked for until none is left. What we have adopted, we reap. What other
//!   code in this process starts is left alone, as long as it stays in our session.
//! - Elsewhere (macOS) the family is the process group: what left it with `setsid` survives.
//!
//! Out of reach everywhere: what another service starts on request (`at`, `systemd-run`, a container engine), a process of
//! another user (`sudo`). When the gateway itself is killed with SIGKILL they run on, until its next start ends them
//! ([`end_leftovers`]).

mod background;
mod capture;
mod child;
mod family;
mod spec;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout_at};

pub use background::{Background, Ended, Unread};
pub use capture::{Captured, Keep, cut_text_after, cut_text_before, note};
pub use child::{Exit, StartError};
pub use family::{MARK, end_leftovers};
pub use spec::{INHERITED, Spec, find_program};

use capture::Capture;
use child::{Child, Pipes};

/// What is read from a pipe at once: as much as it holds.
const CHUNK: usize = 64 * 1024;
/// How long we listen to a process that has ended, when somebody else still holds its pipe and says nothing.
const SILENCE: Duration = Duration::from_millis(250);
/// And when somebody does.
const LONGEST_LINGER: Duration = Duration::from_secs(2);
/// Orphans that end together are reaped together.
const REAP_PAUSE: Duration = Duration::from_millis(100);

/// Starts processes, a bounded number at a time. Clones share the bound.
#[derive(Debug, Clone)]
pub struct Processes {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    places: Arc<Semaphore>,
    limit: usize,
    /// Reaps adopted orphans.
    reaper: OnceLock<JoinHandle<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(reaper) = self.reaper.get() {
            reaper.abort();
        }
    }
}

/// A process that has ended.
#[derive(Debug)]
pub struct Finished {
    /// How.
    pub exit: Exit,
    /// Whether it was ended at its deadline.
    pub timed_out: bool,
    /// What it printed, with standard error where [`Spec::merged`].
    pub stdout: Captured,
    /// What it printed on standard error.
    pub stderr: Captured,
    /// From its start to its end.
    pub duration: Duration,
}

impl Processes {
    /// At most `limit` (at least one) run at a time.
    pub fn new(limit: usize) -> Self {
        let limit = limit.clamp(1, Semaphore::MAX_PERMITS);
        Self { inner: Arc::new(Inner { places: Arc::new(Semaphore::new(limit)), limit, reaper: OnceLock::new() }) }
    }

    /// Runs a process to its end, or to its deadline. Waits for a free place first, in order of arrival. Dropping the
    /// future kills the process and all it started.
    ///
    /// # Errors
    /// When it does not start. How it ends is no error.
    pub async fn run(&self, mut spec: Spec) -> Result<Finished, StartError> {
        let place = Arc::clone(&self.inner.places).acquire_owned().await.map_err(|_| StartError::NoPlace(0))?;
        self.adopt();
        let input = spec.stdin.take();
        let (deadline, grace) = (spec.deadline, spec.grace);
        let (mut stdout, mut stderr) = (Capture::new(spec.stdout), Capture::new(spec.stderr));
        let (mut child, pipes) = Child::start(spec, input.is_some(), place).await?;

        let deadline = later(child.started, deadline);
        let mut pumps =
            Pumps::new(pipes, input.unwrap_or_default(), |bytes| stdout.push(bytes), |bytes| stderr.push(bytes));
        let (exit, timed_out) = match pumps.during(timeout_at(deadline, child.wait())).await {
            Ok(exit) => (exit, false),
            Err(_) => (pumps.during(child.stop(grace)).await, true),
        };
        let duration = child.started.elapsed();
        pumps.linger().await;
        drop(pumps);
        child.end().await;
        Ok(Finished { exit, timed_out, stdout: stdout.finish(), stderr: stderr.finish(), duration })
    }

    /// Starts a process that is talked to while it runs; the last `unread_limit` bytes of what it says wait to be read.
    /// It is ended at the deadline of `spec`, and with what is returned here.
    ///
    /// # Errors
    /// When it does not start, or no place is free: this does not wait for one.
    pub async fn start(&self, spec: Spec, unread_limit: usize) -> Result<Background, StartError> {
        let place =
            Arc::clone(&self.inner.places).try_acquire_owned().map_err(|_| StartError::NoPlace(self.inner.limit))?;
        self.adopt();
        let (deadline, grace) = (spec.deadline, spec.grace);
        let (child, pipes) = Child::start(spec, true, place).await?;
        let deadline = later(child.started, deadline);
        Ok(Background::attend(child, pipes, unread_limit, deadline, grace))
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.inner.limit - self.inner.places.available_permits()
    }

    /// From now on orphans that come back to us are reaped when they end.
    fn adopt(&self) {
        self.inner.reaper.get_or_init(|| {
            tokio::spawn(async {
                let Ok(mut ended) = signal(SignalKind::child()) else { return };
                while ended.recv().await.is_some() {
                    sleep(REAP_PAUSE).await;
                    let _ = spawn_blocking(family::reap).await;
                }
            })
        });
    }
}

/// A moment that may be as far away as anybody likes.
fn later(start: Instant, after: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
    start + after.min(FAR)
}

type Pump<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// What goes on at the pipes of a process while something else is waited for.
struct Pumps<'a> {
    /// Until both streams have ended.
    reads: Option<Pump<'a>>,
    /// Until everything is written, or nobody reads.
    feed: Option<Pump<'a>>,
    heard: Arc<AtomicBool>,
}

impl<'a> Pumps<'a> {
    fn new(
        pipes: Pipes,
        input: Vec<u8>,
        stdout: impl FnMut(&[u8]) + Send + 'a,
        stderr: impl FnMut(&[u8]) + Send + 'a,
    ) -> Self {
        let heard = Arc::new(AtomicBool::new(false));
        let (heard_out, heard_err) = (Arc::clone(&heard), Arc::clone(&heard));
        let reads = async move {
            let rest = async {
                if let Some(pipe) = pipes.stderr {
                    drain(pipe, &heard_err, stderr).await;
                }
            };
            tokio::join!(drain(pipes.stdout, &heard_out, stdout), rest);
        };
        let feed = async move {
            if let Some(mut pipe) = pipes.stdin {
                // Who does not read it has no use for it.
                let _ = pipe.write_all(&input).await;
            }
        };
        Self { reads: Some(Box::pin(reads)), feed: Some(Box::pin(feed)), heard }
    }

    /// Waits for `work`, and keeps the pipes going.
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                () = finished(&mut self.reads) => {}
                () = finished(&mut self.feed) => {}
                done = &mut work => return done,
            }
        }
    }

    /// Reads what an ended process has left in the pipe. Somebody who still holds the other end (a process it left behind)
    /// is listened to for a moment.
    async fn linger(&mut self) {
        let until = Instant::now() + LONGEST_LINGER;
        while let Some(reads) = &mut self.reads {
            self.heard.store(false, Ordering::Relaxed);
            tokio::select! {
                biased;
                () = reads => return,
                () = sleep(SILENCE) => {}
            }
            if !self.heard.load(Ordering::Relaxed) || Instant::now() >= until {
                return;
            }
        }
    }
}

/// Runs a pump to its end, once; then never returns.
async fn finished(pump: &mut Option<Pump<'_>>) {
    match pump {
        Some(running) => running.await,
        None => return std::future::pending().await,
    }
    *pump = None;
}

/// Reads a stream to its end.
async fn drain(mut pipe: pipe::Receiver, heard: &AtomicBool, mut push: impl FnMut(&[u8])) {
    let mut chunk = vec![0; CHUNK];
    loop {
        match pipe.read(&mut chunk).await {
            Ok(0) => return,
            Ok(count) => {
                heard.store(true, Ordering::Relaxed);
                push(&chunk[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
