//! What a turn asks people while it runs: approvals and questions. Each is a message with buttons in the chat the turn
//! answers, and ends once: by a button, by words, by its time, or with its turn. Nobody else's turn waits for it, and the
//! turn that does gives its place among the running ones away meanwhile.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hookgate_adapters::{Button, ChatTarget, Part, Press, SendError, Source, with_buttons};
use hookgate_hooks::payload::{PostApprovalResponse, PreApprovalRequest};
use hookgate_hooks::{Event, Registry};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Gateway, texts};
use crate::agent::danger;
use crate::agent::tools::{Approval, ApprovalRequest, Standing};
use crate::config::ApprovalMode;
use crate::redact::redact;
use crate::session::SessionKey;
use crate::store::{InboxRow, NewReply, NewRule, OutboxId, OutboxRow, SendRecord};

/// How often an edit of a card is tried that the platform did not take.
const EDITS: u32 = 3;
/// How much of a command is shown again once it is decided.
const SHOWN_AGAIN: usize = 300;
/// The longest reason of a `/deny` (`spec/hermes-hooks.md` §2.8).
const LONGEST_REASON: usize = 280;

/// `approvals` in the configuration.
#[derive(Debug, Clone)]
pub struct ApprovalRules {
    /// Who is asked.
    pub mode: ApprovalMode,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// How long the answer to a question of the model is waited for.
    pub question_timeout: Duration,
    /// Whether a turn ends when nobody answers.
    pub halt_on_timeout: bool,
    /// `command_allowlist`: what needs no approval anywhere.
    pub allowlist: Vec<String>,
}

impl Default for ApprovalRules {
    fn default() -> Self {
        Self {
            mode: ApprovalMode::Manual,
            timeout: Duration::from_secs(60),
            question_timeout: Duration::from_secs(600),
            halt_on_timeout: false,
            allowlist: Vec::new(),
        }
    }
}

/// What a person chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// This once.
    Once,
    /// For the rest of the session.
    Session,
    /// From now on, in this chat; for an owner or admin everywhere.
    Always,
    /// No.
    Deny,
}

impl Choice {
    /// The name in hooks and on buttons.
    fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Always => "always",
            Self::Deny => "deny",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Once, Self::Session, Self::Always, Self::Deny].into_iter().find(|choice| choice.as_str() == name)
    }

    /// A whole message that answers an approval (`spec/hermes-gateway.md` §2.8).
    pub(super) fn word(text: &str) -> Option<Self> {
        let text = text.trim().trim_end_matches(['.', '!']).to_lowercase();
        match text.as_str() {
            "approve" | "yes" | "ok" | "okay" | "confirm" | "y" | "👍" => Some(Self::Once),
            "always" | "always approve" | "approve always" => Some(Self::Always),
            "session" | "approve session" | "session approve" | "approve for session" => Some(Self::Session),
            "deny" | "no" | "reject" | "cancel" | "n" | "👎" => Some(Self::Deny),
            _ => None,
        }
    }
}

/// What comes to a question that is open.
#[derive(Debug)]
enum Signal {
    /// Its message has reached the chat.
    Sent,
    /// Its message cannot be sent; why.
    Failed(String),
    /// A person decided.
    Decided { choice: Choice, by: String, reason: Option<String>, everywhere: bool },
    /// A person answered.
    Answered { text: String, by: String },
}

/// A question that is open.
struct Pending {
    id: String,
    target: ChatTarget,
    /// The parts of its message, once they are stored.
    card: Vec<OutboxId>,
    /// The answers of a `clarify`, in the order of its buttons; `None` for an approval.
    options: Option<Vec<String>>,
    signal_tx: mpsc::UnboundedSender<Signal>,
}

