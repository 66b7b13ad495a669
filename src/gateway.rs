//! What happens to a message, in order. Read [`Gateway::accept`], then `Gateway::handle`.
//!
//! `accept` makes a message durable and puts it into its session's lane; `handle` asks the policy hooks, checks access,
//! and runs a command or a turn; `deliver` stores the answer and sends it. Nothing here knows a platform's protocol, a
//! model's dialect or SQL.

mod access;
mod accounts;
mod approvals;
mod backlog;
mod commands;
mod deliver;
mod handle;
mod health;
mod host;
mod lanes;
mod recovery;
mod silence;
mod tell;
mod texts;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use hookgate_adapters::{
    Adapter, ChatMoved, ChatTarget, Inbound, InboundMessage, NotAccepted, Platform, Press, Source,
};
use hookgate_hooks::Registry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::agent::tools::process::BackgroundProcesses;
use crate::agent::tools::{Tool, Toolbox, Tools};
use crate::agent::{Agent, Budget, Prices};
use crate::clock::Clock;
use crate::config::{Allowed, Roles};
use crate::session::{ResetMode, ResetPolicy, Session, SessionKey, Sharing};
use crate::store::{
    Accepted, Admission, DeliveryAdmission, DeliveryRef, DeliveryWork, InboxId, NewDelivery, SessionedMessage, Store,
    StoreError, UncertainSends,
};

pub use accounts::ByAccount;
pub use approvals::ApprovalRules;
pub use commands::menu;
pub use deliver::Settled;
pub use health::StoreHealth;

use access::Access;
use approvals::Approvals;
use backlog::Backlog;
use deliver::Outbox;
use lanes::{Beside, Current, Lanes, Pushed};

/// What tools keep running gets so long to end when the gateway stops.
const BACKGROUND_TIME: Duration = Duration::from_secs(5);

/// What the gateway is built from.
pub struct Parts {
    /// Everything durable.
    pub store: Arc<dyn Store>,
    /// Who is told and asked.
    pub hooks: Arc<Registry>,
    /// Who answers.
    pub agent: Agent,
    /// All tools there are.
    pub toolbox: Toolbox,
    /// The names of those that turns from a platform may use.
    pub toolsets: HashMap<Platform, Vec<String>>,
    /// Who hears and speaks, one per account of a platform.
    pub adapters: Vec<Arc<dyn Adapter>>,
    /// Whether webhook deliveries of an earlier run are taken up (not in a chat without listeners).
    pub serves_webhooks: bool,
    /// The rules.
    pub rules: Rules,
    /// The wall clock.
    pub clock: Clock,
}

/// The configured rules of the message path.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Turns at once over all sessions.
    pub turns: usize,
    /// Messages that may wait in one session.
    pub waiting_per_chat: usize,
    /// Who shares a session.
    pub sharing: Sharing,
    /// When a conversation ends by itself.
    pub reset: ResetPolicy,
    /// People are told so, with their next answer.
    pub tells_of_reset: bool,
    /// Names of the platforms where they are not.
    pub silent_of_reset: Vec<String>,
    /// What happens to sends whose outcome is unknown.
    pub uncertain_sends: UncertainSends,
    /// `GATEWAY_ALLOWED_USERS` and `GATEWAY_ALLOW_ALL_USERS`.
    pub allowed: Allowed,
    /// The lists of the platforms' accounts.
    pub allowed_by_account: ByAccount<Allowed>,
    /// `roles`: what those who have access may do.
    pub roles: Roles,
    /// The model's name as `/status` shows it.
    pub model: String,
    /// `approvals`.
    pub approvals: ApprovalRules,
    /// `/new` is confirmed before it ends a session (`approvals.destructive_slash_confirm`).
    pub confirms_new: bool,
    /// Where tools begin: `terminal.cwd`.
    pub cwd: PathBuf,
    /// `budgets`.
    pub budgets: Budgets,
    /// `model.prices`.
    pub prices: Prices,
}

/// `budgets`: what may be used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budgets {
    /// By one turn.
    pub turn: Budget,
    /// By one person in a day.
    pub user: Budget,
    /// By one webhook route in a day.
    pub route: Budget,
}

/// The message path. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    hooks: Arc<Registry>,
    agent: Agent,
    adapters: ByAccount<Arc<dyn Adapter>>,
    rules: Rules,
    clock: Clock,
    access: Access,
    approvals: Approvals,
    /// All tools, for routes that choose their own.
    tools: Vec<Arc<dyn Tool>>,
    tools_of: HashMap<Platform, Tools>,
    /// What tools keep running beside the turns.
    background: Arc<BackgroundProcesses>,
    lanes: Lanes,
    turns: Arc<Semaphore>,
    backlog: Backlog,
    outbox: Outbox,
    health: StoreHealth,
    /// Cancelled when the gateway stops: no message is begun any more.
    draining: CancellationToken,
    /// Cancelled when the drain time is over: turns are interrupted and sends no longer begun.
    abort: CancellationToken,
    /// Every task of the message path.
    tasks: TaskTracker,
    /// How many messages and sends are under way.
    busy: watch::Sender<usize>,
    serves_webhooks: bool,
}

