//! The one writer. Callers hand it work; it takes what is waiting into one transaction, so that many callers share one
//! wait for the disk, and answers them after the commit. A single caller never waits for others to come.
//!
//! A server can go away. Work that was certainly not committed is done again on a new connection for a few seconds, then
//! refused. Work whose commit was not answered is neither repeated nor refused before a new connection has told what
//! became of it, however long that takes.

use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::driver::{self, Conn, Place};
use super::explain;
use super::queries::{deliveries, inbox};
use crate::clock::Clock;
use crate::store::ids::Ids;
use crate::store::{Admission, DeliveryAdmission, Failure, Fault, StoreError};

/// The most that share a transaction.
const GROUP: usize = 256;
/// Callers beyond this many wait before they are queued.
const QUEUE: usize = 1024;
/// How long a busy database is tried again.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(25);
/// How long those who come wait for a server that has gone away; then they are told.
const GRACE: Duration = Duration::from_secs(3);
/// How often work is done again whose commit was not answered and had not happened.
const ATTEMPTS: u32 = 3;
/// The longest pause between two attempts to reach it.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

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
    pub(super) async fn start(place: Place, conn: Conn, clock: Clock, ids: Arc<Ids>) -> Self {
        let (messages_tx, messages_rx) = mpsc::channel(QUEUE);
        let commits = Arc::new(AtomicU64::new(0));
        let tx = Some(Tx { conn, clock: clock.clone(), ids: Arc::clone(&ids) });
        let opened = place.identity().await;
        let link = Link { place, opened, clock, ids, tx, outage: None };
        tokio::spawn(Task { link, messages_rx, closing: Vec::new(), commits: Arc::clone(&commits) }.run());
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
    link: Link,
    messages_rx: mpsc::Receiver<Message>,
    /// Who waits for the end.
    closing: Vec<oneshot::Sender<()>>,
    commits: Arc<AtomicU64>,
}

/// How a transaction came to grief.
enum Broken {
    /// Nothing of it will be found in the database.
    Undone(Failure),
    /// The commit was not answered. The transaction is known by its number.
    Unanswered(i64),
}

impl Task {
    async fn run(mut self) {
        let mut messages = Vec::with_capacity(GROUP);
        // After a close the queue is still emptied: `recv_many` gives 0 once it is.
        while self.messages_rx.recv_many(&mut messages, GROUP).await > 0 {
            let mut jobs = Vec::with_capacity(messages.len());
            for message in messages.drain(..) {
                match message {
                    Message::Job(job) => jobs.push(job),
                    Message::Close(done_tx) => {
                        self.messages_rx.close();
                        self.closing.push(done_tx);
                    }
                }
            }
            self.settle(jobs).await;
        }
        if let Some(tx) = self.link.tx.take() {
            driver::close(tx.conn).await;
        }
        for done_tx in self.closing {
            let _ = done_tx.send(());
        }
    }

    /// Does the work and answers. When the group fails, each is tried alone, so that one does not spoil the others.
    async fn settle(&mut self, mut jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        if let Some(why) = self.link.refusal() {
            return jobs.into_iter().for_each(|job| job.answer(Err(why.clone())));
        }
        let begun = Instant::now();
        let Err(failure) = self.commit(&mut jobs, begun).await else {
            return jobs.into_iter().for_each(|job| job.answer(Ok(())));
        };
        // What all came to grief on is not tried with each.
        let mut stuck = (jobs.len() == 1 || is_of_all(&failure)).then(|| self.report(&failure));
        for mut job in jobs {
            if let Some(error) = &stuck {
                job.answer(Err(error.clone()));
                continue;
            }
            match self.commit(slice::from_mut(&mut job), begun).await {
                Ok(()) => job.answer(Ok(())),
                Err(failure) => {
                    let is_of_all = is_of_all(&failure);
                    let error = self.report(&failure);
                    stuck = is_of_all.then(|| error.clone());
                    job.answer(Err(error));
                }
            }
        }
    }