/// What was allowed, and what is open.
#[derive(Default)]
pub(super) struct Approvals {
    /// Oldest first.
    pending: Mutex<Vec<Pending>>,
    /// `(scope, key)` of the stored rules; `""` is everywhere.
    always: Mutex<HashSet<(String, String)>>,
    /// Keys allowed for a session, by its id.
    by_session: Mutex<HashMap<String, HashSet<String>>>,
    /// Sessions' keys in which nobody is asked.
    yolo: Mutex<HashSet<String>>,
    /// Messages that were closed before the platform told their ids, with what they are to say: they may be on their way.
    closed: Mutex<HashMap<OutboxId, String>>,
}

/// Sessions whose approvals are remembered; beyond so many the memory of it starts anew.
const SESSIONS: usize = 10_000;
/// The same for closed messages whose ids are not known.
const CLOSED: usize = 1_000;

impl Approvals {
    fn pending(&self) -> std::sync::MutexGuard<'_, Vec<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Turns yolo in a conversation on or off; whether it is on now.
    pub(super) fn toggle_yolo(&self, key: &SessionKey) -> bool {
        let mut yolo = self.yolo.lock().unwrap_or_else(PoisonError::into_inner);
        if yolo.remove(key.as_str()) {
            return false;
        }
        yolo.insert(key.as_str().to_owned());
        true
    }

    /// A conversation begins anew.
    pub(super) fn forget(&self, key: &SessionKey, session_id: Option<&str>) {
        self.yolo.lock().unwrap_or_else(PoisonError::into_inner).remove(key.as_str());
        if let Some(id) = session_id {
            self.by_session.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        }
    }

    fn is_yolo(&self, key: &SessionKey) -> bool {
        self.yolo.lock().unwrap_or_else(PoisonError::into_inner).contains(key.as_str())
    }

    /// Whether all keys were allowed before.
    fn covers(&self, keys: &[String], session_id: &str, scope: &str, allowlist: &[String]) -> bool {
        let always = self.always.lock().unwrap_or_else(PoisonError::into_inner);
        let by_session = self.by_session.lock().unwrap_or_else(PoisonError::into_inner);
        let session = by_session.get(session_id);
        keys.iter().all(|key| {
            allowlist.contains(key)
                || session.is_some_and(|keys| keys.contains(key))
                || ["", scope].iter().any(|scope| always.contains(&((*scope).to_owned(), key.clone())))
        })
    }

    fn allow_in_session(&self, session_id: &str, keys: &[String]) {
        let mut by_session = self.by_session.lock().unwrap_or_else(PoisonError::into_inner);
        if by_session.len() >= SESSIONS {
            by_session.clear();
        }
        by_session.entry(session_id.to_owned()).or_default().extend(keys.iter().cloned());
    }

    fn allow_always(&self, scope: &str, keys: &[String]) {
        let mut always = self.always.lock().unwrap_or_else(PoisonError::into_inner);
        always.extend(keys.iter().map(|key| (scope.to_owned(), key.clone())));
    }

    /// Whether anything is open in a chat that a text could answer; and what.
    pub(super) fn awaits(&self, target: &ChatTarget, text: &str) -> bool {
        let pending = self.pending();
        let here = || pending.iter().filter(|one| one.target == *target);
        here().any(|one| one.options.is_some() || Choice::word(text).is_some())
    }

    /// The oldest open approvals of a chat: one, or all of them. They are closed with it.
    fn signal_approvals(&self, target: &ChatTarget, all: bool, signal: impl Fn() -> Signal) -> usize {
        let mut told = 0;
        self.pending().retain(|one| {
            let is_meant = one.options.is_none() && one.target == *target && (all || told == 0);
            if is_meant && one.signal_tx.send(signal()).is_ok() {
                told += 1;
            }
            !is_meant
        });
        told
    }

