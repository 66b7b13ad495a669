//! One registered hook: its queue of events to be told, its counters, and the one place where it is called.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::{Answers, Directive, Event, Hook, HookError, HookKind};

/// A hook that has not answered within its deadline so often, one call after the other, is paused.
const LATE_IN_A_ROW: u32 = 10;
/// Of so many of its last calls it is known how long they took.
const SAMPLES: usize = 256;
/// So much of a failure is shown, in characters.
const SHOWN: usize = 400;

/// A hook, and what it has done since it was registered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HookStats {
    /// The hook.
    pub name: String,
    /// Its system.
    pub kind: HookKind,
    /// Where it was declared.
    pub source: String,
    /// What it hears of.
    pub events: Vec<String>,
    /// Whether it is asked where there is something to decide.
    pub decides: bool,
    /// Whether not answering blocks.
    pub fail_closed: bool,
    /// How long a call may take, in seconds.
    pub deadline: f64,
    /// It was late so often that it is no longer called, until it is resumed.
    pub paused: bool,
    /// When it was last called, in Unix seconds.
    pub last_run_at: Option<i64>,
    /// What went wrong last.
    pub last_failure: Option<String>,
    /// How long half of its last 256 calls took at most, in milliseconds.
    pub p50_ms: Option<f64>,
    /// The same of 95 of 100.
    pub p95_ms: Option<f64>,
    /// Times it was told or asked.
    pub calls: u64,
    /// Calls that ended in an error or a panic.
    pub failures: u64,
    /// Calls that had not ended at the deadline.
    pub timeouts: u64,
    /// Answers that could not be read or mean nothing for their event.
    pub invalid_answers: u64,
    /// Events it was never told about, because too many were waiting or the gateway stopped.
    pub dropped: u64,
    /// Events that wait, with the one it is being told.
    pub waiting: usize,
}

#[derive(Default)]
struct Counters {
    calls: AtomicU64,
    failures: AtomicU64,
    timeouts: AtomicU64,
    invalid_answers: AtomicU64,
    dropped: AtomicU64,
    /// Calls that were late, one after the other.
    late_in_a_row: AtomicU32,
    paused: AtomicBool,
}

/// What the last calls were like.
#[derive(Default)]
struct Last {
    /// In microseconds, at most [`SAMPLES`].
    took: VecDeque<u32>,
    run_at: Option<i64>,
    failure: Option<String>,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<(Event, Arc<Value>)>,
    /// The task that tells them, while there are any.
    worker: Option<AbortHandle>,
    /// Whether it is telling one, which is no longer in `events`.
    telling: bool,
    /// Whether it was said in the log that events are being dropped.
    overflowing: bool,
    closed: bool,
}

pub(super) struct Slot {
    hook: Arc<dyn Hook>,
    name: String,
    kind: HookKind,
    identity: String,
    subscriptions: Vec<String>,
    decides: bool,
    deadline: Duration,
    fail_closed: bool,
    queue_limit: usize,
    queue: Mutex<Queue>,
    idle: Notify,
    counters: Counters,
    last: Mutex<Last>,
}

impl Slot {
    pub(super) fn new(hook: Arc<dyn Hook>, queue_limit: usize) -> Self {
        Self {
            name: hook.name().to_owned(),
            kind: hook.kind(),
            identity: hook.identity(),
            subscriptions: hook.subscriptions().to_vec(),
            decides: hook.decides(),
            deadline: hook.deadline(),
            fail_closed: hook.fail_closed(),
            hook,
            queue_limit,
            queue: Mutex::default(),
            idle: Notify::new(),
            counters: Counters::default(),
            last: Mutex::default(),
        }
    }

