//! A process that is talked to while it runs: [`Background`].

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::capture::Ring;
use super::child::{Child, Pipes};
use super::{Exit, Pumps};

/// A process in the background. Dropped, it is killed with all it started.
#[derive(Debug)]
pub struct Background {
    shared: Arc<Shared>,
    stdin: tokio::sync::Mutex<Option<pipe::Sender>>,
    task: JoinHandle<()>,
    started: Instant,
}

#[derive(Debug)]
struct Shared {
    unread: Mutex<Ring>,
    ended: watch::Sender<Option<Ended>>,
    stop: Notify,
}

/// How a process in the background ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub exit: Exit,
    /// Whether it was ended at its deadline.
    pub timed_out: bool,
    /// Whether it was ended by [`Background::kill`].
    pub killed: bool,
    /// From its start to its end.
    pub duration: Duration,
}

/// What a process has said and nobody has read.
#[derive(Debug)]
pub struct Unread<'a> {
    /// Both streams as they came.
    pub bytes: &'a [u8],
    /// How many bytes before them were lost, because nobody read them in time.
    pub lost: u64,
    /// Whether nothing will follow.
    pub is_complete: bool,
}

impl Shared {
    fn unread(&self) -> MutexGuard<'_, Ring> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Background {
    pub(super) fn attend(child: Child, pipes: Pipes, unread_limit: usize, deadline: Instant, grace: Duration) -> Self {
        let unread = Mutex::new(Ring::new(unread_limit));
        let shared = Arc::new(Shared { unread, ended: watch::Sender::new(None), stop: Notify::new() });
        let started = child.started;
        let Pipes { stdin, stdout, stderr } = pipes;
        let pipes = Pipes { stdin: None, stdout, stderr };
        let task = tokio::spawn(attend(child, pipes, Arc::clone(&shared), deadline, grace));
        Self { shared, stdin: tokio::sync::Mutex::new(stdin), task, started }
    }

    /// How it ended, once it has, and everything it said is there to be read.
    pub fn ended(&self) -> Option<Ended> {
        *self.shared.ended.borrow()
    }

    /// Waits until it has ended.
    pub async fn wait(&self) -> Ended {
        let mut ended = self.shared.ended.subscribe();
        match ended.wait_for(Option::is_some).await.map(|ended| *ended) {
            Ok(Some(ended)) => ended,
            // The sender lives as long as we do.
            _ => std::future::pending().await,
        }
    }

    /// Since its start, or how long it ran.
    pub fn age(&self) -> Duration {
        self.ended().map_or_else(|| self.started.elapsed(), |ended| ended.duration)
    }

    /// How many bytes nobody has read.
    pub fn unread(&self) -> usize {
        self.shared.unread().len()
    }

    /// Shows what is unread to `read`, which says how much of it is read now.
    pub fn read<T>(&self, read: impl FnOnce(Unread<'_>) -> (usize, T)) -> T {
        // Before the bytes: what arrives in between is then read the next time.
        let is_complete = self.ended().is_some();
        let mut ring = self.shared.unread();
        let (bytes, lost) = ring.bytes();
        let (count, result) = read(Unread { bytes, lost, is_complete });
        ring.consume(count);
        result
    }

    /// Writes to its standard input, for at most `patience`. How much it took.
    ///
    /// # Errors
    /// When its standard input is closed.
    pub async fn write(&self, bytes: &[u8], patience: Duration) -> io::Result<usize> {
        let mut written = 0;
        let writing = async {
            let mut stdin = self.stdin.lock().await;
            let Some(pipe) = stdin.as_mut() else { return Err(io::ErrorKind::BrokenPipe.into()) };
            while written < bytes.len() {
                written += pipe.write(&bytes[written..]).await?;
            }
            Ok(())
        };
        match timeout(patience, writing).await {
            Ok(Err(error)) if written == 0 => Err(error),
            _ => Ok(written),
        }
    }

    /// Closes its standard input: it reads the end.
    pub async fn close_stdin(&self) {
        *self.stdin.lock().await = None;
    }

    /// Ends it with all it started, SIGTERM first, and waits until it is gone.
    pub async fn kill(&self) -> Ended {
        self.shared.stop.notify_one();
        self.wait().await
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Drops the child, which kills its family.
        self.task.abort();
    }
}

async fn attend(mut child: Child, pipes: Pipes, shared: Arc<Shared>, deadline: Instant, grace: Duration) {
    let push = |bytes: &[u8]| shared.unread().push(bytes);
    let mut pumps = Pumps::new(pipes, Vec::new(), push, push);
    let (mut killed, mut timed_out) = (false, false);
    let by_itself = async {
        tokio::select! {
            exit = child.wait() => return Some(exit),
            () = shared.stop.notified() => killed = true,
            () = sleep_until(deadline) => timed_out = true,
        }
        None
    };
    let exit = match pumps.during(by_itself).await {
        Some(exit) => exit,
        None => pumps.during(child.stop(grace)).await,
    };
    let duration = child.started.elapsed();
    pumps.linger().await;
    drop(pumps);
    child.end().await;
    shared.ended.send_replace(Some(Ended { exit, timed_out, killed, duration }));
}