    /// Hears how a part was sent. What its message is to say now, if it was closed meanwhile.
    pub(super) fn recorded(&self, row: &OutboxRow, record: &SendRecord) -> Option<String> {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner).remove(&row.id);
        if closed.is_some() {
            return closed.filter(|_| matches!(record, SendRecord::Sent(_)));
        }
        self.signal_record(row, record);
        None
    }

    fn signal_record(&self, row: &OutboxRow, record: &SendRecord) {
        let pending = self.pending();
        let Some(one) = pending.iter().find(|one| one.card.contains(&row.id)) else { return };
        let signal = match record {
            SendRecord::Dead(why) => Signal::Failed(why.clone()),
            SendRecord::Sent(_) | SendRecord::Uncertain(_) | SendRecord::Held(_)
                if one.card.last() == Some(&row.id) =>
            {
                Signal::Sent
            }
            _ => return,
        };
        let _ = one.signal_tx.send(signal);
    }
}

/// The turn that asks.
pub(super) struct Asker<'a> {
    pub(super) target: ChatTarget,
    /// The message it is anchored to, in groups.
    pub(super) reply_to: Option<String>,
    pub(super) session_key: &'a SessionKey,
    pub(super) session_id: &'a str,
    pub(super) turn_id: &'a str,
}

/// A question on its way to its end: withdrawn when its turn goes away.
struct Open<'a> {
    gateway: &'a Gateway,
    id: String,
    target: ChatTarget,
    card: Vec<OutboxId>,
    /// What its message says from then on, if the turn goes away.
    withdrawn: String,
    told: Option<(&'a Registry, PreApprovalRequest)>,
    signal_rx: mpsc::UnboundedReceiver<Signal>,
    has_ended: bool,
}

impl Open<'_> {
    /// It ended: its message says so, and hooks are told.
    fn end(&mut self, text: &str, choice: &'static str) {
        self.has_ended = true;
        self.gateway.0.approvals.pending().retain(|one| one.id != self.id);
        self.gateway.close_card(&self.target, &std::mem::take(&mut self.card), text.to_owned());
        if let Some((hooks, request)) = self.told.take() {
            hooks.emit(&Event::POST_APPROVAL_RESPONSE, || PostApprovalResponse { request, choice, decided_by: None });
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            let text = self.withdrawn.clone();
            self.end(&text, "cancelled");
        }
    }
}

/// How a question ended.
enum Ended {
    Signal(Signal),
    TimedOut,
}

impl Gateway {
    /// Reads the stored rules, and makes the questions of an earlier run visibly invalid. Call once, before anything is sent.
    pub(super) async fn recover_approvals(&self) -> Result<(), crate::store::StoreError> {
        for rule in self.0.store.rules().await? {
            self.0.approvals.allow_always(&rule.scope, &[rule.key]);
        }
        for card in self.0.store.open_cards().await? {
            self.close_card(&card.target, &[card.id], texts::QUESTION_OF_BEFORE.to_owned());
        }
        Ok(())
    }

    /// A rule was revoked from outside.
    pub(crate) async fn revoke_rule(&self, id: i64) -> Result<Option<crate::store::Rule>, crate::store::StoreError> {
        let revoked = self.0.health.watch(self.0.store.revoke(id).await)?;
        if let Some(rule) = &revoked {
            let mut always = self.0.approvals.always.lock().unwrap_or_else(PoisonError::into_inner);
            always.remove(&(rule.scope.clone(), rule.key.clone()));
        }
        Ok(revoked)
    }

    /// Whether somebody must be asked.
    pub(super) fn standing(&self, asker: &Asker<'_>, request: &ApprovalRequest) -> Standing {
        let rules = &self.0.rules.approvals;
        let approvals = &self.0.approvals;
        if approvals.is_yolo(asker.session_key)
            || rules.mode == ApprovalMode::Off && !request.by_hook
            || approvals.covers(&request.keys, asker.session_id, &scope_of(&asker.target), &rules.allowlist)
        {
            return Standing::Given;
        }
        match rules.mode {
            // What a hook wants a person for is no model's to decide.
            ApprovalMode::Smart if !request.by_hook => Standing::AskModel,
            _ => Standing::AskPerson,
        }
    }