    /// One transaction over all of `jobs`, tried again while another process writes or the server is away for a moment.
    async fn commit(&mut self, jobs: &mut [Job], begun: Instant) -> Result<(), Failure> {
        let mut unanswered = 0;
        loop {
            let failure = match self.link.transaction(jobs).await {
                Ok(()) => break,
                Err(Broken::Undone(failure)) => failure,
                Err(Broken::Unanswered(number)) => {
                    if self.was_committed(number).await? {
                        break;
                    }
                    unanswered += 1;
                    if unanswered < ATTEMPTS {
                        continue;
                    }
                    let place = &self.link.place;
                    let why = format!("the connection to {place} breaks at every commit");
                    return Err(Failure::Refused(StoreError::Unavailable(why)));
                }
            };
            let patience = match fault_of(&failure) {
                Some(Fault::Busy) => PATIENCE,
                Some(Fault::Away) if !self.link.is_long_away() => GRACE,
                _ => return Err(failure),
            };
            if begun.elapsed() >= patience {
                return Err(failure);
            }
            sleep(PAUSE).await;
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a transaction was committed, which only the database can tell: waits for it, and refuses who comes
    /// meanwhile. An error when it is not to be known in this process.
    async fn was_committed(&mut self, number: i64) -> Result<bool, Failure> {
        let grace = Instant::now() + GRACE;
        let away = StoreError::Unavailable(format!("the connection to {} broke and is not back yet", self.link.place));
        let mut asked = pin!(self.link.was_committed(number));
        loop {
            let message = tokio::select! {
                answer = &mut asked => return answer,
                message = async { sleep_until(grace).await; self.messages_rx.recv().await } => message,
            };
            match message {
                Some(Message::Job(job)) => job.answer(Err(away.clone())),
                Some(Message::Close(done_tx)) => {
                    self.messages_rx.close();
                    self.closing.push(done_tx);
                }
                None => return Err(Failure::Refused(away)),
            }
        }
    }

    /// Turns a failure into the caller's error, and leaves word for the next start when the file is damaged.
    fn report(&self, failure: &Failure) -> StoreError {
        let error = explain(&self.link.place, failure);
        if matches!(error, StoreError::Damaged(_)) {
            self.link.place.note_damage();
        }
        error
    }
}

/// The connection that writes, which is opened again when it broke.
struct Link {
    place: Place,
    /// What was opened, to notice when another takes its place.
    opened: Option<(u64, u64)>,
    clock: Clock,
    ids: Arc<Ids>,
    /// `None` after a failure that leaves the connection in doubt.
    tx: Option<Tx>,
    /// Since an attempt to open it failed.
    outage: Option<Outage>,
}

/// The time in which there is no connection.
struct Outage {
    since: Instant,
    pause: Duration,
    next_attempt: Instant,
    why: StoreError,
}

impl Link {
    async fn transaction(&mut self, jobs: &mut [Job]) -> Result<(), Broken> {
        // A file that was deleted can still be written, and all of it is lost with the process.
        if self.place.identity().await != self.opened {
            let why = format!(
                "{} was deleted or replaced while it was in use; put it back, or restart hookgate to go on with what is \
                 there now",
                self.place
            );
            return Err(Broken::Undone(Failure::Refused(StoreError::Unavailable(why))));
        }
        let mut tx = self.connected().await.map_err(Broken::Undone)?;
        let done = transaction(&mut tx, jobs).await;
        let keeps = match &done {
            Ok(()) => true,
            Err(Broken::Undone(failure)) => keeps_connection(failure) && roll_back(&mut tx).await,
            Err(Broken::Unanswered(_)) => false,
        };
        if keeps {
            self.tx = Some(tx);
        } else {
            driver::give_up(tx.conn).await;
        }
        done
    }

    async fn was_committed(&mut self, number: i64) -> Result<bool, Failure> {
        loop {
            match self.connected().await {
                Ok(mut tx) => {
                    if let Ok(is_committed) = driver::in_time(driver::is_committed(&mut tx.conn, number)).await {
                        self.tx = Some(tx);
                        return Ok(is_committed);
                    }
                    driver::give_up(tx.conn).await;
                }
                Err(Failure::Refused(error @ StoreError::Lost(_))) => return Err(error.into()),
                Err(_) => {}
            }
            sleep(PAUSE).await;
        }
    }

    /// The open connection, or a new one. The longer attempts fail, the longer it is until the next.
    async fn connected(&mut self) -> Result<Tx, Failure> {
        if let Some(tx) = self.tx.take() {
            return Ok(tx);
        }
        if let Some(outage) = &self.outage {
            sleep_until(outage.next_attempt).await;
        }
        match self.place.connect_writer().await {
            Ok(conn) => {
                if self.outage.take().is_some() {
                    tracing::info!(database = %self.place, "The connection to the database is back.");
                }
                Ok(Tx { conn, clock: self.clock.clone(), ids: Arc::clone(&self.ids) })
            }
            Err(failure) if fault_of(&failure) == Some(Fault::Busy) => Err(failure),
            Err(failure) => {
                let now = Instant::now();
                let why = explain(&self.place, &failure);
                let (since, pause) = match &self.outage {
                    Some(outage) => (outage.since, (outage.pause * 2).min(LONGEST_PAUSE)),
                    None => {
                        tracing::warn!(error = %why, "There is no connection to the database; it is tried again.");
                        (now, PAUSE)
                    }
                };
                self.outage = Some(Outage { since, pause, next_attempt: now + pause, why });
                Err(failure)
            }
        }
    }

    /// Whether those who come now would wait in vain.
    fn is_long_away(&self) -> bool {
        self.outage.as_ref().is_some_and(|outage| outage.since.elapsed() >= GRACE)
    }

    /// Why nothing is tried at this moment.
    fn refusal(&self) -> Option<StoreError> {
        let outage = self.outage.as_ref().filter(|outage| Instant::now() < outage.next_attempt)?;
        self.is_long_away().then(|| outage.why.clone())
    }
}

async fn transaction(tx: &mut Tx, jobs: &mut [Job]) -> Result<(), Broken> {
    work(tx, jobs).await.map_err(Broken::Undone)?;
    let number = tx.next_id();
    driver::in_time(driver::commit(&mut tx.conn, number)).await.map_err(|error| {
        if driver::is_in_doubt(&error) { Broken::Unanswered(number) } else { Broken::Undone(error.into()) }
    })
}

async fn work(tx: &mut Tx, mut jobs: &mut [Job]) -> Result<(), Failure> {
    driver::begin(&mut tx.conn).await?;
    while !jobs.is_empty() {
        let done = driver::in_time(run_first(tx, jobs)).await?;
        jobs = &mut jobs[done..];
    }
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
async fn roll_back(tx: &mut Tx) -> bool {
    let undone = driver::in_time(sqlx::query("rollback").execute(&mut tx.conn)).await;
    // A transaction that never began, or that the database has undone by itself, cannot be undone again.
    undone.map_or_else(|error| driver::fault(&error) == Fault::Defect, |_| true)
}

fn fault_of(failure: &Failure) -> Option<Fault> {
    match failure {
        Failure::Sql(error) => Some(driver::fault(error)),
        Failure::Defect(_) | Failure::Refused(_) => None,
    }
}

fn keeps_connection(failure: &Failure) -> bool {
    match failure {
        Failure::Sql(error) => driver::keeps_connection(error),
        Failure::Defect(_) | Failure::Refused(_) => true,
    }
}

/// Whether it is the database's state and not the work that failed.
fn is_of_all(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(_)) || matches!(fault_of(failure), Some(Fault::Busy | Fault::Away))
}