/// Something under way; [`Gateway::idle`] waits for the last of them.
#[derive(Debug)]
struct Busy(watch::Sender<usize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Why a message is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Its turn in the session's queue.
    Ordered,
    /// A command beside a busy lane: it acts at once and never waits behind the turn it concerns.
    AtOnce,
    /// The queue is full: the sender is told so.
    Refused,
}

/// Where a stored message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Beside the lane, if that is busy.
    AtOnce,
    /// Into the lane, unless too many wait there.
    Queued,
    /// Into the lane: it was promised already (a webhook's 202, an earlier run), or nobody waits for its answer.
    QueuedForSure,
    /// A delivery with a conversation of its own: nothing is done for it before a turn has a place.
    Backlog,
}

/// Commands come from people who speak to us; a webhook's text is data.
fn is_command(accepted: &Accepted) -> bool {
    let message = &accepted.message;
    accepted.delivery.is_none() && message.addressed && !message.edited && commands::is_command(&message.text)
}

/// Whether the message is a delivery whose conversation is its alone and ends with it.
fn is_alone(accepted: &Accepted) -> bool {
    accepted.delivery.as_ref().is_some_and(|delivery| {
        let own = format!("webhook:{}:{}", delivery.route, delivery.delivery_id);
        accepted.message.source.chat_id == own
    })
}

/// Where a new message goes. What is not said to us takes no place that a question could need.
fn order_of(accepted: &Accepted) -> Order {
    match accepted {
        accepted if is_alone(accepted) => Order::Backlog,
        accepted if accepted.delivery.is_some() => Order::QueuedForSure,
        accepted if is_command(accepted) => Order::AtOnce,
        accepted if accepted.message.addressed => Order::Queued,
        _ => Order::QueuedForSure,
    }
}

impl Gateway {
    /// Wires the parts. Nothing runs before [`Gateway::recover`].
    pub fn new(parts: Parts) -> Self {
        let Parts { store, hooks, agent, toolbox, toolsets, adapters, serves_webhooks, rules, clock } = parts;
        let Toolbox { tools, background } = toolbox;
        let abort = CancellationToken::new();
        Self(Arc::new(Inner {
            health: StoreHealth::default(),
            access: Access::new(rules.allowed.clone(), rules.allowed_by_account.clone(), rules.roles.clone()),
            approvals: Approvals::default(),
            tools_of: toolsets.iter().map(|(platform, names)| (*platform, Tools::of(&tools, names))).collect(),
            tools,
            background,
            lanes: Lanes::new(abort.clone()),
            turns: Arc::new(Semaphore::new(rules.turns.max(1))),
            backlog: Backlog::default(),
            outbox: Outbox::default(),
            adapters: adapters
                .into_iter()
                .map(|adapter| (adapter.platform(), adapter.account().to_owned(), adapter))
                .collect(),
            draining: CancellationToken::new(),
            abort,
            tasks: TaskTracker::new(),
            busy: watch::Sender::new(0),
            serves_webhooks,
            store,
            hooks,
            agent,
            rules,
            clock,
        }))
    }

    /// Takes a message in: `Ok` means it is durable, and is answered once however often it is offered.
    pub async fn accept(&self, accepted: Accepted) -> Result<Admission, StoreError> {
        let gateway = self.clone();
        // In a task of its own: a caller that goes away between the store and the lane must not leave it unhandled.
        self.spawn(async move {
            let session_key = SessionKey::of(&accepted.message.source, gateway.0.rules.sharing);
            let order = gateway.order(&accepted);
            let message = SessionedMessage { session_key: session_key.clone(), accepted };
            let told = gateway.to_be_told(&message);
            let admission = gateway.0.health.watch(gateway.0.store.accept(message).await)?;
            if let Admission::New(id) = admission {
                gateway.tell_received(told.as_ref());
                gateway.dispatch(id, &session_key, order);
            }
            Ok(admission)
        })
        .await
    }

    /// Where a new message goes: what answers an open question does not wait behind the turn that asked.
    fn order(&self, accepted: &Accepted) -> Order {
        match order_of(accepted) {
            Order::Queued
                if self.0.approvals.awaits(&accepted.message.source.reply_target(), &accepted.message.text) =>
            {
                Order::AtOnce
            }
            order => order,
        }
    }