    /// The same for a turn that is in no chat.
    pub(super) fn standing_nowhere(&self, request: &ApprovalRequest) -> Standing {
        let rules = &self.0.rules.approvals;
        match rules.mode {
            ApprovalMode::Off if !request.by_hook => Standing::Given,
            _ if self.0.approvals.covers(&request.keys, "", "", &rules.allowlist) => Standing::Given,
            ApprovalMode::Smart if !request.by_hook => Standing::AskModel,
            _ => Standing::AskPerson,
        }
    }

    /// Nobody can be asked: hooks hear of it as of a request that could not be delivered.
    pub(super) fn not_asked(&self, row: &InboxRow, turn_id: &str, request: &ApprovalRequest, why: String) -> Approval {
        let told = || approval_told(&row.session_key, turn_id, request);
        self.0.hooks.emit(&Event::PRE_APPROVAL_REQUEST, told);
        tracing::warn!(session_key = %row.session_key, %why, "An approval could not be asked for, so it counts as refused.");
        self.0.hooks.emit(&Event::POST_APPROVAL_RESPONSE, || PostApprovalResponse {
            request: told(),
            choice: "notify_failed",
            decided_by: None,
        });
        Approval::Unasked(why)
    }

    /// Asks the people of the turn's chat.
    pub(super) async fn ask_approval(&self, asker: &Asker<'_>, request: &ApprovalRequest) -> Approval {
        let command = danger::shown(&redact(&request.command));
        let told = approval_told(asker.session_key, asker.turn_id, request);
        let hooks = &self.0.hooks;
        hooks.emit(&Event::PRE_APPROVAL_REQUEST, || told.clone());
        let timeout = self.0.rules.approvals.timeout;
        let text = texts::approval_card(&request.description, &command, timeout);
        let buttons = |id: &str| {
            let button = |label: &str, choice: Choice| Button::new(label, format!("ap:{id}:{}", choice.as_str()));
            vec![
                vec![button("Approve once", Choice::Once), button("This session", Choice::Session)],
                vec![button("Always", Choice::Always), button("Deny", Choice::Deny)],
            ]
        };
        let brief = texts::fenced(&command.chars().take(SHOWN_AGAIN).collect::<String>());
        let mut open = self.open(asker, None, format!("{}\n{brief}", texts::WITHDRAWN));
        open.told = Some((hooks, told));
        if let Err(why) = self.send_card(asker, &mut open, &text, &buttons).await {
            open.end("", "notify_failed");
            return Approval::Unasked(texts::cannot_ask(&why));
        }
        match open_until(&mut open, timeout).await {
            Ended::TimedOut => {
                open.end(&format!("{}\n{brief}", texts::APPROVAL_EXPIRED), "timeout");
                Approval::TimedOut { halt: self.0.rules.approvals.halt_on_timeout }
            }
            Ended::Signal(Signal::Failed(why)) => {
                tracing::warn!(%why, "A request for approval could not be sent, so it counts as refused.");
                open.end("", "notify_failed");
                Approval::Unasked(texts::cannot_ask(&why))
            }
            Ended::Signal(Signal::Decided { choice, by, reason, everywhere }) => {
                open.end(&format!("{}\n{brief}", texts::decided(choice.as_str(), &by)), choice.as_str());
                let keys = &request.keys;
                match choice {
                    Choice::Deny => return Approval::Denied(reason),
                    Choice::Once => {}
                    Choice::Session => self.0.approvals.allow_in_session(asker.session_id, keys),
                    Choice::Always => {
                        let scope = if everywhere { String::new() } else { scope_of(&asker.target) };
                        for key in keys {
                            let rule = NewRule { scope: scope.clone(), key: key.clone(), granted_by: by.clone() };
                            let _ = self.until_stored(|| self.0.store.allow(rule.clone())).await;
                        }
                        self.0.approvals.allow_always(&scope, keys);
                    }
                }
                Approval::Given
            }
            Ended::Signal(Signal::Sent | Signal::Answered { .. }) => Approval::Unasked(texts::cannot_ask("")),
        }
    }

