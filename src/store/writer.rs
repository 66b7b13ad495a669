//! The one writer. Callers hand it work; it takes what is waiting into one transaction, so that many callers share one
//! wait for the disk, and answers them after the commit. A single caller never waits for others to come.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::driver::{self, Conn, Fault, Place};
use super::ids::Ids;
use super::queries::{deliveries, inbox};
use super::{Admission, DeliveryAdmission, Failure, StoreError, repair};
use crate::clock::Clock;

/// The most that share a transaction.
const GROUP: usize = 256;
/// Callers beyond this many wait before they are queued.
const QUEUE: usize = 1024;
/// How long a busy database is tried again.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(25);

/// What work may use: the open transaction, the time and the sequence of ids.
pub(super) struct Tx {
    pub(super) conn: Conn,
    clock: Clock,
    ids: Arc<Ids>,
}

impl Tx {
    /// Unix milliseconds.
    pub(super) fn now(&self) -> i64 {
        self.clock.now()
    }

    /// The next id of the sequence.
    pub(super) fn next_id(&self) -> i64 {
        self.ids.next(self.clock.now())
    }

    /// The largest id given so far.
    pub(super) fn last_id(&self) -> i64 {
        self.ids.last()
    }
}

/// Work on the database. It may run more than once: another's failure rolls the shared transaction back.
pub(super) type Work<A, T> = for<'t> fn(&'t mut Tx, &'t A) -> BoxFuture<'t, Result<T, Failure>>;

/// Where callers hand in their work.
#[derive(Debug)]
pub(super) struct Writer {
    messages_tx: mpsc::Sender<Message>,
    commits: Arc<AtomicU64>,
}

enum Message {
    Job(Job),
    Close(oneshot::Sender<()>),
}

/// What is written most often is stored many rows at a time; the rest is done one by one. Always in the order it came.
enum Job {
    Message(Box<Asked<inbox::Offer, Admission>>),
    Delivery(Box<Asked<deliveries::Offer, DeliveryAdmission>>),
    Other(Box<dyn Other>),
}

struct Asked<A, T> {
    args: A,
    result: Option<T>,
    answer_tx: oneshot::Sender<Result<T, StoreError>>,
}

impl<A, T> Asked<A, T> {
    fn answer(self, outcome: Result<(), StoreError>) {
        let missing = || StoreError::Internal("work without a result".to_owned());
        // A caller that went away does not undo its work.
        let _ = self.answer_tx.send(outcome.and_then(|()| self.result.ok_or_else(missing)));
    }
}

struct Single<A, T> {
    asked: Asked<A, T>,
    work: Work<A, T>,
}

trait Other: Send {
    fn run<'j>(&'j mut self, tx: &'j mut Tx) -> BoxFuture<'j, Result<(), Failure>>;
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
}

impl<A: Send + Sync, T: Send> Other for Single<A, T> {
    fn run<'j>(&'j mut self, tx: &'j mut Tx) -> BoxFuture<'j, Result<(), Failure>> {
        Box::pin(async move {
            self.asked.result = Some((self.work)(tx, &self.asked.args).await?);
            Ok(())
        })
    }

    fn answer(self: Box<Self>, outcome: Result<(), StoreError>) {
        self.asked.answer(outcome);
    }
}

impl Job {
    fn answer(self, outcome: Result<(), StoreError>) {
        match self {
            Self::Message(asked) => asked.answer(outcome),
            Self::Delivery(asked) => asked.answer(outcome),
            Self::Other(other) => other.answer(outcome),
        }
    }
}

impl Writer {
    /// Starts the writer on an open connection.
    pub(super) fn start(place: Place, conn: Conn, clock: Clock, ids: Arc<Ids>) -> Self {
        let (messages_tx, messages_rx) = mpsc::channel(QUEUE);
        let commits = Arc::new(AtomicU64::new(0));
        let tx = Some(Tx { conn, clock: clock.clone(), ids: Arc::clone(&ids) });
        tokio::spawn(Task { place, clock, ids, tx, commits: Arc::clone(&commits) }.run(messages_rx));
        Self { messages_tx, commits }
    }

