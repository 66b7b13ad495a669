//! Who is told and asked. [`Registry::emit`] tells and never waits; [`Registry::ask`] tells the observers, asks the deciding
//! hooks one after the other, and combines their answers. A hook that is slow, broken or panics costs its own deadline.

mod slot;

use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};

pub use slot::HookStats;
use slot::Slot;

use crate::event::Closeness;
use crate::payload::{PreLlmCall, PreToolCall, TELEMETRY_SCHEMA_VERSION};
use crate::{Answers, Directive, Event, Hook, HookKind, Payload, System};

/// Events waiting for one hook.
const QUEUE_LIMIT: usize = 256;

/// The hooks that are loaded, in order. Shared as `Arc<Registry>`; calls need a Tokio runtime.
pub struct Registry {
    /// How many there are; all that is read while there are none.
    registered: AtomicUsize,
    /// Replaced as a whole, so that a reader holds the lock only to copy the `Arc`.
    slots: RwLock<Arc<Vec<Arc<Slot>>>>,
    /// Hooks that were taken out and may still have events to be told.
    retired: Mutex<Vec<Weak<Slot>>>,
    /// Payloads that were written as JSON.
    payloads: AtomicU64,
    queue_limit: usize,
}

/// What a change of the set of hooks came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replaced {
    /// Hooks that were there before and stay, with what waits for them.
    pub kept: usize,
    /// New ones.
    pub added: usize,
    /// Those that hear of no further event.
    pub removed: usize,
}