    /// Asks a question of the model.
    pub(super) async fn ask_question(
        &self,
        asker: &Asker<'_>,
        question: &str,
        options: &[String],
    ) -> Result<String, String> {
        let question = redact(question);
        let text = texts::question_card(&question, options);
        let buttons = |id: &str| {
            let button = |(number, label): (usize, &String)| {
                let label: String = label.chars().take(60).collect();
                vec![Button::new(
                    if label.trim().is_empty() { "…".to_owned() } else { label },
                    format!("cl:{id}:{number}"),
                )]
            };
            options.iter().enumerate().map(button).collect()
        };
        let mut open = self.open(asker, Some(options.to_vec()), format!("{question}\n\n{}", texts::WITHDRAWN));
        if let Err(why) = self.send_card(asker, &mut open, &text, &buttons).await {
            open.end("", "");
            return Err(why);
        }
        match open_until(&mut open, self.0.rules.approvals.question_timeout).await {
            Ended::Signal(Signal::Answered { text, by }) => {
                open.end(&texts::answered(&question, &text, &by), "");
                Ok(text)
            }
            Ended::Signal(Signal::Failed(why)) => {
                open.end("", "");
                Err(texts::cannot_ask(&why))
            }
            _ => {
                open.end(&format!("{question}\n\n{}", texts::QUESTION_EXPIRED), "");
                Err("nobody answered the question in time".to_owned())
            }
        }
    }

    fn open<'a>(&'a self, asker: &Asker<'_>, options: Option<Vec<String>>, withdrawn: String) -> Open<'a> {
        let (signal_tx, signal_rx) = mpsc::unbounded_channel();
        let id = format!("{:016x}", rand::random::<u64>());
        let pending = Pending { id: id.clone(), target: asker.target.clone(), card: Vec::new(), options, signal_tx };
        self.0.approvals.pending().push(pending);
        Open {
            gateway: self,
            id,
            target: asker.target.clone(),
            card: Vec::new(),
            withdrawn,
            told: None,
            signal_rx,
            has_ended: false,
        }
    }

    /// Sends a question's message. `Err`: it cannot be; why.
    async fn send_card(
        &self,
        asker: &Asker<'_>,
        open: &mut Open<'_>,
        text: &str,
        buttons: &(dyn Fn(&str) -> Vec<Vec<Button>> + Sync),
    ) -> Result<(), String> {
        if self.adapter(&asker.target).is_none() {
            return Err(format!("{} is not running", asker.target.platform));
        }
        let reply = NewReply {
            target: asker.target.clone(),
            reply_to: asker.reply_to.clone(),
            parts: with_buttons(self.split(&asker.target, text), buttons(&open.id)),
            delivery: None,
            session_key: Some(asker.session_key.clone()),
        };
        let stored = self.until_stored(|| self.0.store.send_card(reply.clone())).await;
        let Some(card) = stored else { return Err("the gateway is stopping".to_owned()) };
        open.card.clone_from(&card);
        if let Some(one) = self.0.approvals.pending().iter_mut().find(|one| one.id == open.id) {
            one.card = card;
        }
        self.send_waiting(&asker.target);
        Ok(())
    }

    /// A question's message says from now on how it ended, and has no buttons any more. An empty text leaves it as it is.
    pub(super) fn close_card(&self, target: &ChatTarget, card: &[OutboxId], text: String) {
        let Some(last) = card.last().copied() else { return };
        let (gateway, target, busy) = (self.clone(), target.clone(), self.busy());
        self.0.tasks.spawn(async move {
            let _busy = busy;
            gateway.until_stored(|| gateway.0.store.close_card(last)).await;
            if text.is_empty() {
                return;
            }
            let message_id = gateway.until_stored(|| gateway.0.store.sent_id(last)).await.flatten();
            let Some(message_id) = message_id else {
                let mut closed = gateway.0.approvals.closed.lock().unwrap_or_else(PoisonError::into_inner);
                if closed.len() >= CLOSED {
                    closed.clear();
                }
                closed.insert(last, text);
                return;
            };
            gateway.edit(&target, &message_id, &text).await;
        });
    }