    /// Takes a webhook delivery in, with the turn or the send it leads to.
    pub async fn accept_delivery(&self, delivery: NewDelivery) -> Result<DeliveryAdmission, StoreError> {
        let gateway = self.clone();
        self.spawn(async move {
            let (turn, told) = match &delivery.work {
                DeliveryWork::Turn(turn) => {
                    (Some((turn.session_key.clone(), order_of(&turn.accepted))), gateway.to_be_told(turn))
                }
                DeliveryWork::Ignore | DeliveryWork::Send(_) => (None, None),
            };
            let targets: Vec<_> = match &delivery.work {
                DeliveryWork::Send(replies) => replies.iter().map(|reply| reply.target.clone()).collect(),
                DeliveryWork::Ignore | DeliveryWork::Turn(_) => Vec::new(),
            };
            let sends = matches!(delivery.work, DeliveryWork::Send(_));
            let (named, event, target) = (delivery.delivery.clone(), delivery.event.clone(), delivery.target.clone());
            let admission = gateway.0.health.watch(gateway.0.store.accept_delivery(delivery).await)?;
            if let DeliveryAdmission::New { inbox, outbox } = &admission {
                gateway.tell_delivery(&named, &event);
                gateway.tell_received(told.as_ref());
                if let (Some(id), Some((key, order))) = (inbox, &turn) {
                    gateway.dispatch(*id, key, *order);
                } else if sends && outbox.is_empty() {
                    // To the log only: the record is the delivery.
                    gateway.settle(&named, &target, &Ok(()));
                }
                targets.iter().for_each(|target| gateway.send_waiting(target));
            }
            Ok(admission)
        })
        .await
    }

    /// Ends the current session of a key or id, as `/new` does but without a word in the chat; the ended session.
    pub async fn reset_session(&self, id_or_key: &str) -> Result<Option<Session>, StoreError> {
        let ended = self.0.health.watch(self.0.store.end_session(id_or_key, "reset").await)?;
        if let Some(session) = &ended {
            self.tell_ended(session);
        }
        Ok(ended)
    }

    /// Whether conversations end by themselves.
    pub fn resets_conversations(&self) -> bool {
        self.0.rules.reset.mode != ResetMode::None
    }

    /// Ends the conversations that are over by `session_reset`.
    pub async fn end_what_is_over(&self) -> Result<(), StoreError> {
        for (before, reason) in self.0.rules.reset.over_before(self.0.clock.now()) {
            loop {
                let ended = self.0.health.watch(self.0.store.end_sessions_before(before, reason).await)?;
                if ended.is_empty() {
                    break;
                }
                ended.iter().for_each(|session| self.tell_expired(session, reason));
            }
        }
        Ok(())
    }

    /// The conversation a webhook's source belongs to.
    pub fn session_key(&self, source: &hookgate_adapters::Source) -> SessionKey {
        SessionKey::of(source, self.0.rules.sharing)
    }

    /// Cuts a text into what the account of `target` sends; small plain parts where it is not running.
    /// Delimiters of values, which no such text may have, are removed.
    pub fn split(&self, target: &ChatTarget, text: &str) -> Vec<hookgate_adapters::Part> {
        self.split_rendered(target, &hookgate_adapters::without_delimiters(text))
    }

    /// The same for a text whose values are delimited as [`hookgate_adapters::Adapter::split`] says.
    pub fn split_rendered(&self, target: &ChatTarget, text: &str) -> Vec<hookgate_adapters::Part> {
        deliver::split(self.adapter(target), text)
    }

    /// The running adapter that speaks to a chat.
    fn adapter(&self, target: &ChatTarget) -> Option<&Arc<dyn Adapter>> {
        self.0.adapters.get(target.platform, &target.account)
    }

    /// The running adapter that heard a message.
    fn adapter_of(&self, source: &Source) -> Option<&Arc<dyn Adapter>> {
        self.0.adapters.get(source.platform, &source.account)
    }

    /// Follows a delivery until it is settled; register before it is accepted.
    pub fn follow(&self, delivery: &DeliveryRef) -> Settled {
        self.0.outbox.follow(delivery)
    }

    /// Puts a stored message where it will be handled.
    fn dispatch(&self, id: InboxId, key: &SessionKey, order: Order) {
        if self.0.draining.is_cancelled() {
            return; // It is stored; the next start handles it.
        }
        let limit = match order {
            Order::AtOnce => {
                return match self.0.lanes.push_command(key, id) {
                    Beside::Start(current) => self.work_through(key.clone(), current, None),
                    Beside::Busy(done) => self.begin(id, key, Lane::AtOnce, Some(done)),
                };
            }
            Order::Queued => self.0.rules.waiting_per_chat,
            Order::QueuedForSure => usize::MAX,
            Order::Backlog => return self.0.backlog.push(id, key.clone(), self.busy()),
        };
        match self.0.lanes.push(key, id, limit) {
            Pushed::Start(current) => self.work_through(key.clone(), current, None),
            Pushed::Waiting => {}
            Pushed::Full => self.begin(id, key, Lane::Refused, None),
        }
    }