    /// Runs `work` in a transaction; when this returns, it is on disk. The work is done even when the caller goes away.
    pub(super) async fn write<A, T>(&self, args: A, work: Work<A, T>) -> Result<T, StoreError>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.ask(args, |asked| Job::Other(Box::new(Single { asked, work }))).await
    }

    /// Stores a message, together with others that come now.
    pub(super) async fn accept(&self, offer: inbox::Offer) -> Result<Admission, StoreError> {
        self.ask(offer, |asked| Job::Message(Box::new(asked))).await
    }

    /// Takes a delivery, together with others that come now.
    pub(super) async fn accept_delivery(&self, offer: deliveries::Offer) -> Result<DeliveryAdmission, StoreError> {
        self.ask(offer, |asked| Job::Delivery(Box::new(asked))).await
    }

    async fn ask<A, T>(&self, args: A, job: impl FnOnce(Asked<A, T>) -> Job) -> Result<T, StoreError> {
        let closed = || StoreError::Unavailable("the store is closed".to_owned());
        let (answer_tx, answer_rx) = oneshot::channel();
        let message = Message::Job(job(Asked { args, result: None, answer_tx }));
        self.messages_tx.send(message).await.map_err(|_| closed())?;
        answer_rx.await.map_err(|_| closed())?
    }

    /// How many transactions were committed.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Does what is queued, then closes the connection.
    pub(super) async fn close(&self) {
        let (done_tx, done_rx) = oneshot::channel();
        if self.messages_tx.send(Message::Close(done_tx)).await.is_ok() {
            let _ = done_rx.await;
        }
    }
}

struct Task {
    place: Place,
    clock: Clock,
    ids: Arc<Ids>,
    /// `None` after a failure that leaves the connection in doubt: it is opened again for the next work.
    tx: Option<Tx>,
    commits: Arc<AtomicU64>,
}

impl Task {
    async fn run(mut self, mut messages_rx: mpsc::Receiver<Message>) {
        let mut messages = Vec::with_capacity(GROUP);
        let mut closing = Vec::new();
        // After a close the queue is still emptied: `recv_many` gives 0 once it is.
        while messages_rx.recv_many(&mut messages, GROUP).await > 0 {
            let mut jobs = Vec::with_capacity(messages.len());
            for message in messages.drain(..) {
                match message {
                    Message::Job(job) => jobs.push(job),
                    Message::Close(done_tx) => {
                        messages_rx.close();
                        closing.push(done_tx);
                    }
                }
            }
            self.settle(jobs).await;
        }
        if let Some(tx) = self.tx.take() {
            driver::close(tx.conn).await;
        }
        for done_tx in closing {
            let _ = done_tx.send(());
        }
    }

    /// Does the work and answers. When the group fails, each is tried alone, so that one does not spoil the others.
    async fn settle(&mut self, mut jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let deadline = Instant::now() + PATIENCE;
        let group = self.commit(&mut jobs, deadline).await;
        match group {
            Ok(()) => jobs.into_iter().for_each(|job| job.answer(Ok(()))),
            Err(failure) if jobs.len() == 1 => jobs.into_iter().for_each(|job| job.answer(Err(self.report(&failure)))),
            Err(failure) => {
                let mut stuck = is_busy(&failure).then_some(failure);
                for mut job in jobs {
                    if let Some(failure) = &stuck {
                        job.answer(Err(self.report(failure)));
                        continue;
                    }
                    match self.commit(slice::from_mut(&mut job), deadline).await {
                        Ok(()) => job.answer(Ok(())),
                        Err(failure) => {
                            job.answer(Err(self.report(&failure)));
                            stuck = is_busy(&failure).then_some(failure);
                        }
                    }
                }
            }
        }
    }