    /// A question's message arrived after the question was closed.
    pub(super) fn edit_late(&self, target: &ChatTarget, message_id: &str, text: String) {
        let (gateway, target, message_id, busy) = (self.clone(), target.clone(), message_id.to_owned(), self.busy());
        self.0.tasks.spawn(async move {
            let _busy = busy;
            gateway.edit(&target, &message_id, &text).await;
        });
    }

    /// Replaces a message of ours, as well as it goes.
    async fn edit(&self, target: &ChatTarget, message_id: &str, text: &str) {
        let Some(adapter) = self.adapter(target) else { return };
        let mut parts = self.split(target, text);
        if parts.is_empty() {
            return;
        }
        let part: Part = parts.swap_remove(0);
        for attempt in 1..=EDITS {
            match adapter.edit(target, message_id, &part).await {
                Ok(()) | Err(SendError::Unsupported | SendError::Refused(_)) => return,
                Err(error) => {
                    let wait = match error {
                        SendError::RetryAfter(wait) => wait.min(Duration::from_secs(60)),
                        _ => Duration::from_secs(u64::from(attempt) * 2),
                    };
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = self.0.abort.cancelled() => return,
                    }
                }
            }
        }
    }

    /// `/approve`: the oldest request of this chat, or all of them; how many there were.
    pub(super) fn decide(&self, source: &Source, choice: Choice, all: bool, reason: Option<&str>) -> usize {
        let reason = reason.map(|reason| reason.chars().take(LONGEST_REASON).collect::<String>());
        let (by, everywhere) = (name_of(source), self.0.access.may_allow_everywhere(source));
        self.0.approvals.signal_approvals(&source.reply_target(), all, || Signal::Decided {
            choice,
            by: by.clone(),
            reason: reason.clone(),
            everywhere,
        })
    }

    /// Whether a text answered something that was open in its chat.
    pub(super) fn answers_question(&self, source: &Source, text: &str) -> bool {
        let target = source.reply_target();
        if let Some(choice) = Choice::word(text)
            && self.0.access.may_approve(source)
            && self.decide(source, choice, false, None) > 0
        {
            return true;
        }
        let mut pending = self.0.approvals.pending();
        let at = pending.iter().position(|one| one.options.is_some() && one.target == target);
        let Some(one) = at.map(|at| pending.remove(at)) else { return false };
        one.signal_tx.send(Signal::Answered { text: text.trim().to_owned(), by: name_of(source) }).is_ok()
    }

    /// Somebody pressed a button; what they are shown.
    pub(super) fn press(&self, press: &Press) -> String {
        let source = &press.source;
        if !self.0.access.allows(source) {
            return texts::NOT_YOURS.to_owned();
        }
        let mut fields = press.data.splitn(3, ':');
        let (kind, id, what) = (fields.next(), fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let target = source.reply_target();
        let mut pending = self.0.approvals.pending();
        // Where it was sent, and nowhere else: a button's data can be sent by anybody.
        let here = |one: &&Pending| {
            one.id == id
                && (one.target.platform, &one.target.account, &one.target.chat_id)
                    == (target.platform, &target.account, &target.chat_id)
        };
        let Some(at) = pending.iter().position(|one| here(&one)) else { return texts::NO_LONGER_OPEN.to_owned() };
        let one = &pending[at];
        let signal = match (kind, &one.options) {
            (Some("ap"), None) => {
                if !self.0.access.may_approve(source) {
                    return texts::NOT_YOURS.to_owned();
                }
                let Some(choice) = Choice::named(what) else { return texts::NO_LONGER_OPEN.to_owned() };
                let everywhere = self.0.access.may_allow_everywhere(source);
                Signal::Decided { choice, by: name_of(source), reason: None, everywhere }
            }
            (Some("cl"), Some(options)) => match what.parse().ok().and_then(|number: usize| options.get(number)) {
                Some(text) => Signal::Answered { text: text.clone(), by: name_of(source) },
                None => return texts::NO_LONGER_OPEN.to_owned(),
            },
            _ => return texts::NO_LONGER_OPEN.to_owned(),
        };
        let shown = match &signal {
            Signal::Decided { choice: Choice::Deny, .. } => "Denied.",
            Signal::Decided { .. } => "Approved.",
            _ => "Thank you.",
        };
        // From here on it is decided: a second press finds it closed.
        match pending.remove(at).signal_tx.send(signal) {
            Ok(()) => shown.to_owned(),
            Err(_) => texts::NO_LONGER_OPEN.to_owned(),
        }
    }
}