impl Default for Registry {
    fn default() -> Self {
        Self::with_queue_limit(QUEUE_LIMIT)
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.slots().iter().map(|slot| slot.name())).finish()
    }
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty registry where at most `limit` events (at least one) wait for each hook.
    pub fn with_queue_limit(limit: usize) -> Self {
        Self {
            registered: AtomicUsize::new(0),
            slots: RwLock::default(),
            retired: Mutex::default(),
            payloads: AtomicU64::new(0),
            queue_limit: limit.max(1),
        }
    }

    /// Adds a hook behind those of its kind, see [`HookKind`] for the order of the kinds.
    pub fn register(&self, hook: Arc<dyn Hook>) {
        let slot = Arc::new(Slot::new(hook, self.queue_limit));
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let mut longer = Vec::clone(&slots);
        let place = longer.partition_point(|there| there.kind() <= slot.kind());
        longer.insert(place, slot);
        self.registered.store(longer.len(), Ordering::Release);
        *slots = Arc::new(longer);
    }

    /// Puts these hooks in the place of all of their kind, at once: an event is told to the set before or to the set after.
    /// A hook of the same [`identity`](Hook::identity) stays as it is, with its queue and counters; paused ones run again.
    /// Those that go are still told what waits for them, and calls under way end as they would have.
    pub fn replace(&self, kind: HookKind, hooks: Vec<Arc<dyn Hook>>) -> Replaced {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let (mut before, mut all): (Vec<_>, Vec<_>) = slots.iter().cloned().partition(|slot| slot.kind() == kind);
        let mut replaced = Replaced::default();
        let mut own = Vec::with_capacity(hooks.len());
        for hook in hooks {
            let identity = hook.identity();
            match before.iter().position(|slot| slot.identity() == identity) {
                Some(at) => {
                    let slot = before.remove(at);
                    slot.resume();
                    own.push(slot);
                    replaced.kept += 1;
                }
                None => {
                    own.push(Arc::new(Slot::new(hook, self.queue_limit)));
                    replaced.added += 1;
                }
            }
        }
        replaced.removed = before.len();
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain(|slot| slot.strong_count() > 0);
        retired.extend(before.iter().map(Arc::downgrade));
        let place = all.partition_point(|there| there.kind() <= kind);
        all.splice(place..place, own);
        self.registered.store(all.len(), Ordering::Release);
        *slots = Arc::new(all);
        replaced
    }

    /// Lets paused hooks of this name run again. How many there were.
    pub fn resume(&self, name: &str) -> usize {
        self.slots().iter().filter(|slot| slot.name() == name && slot.resume()).count()
    }

    /// How many payloads were written as JSON since the start: none while no hook wants any.
    pub fn payloads(&self) -> u64 {
        self.payloads.load(Ordering::Relaxed)
    }

    /// Whether any hook is told or asked about the event. With no hook at all this is one atomic load.
    pub fn wants(&self, event: &Event) -> bool {
        !self.concerned(event).is_empty()
    }

    /// Tells every hook that subscribes to the event, in the background. `payload` is called only if there is one.
    ///
    /// For `agent:start` and `agent:end` this also tells the hooks of `agent:turn_start` and `agent:turn_end`. Events that
    /// can be decided are for [`Registry::ask`]; told by this call they are only observed.
    pub fn emit<P: Payload>(&self, event: &Event, payload: impl FnOnce() -> P) {
        let concerned = self.concerned(event);
        if concerned.is_empty() {
            return;
        }
        let Some(payload) = self.json_of(event, &payload()) else { return };
        for one in concerned {
            one.tell(&payload);
        }
    }

    /// Tells the observers as [`Registry::emit`] does, and asks the deciding hooks: those that name the event first, then
    /// those with a wildcard, each in order of registration and under its own deadline.
    ///
    /// The first answer wins; contexts are joined; `Block` outranks what would let the event pass. Once an answer stops the
    /// event the remaining hooks are told and no longer asked. A hook that fails, is late or gives an answer that means
    /// nothing for the event is passed over, unless it is `fail_closed`: then the outcome is `Block`, also for events whose
    /// [`Answers`] do not list it. Nobody registered, nobody opposed, or an event nobody decides: `Allow`.
    pub fn ask<P: Payload>(
        &self,
        event: &Event,
        payload: impl FnOnce() -> P,
    ) -> impl Future<Output = Directive> + Send {
        // The payload is built before the first await, so neither it nor the closure needs to be `Send` for the caller.
        let question = self.question(event, payload);
        async move {
            match question {
                Some(question) => question.put().await,
                None => Directive::Allow,
            }
        }
    }

    /// Asks about one tool call, as [`Registry::ask`] does. Each hook sees the arguments as those before it left them.
    pub fn ask_tool_call(&self, payload: impl FnOnce() -> PreToolCall) -> impl Future<Output = ToolCallVerdict> + Send {
        let question = self.question(&Event::PRE_TOOL_CALL, payload);
        async move {
            match question {
                Some(question) => question.put_tool_call().await,
                None => ToolCallVerdict::default(),
            }
        }
    }

    /// Asks what is to be added to a prompt: the pieces of all hooks in their order, or why the turn must not go on.
    pub fn ask_context(
        &self,
        payload: impl FnOnce() -> PreLlmCall,
    ) -> impl Future<Output = Result<Vec<String>, String>> + Send {
        let question = self.question(&Event::PRE_LLM_CALL, payload);
        async move {
            let Some(question) = question else { return Ok(Vec::new()) };
            match question.answers().await {
                (Some(Directive::Block { reason }), _) => Err(reason),
                (_, contexts) => Ok(contexts),
            }
        }
    }

    fn question<P: Payload>(&self, event: &Event, payload: impl FnOnce() -> P) -> Option<Question> {
        let answers = event.row().map_or(Answers::Ignored, |row| row.answers);
        let concerned = self.concerned(event);
        if concerned.is_empty() {
            return None;
        }
        let payload = self.json_of(event, &payload());
        let (asked, told): (Vec<_>, Vec<_>) =
            concerned.into_iter().partition(|one| one.slot.decides() && answers.decides() && one.event.is_some());
        if let Some(payload) = &payload {
            for one in told {
                one.tell(payload);
            }
        }
        Some(Question { answers, payload, asked })
    }

    /// Waits until every hook has been told what it was to be told, at most this long. Returns how many events are left.
    pub async fn drain(&self, at_most: Duration) -> usize {
        let end = Instant::now() + at_most;
        let slots = self.all();
        for slot in &slots {
            if timeout_at(end, slot.idle()).await.is_err() {
                break;
            }
        }
        slots.iter().map(|slot| slot.waiting()).sum()
    }

    /// Ends the telling: what waits is dropped (and counted), calls under way are cut off, later events are not queued.
    /// Deciding hooks are still asked.
    pub fn close(&self) {
        for slot in self.all() {
            slot.close();
        }
    }

    /// What each hook has done so far, in order of registration.
    pub fn stats(&self) -> Vec<HookStats> {
        self.slots().iter().map(|slot| slot.stats()).collect()
    }

    fn json_of<P: Payload>(&self, event: &Event, payload: &P) -> Option<Arc<Value>> {
        self.payloads.fetch_add(1, Ordering::Relaxed);
        json_of(event, payload)
    }

    /// Those that are loaded, and those that were and still have something to be told.
    fn all(&self) -> Vec<Arc<Slot>> {
        let retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        self.slots().iter().cloned().chain(retired.iter().filter_map(Weak::upgrade)).collect()
    }

    fn slots(&self) -> Arc<Vec<Arc<Slot>>> {
        Arc::clone(&self.slots.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The hooks that subscribe to the event, closest fit first, then in order of registration.
    fn concerned(&self, event: &Event) -> Vec<Concerned> {
        if self.registered.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut concerned: Vec<(Option<Closeness>, Concerned)> = self
            .slots()
            .iter()
            .filter_map(|slot| {
                let seen = event.seen_by(slot.subscriptions());
                let (closeness, event) = seen.first.unzip();
                (event.is_some() || seen.second.is_some())
                    .then(|| (closeness, Concerned { slot: Arc::clone(slot), event, second: seen.second }))
            })
            .collect();
        concerned.sort_by_key(|(closeness, _)| *closeness);
        concerned.into_iter().map(|(_, one)| one).collect()
    }
}

/// A hook, and the names under which it sees the event.
struct Concerned {
    slot: Arc<Slot>,
    event: Option<Event>,
    second: Option<Event>,
}

impl Concerned {
    fn tell(&self, payload: &Arc<Value>) {
        for event in [&self.event, &self.second].into_iter().flatten() {
            if self.slot.wants(event, payload) {
                self.slot.tell(event.clone(), Arc::clone(payload));
            }
        }
    }
}

/// One event that is being decided.
struct Question {
    answers: Answers,
    /// `None` if it cannot be shown to anybody.
    payload: Option<Arc<Value>>,
    /// The hooks to ask, each with an event.
    asked: Vec<Concerned>,
}

impl Question {
    async fn put(self) -> Directive {
        match self.answers().await {
            (Some(directive), _) => directive,
            (None, contexts) if !contexts.is_empty() => Directive::Context(contexts.join("\n\n")),
            (None, _) => Directive::Allow,
        }
    }

    /// The answer that decides, and the contexts.
    async fn answers(self) -> (Option<Directive>, Vec<String>) {
        let Some(payload) = self.payload else {
            let guard = self.asked.iter().find(|one| one.slot.fail_closed());
            return (guard.map(|one| one.slot.blocked("it could not be told about the event")), Vec::new());
        };
        let mut outcome: Option<Directive> = None;
        let mut contexts: Vec<String> = Vec::new();
        for one in &self.asked {
            let Some(event) = one.event.as_ref().filter(|event| one.slot.wants(event, &payload)) else { continue };
            if outcome.as_ref().is_some_and(Directive::stops) {
                one.tell(&payload);
                continue;
            }
            match one.slot.ask(event, Arc::clone(&payload), self.answers).await {
                None => {}
                Some(block @ Directive::Block { .. }) => outcome = Some(block),
                Some(Directive::Context(text)) if !text.trim().is_empty() => contexts.push(text),
                Some(answer) if outcome.is_none() && self.answers.settles(&answer) => outcome = Some(answer),
                Some(_) => {}
            }
        }
        (outcome, contexts)
    }
}

/// What the hooks of `pre_tool_call` say together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCallVerdict {
    /// The arguments, if a hook changed them.
    pub args: Option<Map<String, Value>>,
    /// `Allow`, `Approve` or `Block`.
    pub directive: Directive,
}