    pub(super) fn kind(&self) -> HookKind {
        self.kind
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Lets it run again. Whether it was paused.
    pub(super) fn resume(&self) -> bool {
        self.counters.late_in_a_row.store(0, Ordering::Relaxed);
        self.counters.paused.swap(false, Ordering::Relaxed)
    }

    fn is_paused(&self) -> bool {
        self.counters.paused.load(Ordering::Relaxed)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn subscriptions(&self) -> &[String] {
        &self.subscriptions
    }

    pub(super) fn decides(&self) -> bool {
        self.decides
    }

    pub(super) fn fail_closed(&self) -> bool {
        self.fail_closed
    }

    pub(super) fn wants(&self, event: &Event, payload: &Value) -> bool {
        self.hook.wants(event, payload)
    }

    pub(super) fn stats(&self) -> HookStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut took: Vec<u32> = last.took.iter().copied().collect();
        let (run_at, failure) = (last.run_at, last.failure.clone());
        drop(last);
        took.sort_unstable();
        // The smallest value that so many of a hundred do not exceed.
        let part = |percent: usize| {
            let rank = (took.len() * percent).div_ceil(100).max(1);
            took.get(rank - 1).map(|micros| f64::from(*micros) / 1000.0)
        };
        HookStats {
            name: self.name.clone(),
            kind: self.kind,
            source: self.hook.source(),
            events: self.subscriptions.clone(),
            decides: self.decides,
            fail_closed: self.fail_closed,
            deadline: self.deadline.as_secs_f64(),
            paused: self.is_paused(),
            last_run_at: run_at,
            last_failure: failure,
            p50_ms: part(50),
            p95_ms: part(95),
            calls: read(&self.counters.calls),
            failures: read(&self.counters.failures),
            timeouts: read(&self.counters.timeouts),
            invalid_answers: read(&self.counters.invalid_answers),
            dropped: read(&self.counters.dropped),
            waiting: self.waiting(),
        }
    }

    /// Events that wait, with the one the hook is being told.
    pub(super) fn waiting(&self) -> usize {
        let queue = self.queue();
        queue.events.len() + usize::from(queue.telling)
    }

    /// Returns when nothing waits.
    pub(super) async fn idle(&self) {
        loop {
            let mut idle = std::pin::pin!(self.idle.notified());
            idle.as_mut().enable();
            if self.waiting() == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Queues an event. Never waits: if the queue is full, its oldest event is dropped.
    pub(super) fn tell(self: &Arc<Self>, event: Event, payload: Arc<Value>) {
        let mut queue = self.queue();
        if queue.closed || self.is_paused() {
            count(&self.counters.dropped, 1);
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            count(&self.counters.dropped, 1);
            tracing::error!(hook = self.name, %event, "the hook is not told: there is no runtime");
            return;
        };
        if queue.events.len() >= self.queue_limit {
            queue.events.pop_front();
            count(&self.counters.dropped, 1);
            if !std::mem::replace(&mut queue.overflowing, true) {
                tracing::warn!(
                    hook = self.name,
                    limit = self.queue_limit,
                    "the hook is too slow: the oldest events that wait for it are dropped until it has caught up"
                );
            }
        }
        queue.events.push_back((event, payload));
        if queue.worker.is_none() {
            queue.worker = Some(runtime.spawn(Arc::clone(self).tell_all()).abort_handle());
        }
    }

    async fn tell_all(self: Arc<Self>) {
        while let Some((event, payload)) = self.next() {
            let hook = Arc::clone(&self.hook);
            let told = event.clone();
            let outcome = self.call(async move { hook.observe(&told, payload).await }).await;
            if let Err(failure) = outcome {
                self.note(&event, &failure);
            }
        }
        self.idle.notify_waiters();
    }

    /// The next event to tell. After the last one the worker counts as gone.
    fn next(&self) -> Option<(Event, Arc<Value>)> {
        let mut queue = self.queue();
        let next = queue.events.pop_front();
        queue.telling = next.is_some();
        if next.is_none() {
            queue.worker = None;
            queue.overflowing = false;
        }
        next
    }

    pub(super) fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        let unheard = queue.events.len();
        queue.events.clear();
        queue.telling = false;
        if let Some(worker) = queue.worker.take() {
            worker.abort();
        }
        drop(queue);
        count(&self.counters.dropped, unheard as u64);
        self.idle.notify_waiters();
    }

    /// Asks the hook. `None` if it has no opinion, or none that counts.
    pub(super) async fn ask(&self, event: &Event, payload: Arc<Value>, answers: Answers) -> Option<Directive> {
        if self.is_paused() {
            return None;
        }
        let hook = Arc::clone(&self.hook);
        let asked = event.clone();
        let failure = match self.call(async move { hook.decide(&asked, payload).await }).await {
            Ok(None) => return None,
            Ok(Some(answer)) if answers.accepts(&answer) => return Some(answer),
            Ok(Some(answer)) => Failure::InvalidAnswer(format!("`{}` means nothing for this event", answer.kind())),
            Err(failure) => failure,
        };
        self.note(event, &failure);
        self.fail_closed.then(|| self.blocked(&failure.to_string()))
    }

    /// The outcome of a `fail_closed` hook that did not answer.
    pub(super) fn blocked(&self, why: &str) -> Directive {
        Directive::Block { reason: format!("hook `{}` did not answer: {why}", self.name) }
    }

    /// Runs one call on a task of its own, so that neither a panic nor a call that blocks its thread reaches the caller.
    async fn call<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, HookError>> + Send + 'static,
    ) -> Result<T, Failure> {
        count(&self.counters.calls, 1);
        let began = Instant::now();
        // Dropping the set aborts the call: at the deadline, and when whoever waits for it has gone.
        let mut task = JoinSet::new();
        task.spawn(call);
        let outcome = match tokio::time::timeout(self.deadline, task.join_next()).await {
            Ok(Some(Ok(Ok(outcome)))) => Ok(outcome),
            Ok(Some(Ok(Err(HookError::Failed(why))))) => Err(Failure::Failed(why)),
            Ok(Some(Ok(Err(HookError::InvalidAnswer(why))))) => Err(Failure::InvalidAnswer(why)),
            Ok(Some(Ok(Err(HookError::Late(deadline))))) => Err(Failure::Late(deadline)),
            Ok(Some(Err(error))) => Err(Failure::Failed(panic_text(error))),
            Ok(None) => Err(Failure::Failed("it was not run".to_owned())),
            Err(_) => Err(Failure::Late(self.deadline)),
        };
        self.remember(began.elapsed(), outcome.as_ref().err());
        outcome
    }

    /// Keeps what a call was like, and pauses a hook that is late again and again. One that guards is not paused: that would
    /// let pass what it is there to stop.
    fn remember(&self, took: Duration, failure: Option<&Failure>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.took.len() == SAMPLES {
            last.took.pop_front();
        }
        last.took.push_back(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        last.run_at = i64::try_from(now).ok();
        if let Some(failure) = failure {
            last.failure = Some(failure.to_string().chars().take(SHOWN).collect());
        }
        drop(last);
        if !matches!(failure, Some(Failure::Late(_))) {
            self.counters.late_in_a_row.store(0, Ordering::Relaxed);
            return;
        }
        let late = self.counters.late_in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
        if late >= LATE_IN_A_ROW && !self.fail_closed && !self.counters.paused.swap(true, Ordering::Relaxed) {
            tracing::error!(
                hook = self.name,
                source = self.hook.source(),
                "The hook was late {late} times in a row and is paused: it is neither told nor asked. Mend it, then run \
                 `hookgate hooks resume {}`.",
                self.name
            );
        }
    }

    /// Counts and logs a call that failed. The only place that does either.
    fn note(&self, event: &Event, failure: &Failure) {
        count(
            match failure {
                Failure::Failed(_) => &self.counters.failures,
                Failure::InvalidAnswer(_) => &self.counters.invalid_answers,
                Failure::Late(_) => &self.counters.timeouts,
            },
            1,
        );
        tracing::warn!(hook = self.name, %event, fail_closed = self.fail_closed, "the hook failed: {failure}");
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Failed(String),
    #[error("invalid answer: {0}")]
    InvalidAnswer(String),
    #[error("no answer within {0:?}")]
    Late(Duration),
}

fn panic_text(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "it was stopped".to_owned() };
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    match text.or_else(|| panic.downcast_ref::<String>().cloned()) {
        Some(text) => format!("it panicked: {text}"),
        None => "it panicked".to_owned(),
    }
}