/// Waits for an answer: so long from when the message has reached the chat, and at most as long again for it to get there.
async fn open_until(open: &mut Open<'_>, timeout: Duration) -> Ended {
    let mut deadline = Instant::now() + timeout * 2;
    loop {
        match tokio::time::timeout_at(deadline, open.signal_rx.recv()).await {
            Err(_) => return Ended::TimedOut,
            Ok(Some(Signal::Sent)) => deadline = deadline.min(Instant::now() + timeout),
            Ok(Some(signal)) => return Ended::Signal(signal),
            Ok(None) => return Ended::TimedOut,
        }
    }
}

fn approval_told(session_key: &SessionKey, turn_id: &str, request: &ApprovalRequest) -> PreApprovalRequest {
    PreApprovalRequest {
        command: redact(&request.command),
        description: request.description.clone(),
        pattern_key: request.keys.first().cloned().unwrap_or_default(),
        pattern_keys: request.keys.clone(),
        session_key: session_key.to_string(),
        surface: "gateway",
        turn_id: turn_id.to_owned(),
        tool_call_id: request.tool_call_id.clone(),
    }
}

/// Where an `always` of a chat's people holds.
fn scope_of(target: &ChatTarget) -> String {
    format!("{}:{}", target.platform.with_account(&target.account), target.chat_id)
}

fn name_of(source: &Source) -> String {
    let id = source.user_id.as_deref().unwrap_or("somebody");
    match &source.user_name {
        Some(name) => {
            let name: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
            format!("{name} ({id})")
        }
        None => id.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_messages_answer_an_approval_and_parts_of_messages_do_not() {
        for (text, choice) in [
            ("yes", Some(Choice::Once)),
            (" OK! ", Some(Choice::Once)),
            ("👍", Some(Choice::Once)),
            ("always", Some(Choice::Always)),
            ("approve session", Some(Choice::Session)),
            ("No.", Some(Choice::Deny)),
            ("👎", Some(Choice::Deny)),
            ("yes please, but first look at the log", None),
            ("nobody", None),
            ("", None),
        ] {
            assert_eq!(Choice::word(text), choice, "{text:?}");
        }
    }

    #[test]
    fn an_approval_covers_its_keys_where_it_was_given() {
        let approvals = Approvals::default();
        let keys = |keys: &[&str]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
        approvals.allow_in_session("s1", &keys(&["a"]));
        approvals.allow_always("telegram:7", &keys(&["b"]));
        approvals.allow_always("", &keys(&["c"]));
        let covers = |wanted: &[&str], session: &str, scope: &str| {
            approvals.covers(&keys(wanted), session, scope, &keys(&["d"]))
        };
        assert!(covers(&["a", "b", "c", "d"], "s1", "telegram:7"));
        assert!(!covers(&["a"], "s2", "telegram:7"));
        assert!(!covers(&["b"], "s1", "telegram:8"));
        assert!(covers(&["c"], "s2", "telegram:8"));
        assert!(!covers(&["a", "e"], "s1", "telegram:7"));
    }
}