impl Question {
    async fn put_tool_call(mut self) -> ToolCallVerdict {
        let Some(mut payload) = self.payload.take() else {
            return ToolCallVerdict { args: None, directive: self.put().await };
        };
        let mut verdict = ToolCallVerdict::default();
        for one in &self.asked {
            let Some(event) = one.event.as_ref().filter(|event| one.slot.wants(event, &payload)) else { continue };
            if verdict.directive.stops() {
                one.tell(&payload);
                continue;
            }
            match one.slot.ask(event, Arc::clone(&payload), self.answers).await {
                Some(block @ Directive::Block { .. }) => verdict.directive = block,
                Some(approve @ Directive::Approve { .. }) if verdict.directive == Directive::Allow => {
                    verdict.directive = approve;
                }
                Some(Directive::Modify { args }) => {
                    let mut changed = Value::clone(&payload);
                    if let Some(Value::Object(all)) = changed.get_mut("args") {
                        all.extend(args);
                        verdict.args = Some(all.clone());
                    }
                    payload = Arc::new(changed);
                }
                _ => {}
            }
        }
        verdict
    }
}

fn json_of<P: Payload>(event: &Event, payload: &P) -> Option<Arc<Value>> {
    debug_assert!(
        event.row().is_some_and(|row| P::EVENTS.contains(&row.name)),
        "{event} is told with the payload of {:?}",
        P::EVENTS
    );
    match serde_json::to_value(payload) {
        Ok(mut json) => {
            if let Value::Object(fields) = &mut json
                && event.row().is_some_and(|row| row.system == System::Plugin)
            {
                fields.insert("telemetry_schema_version".to_owned(), Value::from(TELEMETRY_SCHEMA_VERSION));
            }
            Some(Arc::new(json))
        }
        Err(error) => {
            tracing::error!(%event, %error, "an event's payload cannot be written as JSON, so no hook hears of it");
            None
        }
    }
}

#[cfg(test)]
mod tests;