    /// One transaction over all of `jobs`, tried again while another process writes.
    async fn commit(&mut self, jobs: &mut [Job], deadline: Instant) -> Result<(), Failure> {
        loop {
            match self.try_commit(jobs).await {
                Err(failure) if is_busy(&failure) && Instant::now() < deadline => sleep(PAUSE).await,
                Ok(()) => {
                    self.commits.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn try_commit(&mut self, jobs: &mut [Job]) -> Result<(), Failure> {
        let mut tx = match self.tx.take() {
            Some(tx) => tx,
            None => {
                Tx { conn: self.place.connect_writer().await?, clock: self.clock.clone(), ids: Arc::clone(&self.ids) }
            }
        };
        match transaction(&mut tx, jobs).await {
            Ok(()) => {
                self.tx = Some(tx);
                Ok(())
            }
            Err(failure) => {
                if roll_back(&mut tx, &failure).await {
                    self.tx = Some(tx);
                } else {
                    driver::close(tx.conn).await;
                }
                Err(failure)
            }
        }
    }

    /// Turns a failure into the caller's error, and leaves word for the next start when the file is damaged.
    fn report(&self, failure: &Failure) -> StoreError {
        let error = failure.to_store_error();
        if matches!(error, StoreError::Damaged(_)) {
            repair::leave_mark(self.place.check_mark());
        }
        error
    }
}

async fn transaction(tx: &mut Tx, mut jobs: &mut [Job]) -> Result<(), Failure> {
    sqlx::query(driver::BEGIN).execute(&mut tx.conn).await?;
    while !jobs.is_empty() {
        let done = run_first(tx, jobs).await?;
        jobs = &mut jobs[done..];
    }
    sqlx::query("commit").execute(&mut tx.conn).await?;
    Ok(())
}

/// Runs the first job, and with it those after it of its kind that go together; how many.
async fn run_first(tx: &mut Tx, jobs: &mut [Job]) -> Result<usize, Failure> {
    match jobs.first_mut() {
        None => return Ok(0),
        Some(Job::Other(other)) => {
            other.run(tx).await?;
            return Ok(1);
        }
        Some(Job::Message(_) | Job::Delivery(_)) => {}
    }
    let mut messages: Vec<_> = jobs
        .iter_mut()
        .map_while(|job| if let Job::Message(asked) = job { Some(&mut **asked) } else { None })
        .collect();
    if !messages.is_empty() {
        let offers: Vec<_> = messages.iter().map(|asked| &asked.args).collect();
        let answers = inbox::accept(tx, &offers).await?;
        return Ok(hand_out(&mut messages, answers));
    }
    let mut taken: Vec<_> = jobs
        .iter_mut()
        .map_while(|job| if let Job::Delivery(asked) = job { Some(&mut **asked) } else { None })
        .collect();
    let offers: Vec<_> = taken.iter().map(|asked| &asked.args).collect();
    let answers = deliveries::accept(tx, &offers).await?;
    Ok(hand_out(&mut taken, answers))
}

/// Gives each its result; how many there were.
fn hand_out<A, T>(asked: &mut [&mut Asked<A, T>], answers: Vec<T>) -> usize {
    for (asked, answer) in asked.iter_mut().zip(answers) {
        asked.result = Some(answer);
    }
    asked.len()
}

/// Undoes what the failed transaction did; whether the connection can be used on.
async fn roll_back(tx: &mut Tx, failure: &Failure) -> bool {
    let undone = sqlx::query("rollback").execute(&mut tx.conn).await;
    // A transaction that never began, or that the database has undone by itself, cannot be undone again.
    undone.map_or_else(|error| driver::fault(&error) == Fault::Defect, |_| true) && failure.keeps_connection()
}

fn is_busy(failure: &Failure) -> bool {
    matches!(failure, Failure::Sql(error) if driver::fault(error) == Fault::Busy)
}