    /// Handles a message beside its session's lane, and then drops `done`.
    fn begin(&self, id: InboxId, key: &SessionKey, lane: Lane, done: Option<DropGuard>) {
        let (gateway, key) = (self.clone(), key.clone());
        let busy = self.busy();
        self.0.tasks.spawn(async move {
            let stop = gateway.0.abort.child_token();
            gateway.handle_safely(id, &key, lane, &stop, None).await;
            drop(done);
            drop(busy);
        });
    }

    /// Handles the messages of one lane until it is empty or the gateway stops; the first in a place that it has already.
    fn work_through(&self, key: SessionKey, first: Current, mut place: Option<OwnedSemaphorePermit>) {
        let gateway = self.clone();
        let busy = self.busy();
        self.0.tasks.spawn(async move {
            let mut next = Some(first);
            while let Some(current) = next {
                gateway.0.lanes.commands_before(&key, current.id).await;
                let turn = current.turn.lock().await;
                if gateway.0.draining.is_cancelled() {
                    return;
                }
                gateway.handle_safely(current.id, &key, Lane::Ordered, &current.stop, place.take()).await;
                drop(turn);
                next = gateway.0.lanes.next(&key);
            }
            drop(busy);
        });
    }

    /// Handles a message; a defect of ours in one message must not hold up those behind it.
    async fn handle_safely(
        &self,
        id: InboxId,
        key: &SessionKey,
        lane: Lane,
        stop: &CancellationToken,
        place: Option<OwnedSemaphorePermit>,
    ) {
        let handled = AssertUnwindSafe(self.handle(id, key, lane, stop, place)).catch_unwind().await;
        if handled.is_err() {
            tracing::error!(session_key = %key, "A message made the gateway panic; it is tried again at the next start.");
        }
    }

    /// Waits until nothing is under way: no message waits or is handled, and no send is due.
    pub async fn idle(&self) {
        let mut busy = self.0.busy.subscribe();
        let _ = busy.wait_for(|count| *count == 0).await;
    }

    /// Whether the gateway is stopping.
    pub fn is_draining(&self) -> bool {
        self.0.draining.is_cancelled()
    }

    /// Whether the store works, and why not.
    pub fn store_health(&self) -> &StoreHealth {
        &self.0.health
    }

    /// Begins no new message; those under way go on.
    pub fn drain(&self) {
        self.0.draining.cancel();
    }

    /// Waits for turns and sends under way, at most until `deadline`; what is not done by then is interrupted and begun
    /// anew at the next start. Returns whether everything ended by itself.
    pub async fn stop(&self, deadline: Instant) -> bool {
        self.drain();
        self.0.tasks.close();
        let in_time = tokio::time::timeout_at(deadline.into(), self.idle()).await.is_ok();
        self.0.abort.cancel();
        // What is left ends at its next await; a send under way is given a moment to be recorded.
        let _ = tokio::time::timeout(Duration::from_secs(2), self.0.tasks.wait()).await;
        let _ = tokio::time::timeout(BACKGROUND_TIME, self.0.background.stop()).await;
        in_time
    }

    fn busy(&self) -> Busy {
        self.0.busy.send_modify(|count| *count += 1);
        Busy(self.0.busy.clone())
    }

    /// Runs `work` to its end even when the caller goes away.
    async fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let busy = self.busy();
        let task = self.0.tasks.spawn(async move {
            let outcome = work.await;
            drop(busy);
            outcome
        });
        task.await.unwrap_or_else(|error| Err(StoreError::Internal(format!("the task ended early: {error}"))))
    }
}

#[async_trait]
impl Inbound for Gateway {
    async fn accept(&self, message: InboundMessage) -> Result<(), NotAccepted> {
        if self.0.draining.is_cancelled() {
            return Err(NotAccepted("the gateway is stopping".into()));
        }
        let accepted = Accepted { message, deliver: Vec::new(), delivery: None, tools: None };
        Gateway::accept(self, accepted).await.map(drop).map_err(|error| NotAccepted(error.to_string()))
    }

    async fn pressed(&self, press: Press) -> Result<Option<String>, NotAccepted> {
        if self.0.draining.is_cancelled() {
            return Err(NotAccepted("the gateway is stopping".into()));
        }
        Ok(Some(self.press(&press)))
    }

    async fn moved(&self, moved: &ChatMoved) -> Result<(), NotAccepted> {
        let sessions = self.0.health.watch(self.0.store.move_chat(moved).await);
        let sessions = sessions.map_err(|error| NotAccepted(error.to_string()))?;
        self.0.access.tell_moved(moved, sessions);
        Ok(())
    }
}
