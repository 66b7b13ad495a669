//! What happens to one message, from the policy hooks to its stored answer.

use std::sync::Arc;
use std::time::Duration;

use hookgate_adapters::{Adapter, ChatTarget, Cut, InboundMessage, is_blank};
use hookgate_hooks::{Directive, Event};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::approvals::{Asker, Choice};
use super::commands::{self, Command};
use super::host::TurnHost;
use super::{Gateway, Lane, Order, is_alone, silence, texts};
use crate::agent::tools::Tools;
use crate::agent::{Means, Spending, Spent, TurnOutcome, TurnRequest};
use crate::redact::redact;
use crate::session::{Role, SessionKey, Sharing, TurnStatus};
use crate::store::{self, Finish, InboxId, InboxRow, NewMessage, NewReply, StoreError, Target};
use crate::webhook::template;

/// A message that interrupted the gateway so often is given up (`spec/decisions.md` §6).
const ATTEMPTS: i64 = 5;
/// How much of a conversation a model is given.
const HISTORY_MESSAGES: u32 = 400;
const HISTORY_CHARS: usize = 400_000;
/// "typing…" starts only when an answer takes a moment, and is renewed before platforms drop it (Telegram: 5 s).
const TYPING_AFTER: Duration = Duration::from_millis(200);
const TYPING_EVERY: Duration = Duration::from_secs(4);
/// How many further pieces belong to one text at most, and how far apart they come.
const MOST_PIECES: usize = 50;
const PIECES_APART: Duration = Duration::from_secs(1);
/// So much of a text of others inside a line of ours is shown to the model: the message that is answered, a name.
const QUOTED_CHARS: usize = 500;
/// Attempts at a store call that fails for reasons of our own.
const INTERNAL_ATTEMPTS: u32 = 5;

/// A command as it is run: perhaps rewritten by a hook.
pub(super) struct Call {
    /// Canonical, without the slash.
    pub(super) name: String,
    /// As it was typed, lower-cased.
    pub(super) typed: String,
    /// What follows it.
    pub(super) args: String,
}

impl Gateway {
    /// Handles one stored message. `stop` interrupts its turn, which runs in `place` if it was given one.
    pub(super) async fn handle(
        &self,
        id: InboxId,
        key: &SessionKey,
        lane: Lane,
        stop: &CancellationToken,
        place: Option<OwnedSemaphorePermit>,
    ) {
        let decided = self.0.lanes.take_decided(id);
        let Some(Some(row)) = self.until_stored(|| self.0.store.claim(id)).await else { return };
        if row.attempts > ATTEMPTS {
            return self.give_up(&row).await;
        }
        if !row.effects.is_empty() {
            return self.report_interrupted(&row).await;
        }
        let Some(row) = self.ask_policy(row, decided).await else { return };
        if !row.accepted.message.addressed {
            return self.close(&row).await;
        }
        if row.accepted.delivery.is_none() && !self.0.access.allows(&row.accepted.message.source) {
            return self.turn_away(&row).await;
        }
        if lane == Lane::Refused {
            return self.answer(&row, &texts::too_many_waiting(self.0.rules.waiting_per_chat)).await;
        }
        match self.command_of(&row) {
            Some(call) => self.run_command(&row, key, lane, call).await,
            None if self.answers_a_question(&row) => self.close(&row).await,
            None if row.accepted.message.text.trim().is_empty() => self.answer_blank(&row).await,
            None if lane == Lane::AtOnce => self.queue(row, key).await,
            None => {
                let Some(row) = self.with_further_pieces(row, key, stop).await else { return };
                self.run_turn(&row, key, stop, place).await;
            }
        }
    }

    /// A client cuts what is too long for one message: the pieces that follow are one question with the first. `None`: the
    /// gateway stops while more may come; the next start puts them together.
    async fn with_further_pieces(
        &self,
        mut row: InboxRow,
        key: &SessionKey,
        stop: &CancellationToken,
    ) -> Option<InboxRow> {
        let mut last = self.cut_of(&row, &row.accepted.message.text);
        let mut sent_at = row.accepted.message.sent_at;
        while last != Cut::Whole && row.joined.len() < MOST_PIECES {
            let Some(id) = self.piece_behind(&row, key, sent_at, stop).await else {
                if !self.is_draining() || stop.is_cancelled() {
                    break;
                }
                self.until_stored(|| self.0.store.unclaim(row.id)).await;
                return None;
            };
            let Some(Some(piece)) = self.until_stored(|| self.0.store.claim(id)).await else { break };
            // From here on it ends with the first, whatever its words are.
            row.joined.push(id);
            let Some(piece) = self.ask_policy(piece, None).await else { break };
            let message = piece.accepted.message;
            if last == Cut::AtBlank {
                row.accepted.message.text.push('\n');
            }
            row.accepted.message.text.push_str(&message.text);
            (last, sent_at) = (self.cut_of(&row, &message.text), message.sent_at);
        }
        Some(row)
    }

    /// How the sender's client cut a text. Nobody edits two pieces at once, and a webhook has no client.
    fn cut_of(&self, row: &InboxRow, text: &str) -> Cut {
        let message = &row.accepted.message;
        match self.adapter_of(&message.source) {
            Some(adapter) if row.accepted.delivery.is_none() && !message.edited => adapter.cut_of(text),
            _ => Cut::Whole,
        }
    }

    /// The next message of the lane, taken out of it, if it is a further piece. Waits for it a moment.
    async fn piece_behind(
        &self,
        row: &InboxRow,
        key: &SessionKey,
        sent_at: i64,
        stop: &CancellationToken,
    ) -> Option<InboxId> {
        let deadline = tokio::time::Instant::now() + PIECES_APART;
        let id = loop {
            if stop.is_cancelled() || self.is_draining() {
                return None;
            }
            if let Some(id) = self.0.lanes.behind(key) {
                break id;
            }
            if tokio::time::Instant::now() >= deadline {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let piece = self.until_stored(|| self.0.store.waiting(id)).await??.accepted.message;
        let first = &row.accepted.message;
        let apart = i64::try_from(PIECES_APART.as_millis()).unwrap_or(i64::MAX);
        // In a group only the first piece names the bot.
        let fits = piece.source == first.source
            && (piece.media.is_empty() && piece.quoted.is_none() && !piece.edited)
            && !commands::is_command(&piece.text)
            && !piece.text.trim().is_empty()
            && piece.sent_at.saturating_sub(sent_at) <= apart;
        (fits && !stop.is_cancelled() && self.0.lanes.take_behind(key, id)).then_some(id)
    }

    /// The message took the gateway down again and again.
    async fn give_up(&self, row: &InboxRow) {
        if self.may_be_told(row) {
            self.store_failure(row, None, texts::given_up(row.attempts - 1)).await;
        } else {
            self.close(row).await;
        }
    }

    /// The turn had begun to act when it was cut off: it is not begun anew.
    async fn report_interrupted(&self, row: &InboxRow) {
        let opened = self.until_stored(|| self.0.store.open_session(&row.session_key, &row.accepted)).await;
        let Some((session, _)) = opened else { return };
        let told = texts::interrupted_in_the_middle(&row.effects);
        let messages = vec![
            NewMessage { role: Role::User, text: question(row, self.0.rules.sharing), status: TurnStatus::Interrupted },
            NewMessage { role: Role::Assistant, text: told.clone(), status: TurnStatus::Interrupted },
        ];
        self.store_failure(row, Some((session.id, messages)), told).await;
    }

    /// Whether the message answered what a turn asked in its chat.
    fn answers_a_question(&self, row: &InboxRow) -> bool {
        let message = &row.accepted.message;
        row.accepted.delivery.is_none() && !message.edited && self.answers_question(&message.source, &message.text)
    }

    /// Whether the message's sender may see anything of us: a delivery's chat was configured, a person needs access and must
    /// have spoken to us.
    fn may_be_told(&self, row: &InboxRow) -> bool {
        let message = &row.accepted.message;
        row.accepted.delivery.is_some() || message.addressed && self.0.access.allows(&message.source)
    }

    /// The policy hooks' say: the message as it goes on, or `None` when it was skipped. `decided` is what they said before.
    async fn ask_policy(&self, mut row: InboxRow, decided: Option<String>) -> Option<InboxRow> {
        if let Some(text) = decided {
            row.accepted.message.text = text;
            return Some(row);
        }
        let reply = match self.ask_dispatch(&row).await {
            Directive::Skip { reply } => reply,
            Directive::Block { reason } => Some(texts::blocked(&reason)),
            Directive::Rewrite { text } => {
                row.accepted.message.text = text;
                return Some(row);
            }
            _ => return Some(row),
        };
        match reply.filter(|_| self.may_be_told(&row)) {
            Some(reply) => self.answer(&row, &reply).await,
            None => self.close(&row).await,
        }
        None
    }

    /// A hook made a question of a command: it takes its place in the lane, for two turns of a session never run at once.
    async fn queue(&self, row: InboxRow, key: &SessionKey) {
        let unclaimed = self.until_stored(|| self.0.store.unclaim(row.id)).await;
        if unclaimed.is_some() {
            self.0.lanes.keep_decided(row.id, row.accepted.message.text);
            self.dispatch(row.id, key, Order::QueuedForSure);
        }
    }

    async fn turn_away(&self, row: &InboxRow) {
        self.0.access.turn_away(&row.accepted.message.source);
        self.close(row).await;
    }

    /// The command a message calls. Text from a webhook is data, whatever it looks like.
    fn command_of(&self, row: &InboxRow) -> Option<Call> {
        if row.accepted.delivery.is_some() || row.accepted.message.edited {
            return None;
        }
        let parsed = commands::parse(&row.accepted.message.text)?;
        let typed = parsed.name.filter(|name| !name.is_empty())?;
        let name = commands::find(&typed).map_or_else(|| typed.clone(), |entry| entry.name.to_owned());
        Some(Call { name, typed, args: parsed.args })
    }

    async fn run_command(&self, row: &InboxRow, key: &SessionKey, lane: Lane, mut call: Call) {
        if let Some(refusal) = self.refusal(row, &call) {
            return self.answer(row, &refusal).await;
        }
        if commands::find(&call.name).is_some() {
            for event in [Event::command_before(&call.name), Event::command(&call.name)] {
                match self.ask_command(row, event, &call).await {
                    Directive::Deny { message } => {
                        let message = message.filter(|message| !message.trim().is_empty());
                        return self.answer(row, message.as_deref().unwrap_or(texts::COMMAND_DENIED)).await;
                    }
                    Directive::Block { reason } => return self.answer(row, &texts::blocked(&reason)).await,
                    Directive::Handled { message: Some(message) } => return self.answer(row, &message).await,
                    Directive::Handled { message: None } => return self.close(row).await,
                    Directive::RewriteCommand { name, args } => {
                        let name = name.trim_start_matches('/').to_lowercase();
                        call.name = commands::find(&name).map_or_else(|| name.clone(), |entry| entry.name.to_owned());
                        call.args = args;
                        if let Some(refusal) = self.refusal(row, &call) {
                            return self.answer(row, &refusal).await;
                        }
                        break;
                    }
                    _ => {}
                }
            }
        }
        match commands::find(&call.name).map(|entry| entry.command) {
            Some(Command::New) => self.begin_session(row, key, lane).await,
            Some(Command::Stop) => {
                let running = self.0.lanes.current(key).filter(|current| current.id < row.id);
                if let Some(current) = &running {
                    current.stop.cancel();
                }
                let text = if running.is_some() { texts::STOPPED } else { texts::NOTHING_TO_STOP };
                self.answer(row, text).await;
            }
            Some(Command::Status) => {
                let session = self.until_stored(|| self.0.store.current_session(key)).await.flatten();
                let activity = self.0.lanes.activity(key);
                let busy = activity.busy && self.0.lanes.current(key).is_some_and(|current| current.id != row.id);
                let text = texts::status(session.as_ref(), busy, activity.waiting, &self.0.rules.model);
                self.answer(row, &text).await;
            }
            Some(Command::Approve | Command::Deny) if !self.0.access.may_approve(&row.accepted.message.source) => {
                self.answer(row, texts::MAY_NOT_APPROVE).await;
            }
            Some(Command::Approve) => {
                let words: Vec<String> = call.args.split_whitespace().map(str::to_lowercase).collect();
                let says = |word: &str| words.iter().any(|one| one == word);
                let choice = match (says("always"), says("session")) {
                    (true, _) => Choice::Always,
                    (false, true) => Choice::Session,
                    (false, false) => Choice::Once,
                };
                self.decide_and_close(row, choice, says("all"), None).await;
            }
            Some(Command::Deny) => {
                let (all, reason) = match call.args.split_once(char::is_whitespace) {
                    _ if call.args.eq_ignore_ascii_case("all") => (true, ""),
                    Some((first, rest)) if first.eq_ignore_ascii_case("all") => (true, rest),
                    _ => (false, call.args.as_str()),
                };
                let reason = Some(reason.trim()).filter(|reason| !reason.is_empty());
                self.decide_and_close(row, Choice::Deny, all, reason).await;
            }
            Some(Command::Yolo) if !self.0.access.may_approve(&row.accepted.message.source) => {
                self.answer(row, texts::MAY_NOT_APPROVE).await;
            }
            Some(Command::Yolo) => {
                let is_on = self.0.approvals.toggle_yolo(key);
                tracing::warn!(session_key = %key, is_on, "Yolo was switched: it decides whether tools are asked about.");
                self.answer(row, texts::yolo(is_on)).await;
            }
            Some(Command::Help) => self.answer(row, &commands::help()).await,
            Some(Command::Start) => self.close(row).await,
            None => self.answer(row, &texts::unknown_command(&call.name)).await,
        }
    }

    /// What was decided shows at the request itself; only where there was none is it answered.
    async fn decide_and_close(&self, row: &InboxRow, choice: Choice, all: bool, reason: Option<&str>) {
        match self.decide(&row.accepted.message.source, choice, all, reason) {
            0 => self.answer(row, texts::NOTHING_TO_DECIDE).await,
            _ => self.close(row).await,
        }
    }

    /// Why the sender may not run a command, if so.
    fn refusal(&self, row: &InboxRow, call: &Call) -> Option<String> {
        let source = &row.accepted.message.source;
        let command = commands::find(&call.name).map(|entry| entry.command);
        let busy = self.0.lanes.current(&row.session_key).is_some_and(|current| current.id != row.id);
        let by_role = self.0.access.refusal(source, command, self.0.rules.sharing.is_shared(source));
        by_role.map(str::to_owned).or_else(|| self.0.access.refusal_by_list(source, &call.name, busy))
    }

    /// Whether the person really wants a new session (`approvals.destructive_slash_confirm`). Where nothing was said there is
    /// nothing to ask about.
    async fn confirms_new(&self, row: &InboxRow, key: &SessionKey) -> bool {
        let session = self.until_stored(|| self.0.store.current_session(key)).await.flatten();
        let Some(session) = session.filter(|session| session.messages > 0) else { return true };
        let asker = Asker {
            target: row.accepted.message.source.reply_target(),
            reply_to: None,
            session_key: key,
            session_id: &session.id,
            turn_id: "",
        };
        let options = [texts::CONFIRM.to_owned(), texts::KEEP.to_owned()];
        match self.ask_question(&asker, texts::CONFIRM_NEW, &options).await {
            Ok(answer) => {
                answer == texts::CONFIRM || matches!(Choice::word(&answer), Some(choice) if choice != Choice::Deny)
            }
            Err(_) => false,
        }
    }

    /// `/new`: the running turn is interrupted, what waits is closed, and the next message begins a new session.
    async fn begin_session(&self, row: &InboxRow, key: &SessionKey, lane: Lane) {
        let running = self.0.lanes.current(key).filter(|current| current.id < row.id && lane != Lane::Ordered);
        if self.0.rules.confirms_new && running.is_none() && !self.confirms_new(row, key).await {
            return self.answer(row, texts::SESSION_KEPT).await;
        }
        let _turn = match &running {
            Some(current) => {
                current.stop.cancel();
                Some(current.turn.lock().await)
            }
            None => None,
        };
        // The answer tells how many messages are closed, and is stored in the same transaction: count them first. Only
        // this lane could begin one of them, and it is held.
        let closing = running.as_ref().map_or(0, |current| self.0.lanes.waiting_before(key, row.id, current.id));
        let finish = Finish {
            replies: self.replies(row, &texts::new_session_closed(closing)),
            end_session: Some("reset"),
            close_waiting_before: true,
            ..Finish::default()
        };
        let Some(finished) = self.finish(row, finish).await else { return };
        self.0.approvals.forget(key, finished.ended_session.as_deref());
        if let Some(ended) = &finished.ended_session {
            self.0.background.end_session(ended).await;
        }
        let opened = self.until_stored(|| self.0.store.open_session(key, &row.accepted)).await;
        let new_id = opened.map(|(session, _)| session.id).unwrap_or_default();
        self.tell_reset(&row.accepted.message.source, key, finished.ended_session.as_deref(), &new_id);
    }

    /// A question to its answer.
    async fn run_turn(
        &self,
        row: &InboxRow,
        key: &SessionKey,
        stop: &CancellationToken,
        place: Option<OwnedSemaphorePermit>,
    ) {
        let place = match place {
            Some(place) => Some(place),
            None => self.place(row, stop).await,
        };
        let Some(place) = place else { return };
        let notice = self.end_if_over(row, key).await;
        let opened = self.until_stored(|| self.0.store.open_session(key, &row.accepted)).await;
        let Some((session, is_new)) = opened else { return };
        let history = self.until_stored(|| self.0.store.history(&session.id, HISTORY_MESSAGES, HISTORY_CHARS)).await;
        let Some(history) = history else { return };

        let source = &row.accepted.message.source;
        let is_first_turn = session.messages == 0;
        if is_first_turn {
            self.tell_session_start(source, &session, if is_new { "first" } else { "reset" });
        }
        let text = question(row, self.0.rules.sharing);
        self.tell_agent_start(source, &session, &text);
        let request = TurnRequest {
            session_id: session.id.clone(),
            session_key: key.to_string(),
            turn_id: row.id.0.to_string(),
            platform: source.platform.to_string(),
            sender_id: source.user_id.clone(),
            history,
            text: text.clone(),
            plain_text: row.accepted.message.text.clone(),
            is_first_turn,
        };
        let cwd = self.0.rules.cwd.clone();
        let host = Arc::new(TurnHost::new(self, row, &session.id, place));
        let means = Means {
            tools: self.tools_for(row),
            cwd,
            host: Arc::clone(&host) as _,
            spending: Arc::new(self.spending(row).await),
        };
        let outcome = {
            let _typing = self.typing(row);
            let adapter = self.adapter_of(source).filter(|adapter| adapter.shows_partial());
            let (target, reply_to) = (source.reply_target(), row.accepted.message.message_id.as_str());
            let partial = move |text: &str| {
                if let Some(adapter) = adapter {
                    adapter.partial(&target, reply_to, &redact(text));
                }
            };
            match self.0.agent.run_turn(request, &means, &partial, stop).await {
                TurnOutcome::Answer(answer) => TurnOutcome::Answer(redact(&answer)),
                other => other,
            }
        };
        host.leave().await;
        self.record_spending(row, &means.spending).await;
        self.tell_agent_end(source, &session, &text, &outcome);
        match outcome {
            TurnOutcome::Interrupted => self.leave_unanswered(row, Some((session.id, text))).await,
            TurnOutcome::Answer(answer) => self.store_answer(row, session.id, text, answer, notice).await,
            TurnOutcome::Failed { for_user, cause } => {
                tracing::error!(session_id = %session.id, platform = %source.platform, chat_id = %source.chat_id, %cause, "A turn failed.");
                let messages = vec![
                    NewMessage { role: Role::User, text, status: TurnStatus::Failed },
                    NewMessage { role: Role::Assistant, text: for_user.clone(), status: TurnStatus::Failed },
                ];
                self.store_failure(row, Some((session.id, messages)), for_user).await;
            }
        }
    }

    /// The tools a turn may use: by its platform, by its route, and none for those who may only talk.
    fn tools_for(&self, row: &InboxRow) -> Tools {
        let source = &row.accepted.message.source;
        if let Some(names) = row.accepted.tools.as_ref().filter(|_| row.accepted.delivery.is_some()) {
            return Tools::of(&self.0.tools, names);
        }
        if row.accepted.delivery.is_none() && !self.0.access.may_use_tools(source) {
            return Tools::default();
        }
        self.0.tools_of.get(&source.platform).cloned().unwrap_or_default()
    }

    /// Whose budgets of the day a turn draws on: a person's, or a route's.
    fn purse(row: &InboxRow) -> Option<String> {
        let source = &row.accepted.message.source;
        match &row.accepted.delivery {
            Some(delivery) => Some(format!("route:{}", delivery.route)),
            None => source.user_id.as_ref().map(|user| format!("user:{}:{user}", source.platform)),
        }
    }

    /// The day in the operator's time zone.
    fn today(&self) -> String {
        let now = jiff::Timestamp::from_millisecond(self.0.clock.now()).unwrap_or_default();
        now.to_zoned(self.0.rules.reset.zone.clone()).date().to_string()
    }

    /// What the turn may use up. The store is asked only where a budget of the day is set.
    async fn spending(&self, row: &InboxRow) -> Spending {
        let budgets = &self.0.rules.budgets;
        let spending =
            Spending::new(self.0.rules.prices).with("the budget of this turn", budgets.turn, Default::default());
        let (whose, budget) = match row.accepted.delivery {
            Some(_) => ("this route's budget of today", budgets.route),
            None => ("your budget of today", budgets.user),
        };
        if budget == Default::default() {
            return spending;
        }
        let Some(purse) = Self::purse(row) else { return spending };
        let (purses, day) = ([purse], self.today());
        let spent = self.until_stored(|| self.0.store.spent(&purses, &day)).await.unwrap_or_default();
        let before = spent.first().copied().unwrap_or_default();
        let before = Spent { tokens: before.tokens, tool_calls: before.tool_calls, micros: before.micros };
        spending.with(whose, budget, before)
    }

    /// Records what the turn used up, where a budget of the day is set.
    async fn record_spending(&self, row: &InboxRow, spending: &Spending) {
        let budgets = &self.0.rules.budgets;
        let budget = if row.accepted.delivery.is_some() { budgets.route } else { budgets.user };
        let (spent, Some(purse)) = (spending.spent(), Self::purse(row)) else { return };
        if budget == Default::default() || spent == Default::default() {
            return;
        }
        let (purses, day) = ([purse], self.today());
        let Spent { tokens, tool_calls, micros } = spent;
        let spent = store::Spent { tokens, tool_calls, micros };
        self.until_stored(|| self.0.store.spend(&purses, &day, spent)).await;
    }

    /// Ends the conversation if it is over by now. What its people are to be told with the next answer, where they are to be.
    async fn end_if_over(&self, row: &InboxRow, key: &SessionKey) -> Option<String> {
        if !self.resets_conversations() {
            return None;
        }
        let rules = &self.0.rules;
        let last = self.until_stored(|| self.0.store.find_session(key.as_str())).await.flatten()?;
        let reason = match &last.end_reason {
            Some(reason) => ["idle", "daily"].into_iter().find(|known| known == reason)?,
            None => {
                let reason = rules.reset.is_over(last.updated_at, self.0.clock.now())?;
                let ended = self.until_stored(|| self.0.store.end_session(&last.id, reason)).await.flatten()?;
                self.tell_expired(&ended, reason);
                reason
            }
        };
        let is_silent =
            || rules.silent_of_reset.iter().any(|name| name == row.accepted.message.source.platform.as_str());
        let is_told = rules.tells_of_reset && row.accepted.delivery.is_none() && last.messages > 0 && !is_silent();
        is_told.then(|| texts::session_over(reason))
    }

    /// A place among the turns that run at once. While none is free the message counts as waiting: a kill meanwhile is
    /// not its doing. `None`: it was stopped, and its end is stored.
    async fn place(&self, row: &InboxRow, stop: &CancellationToken) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.0.turns).try_acquire_owned() {
            return Some(permit);
        }
        self.until_stored(|| self.0.store.unclaim(row.id)).await?;
        let permit = tokio::select! {
            permit = Arc::clone(&self.0.turns).acquire_owned() => permit.ok()?,
            () = stop.cancelled() => {
                self.leave_unanswered(row, None).await;
                return None;
            }
        };
        self.until_stored(|| self.0.store.claim(row.id)).await??;
        Some(permit)
    }

    async fn store_answer(
        &self,
        row: &InboxRow,
        session_id: String,
        text: String,
        answer: String,
        notice: Option<String>,
    ) {
        let mut replies = if silence::is_silent(&answer) { Vec::new() } else { self.replies(row, &answer) };
        if let Some(notice) = notice.filter(|_| !replies.is_empty()) {
            replies.splice(0..0, self.replies(row, &notice));
        }
        let delivery = row.accepted.delivery.clone().filter(|_| replies.is_empty());
        self.log_answer(row, &answer);
        let messages = vec![
            NewMessage { role: Role::User, text, status: TurnStatus::Completed },
            NewMessage { role: Role::Assistant, text: answer, status: TurnStatus::Completed },
        ];
        let finish = Finish {
            remember: Some((session_id, messages)),
            replies,
            end_session: ends_with_its_delivery(row),
            delivery: delivery.map(|delivery| (delivery, Ok(()))),
            ..Finish::default()
        };
        self.finish_turn(row, finish).await;
    }

    /// Ends a message with words about why it has no answer. A delivery has failed: it may be sent again.
    async fn store_failure(&self, row: &InboxRow, remember: Option<(String, Vec<NewMessage>)>, for_user: String) {
        let replies =
            self.replies(row, &for_user).into_iter().map(|reply| NewReply { delivery: None, ..reply }).collect();
        let finish = Finish {
            remember,
            replies,
            end_session: ends_with_its_delivery(row),
            delivery: row.accepted.delivery.clone().map(|delivery| (delivery, Err(for_user))),
            ..Finish::default()
        };
        self.finish_turn(row, finish).await;
    }

    async fn finish_turn(&self, row: &InboxRow, finish: Finish) {
        let delivery = finish.delivery.clone();
        let Some(finished) = self.finish(row, finish).await else { return };
        if let Some((delivery, outcome)) = delivery {
            let targets: Vec<String> = row.accepted.deliver.iter().map(Target::to_string).collect();
            self.settle(&delivery, &targets.join(","), &outcome);
        }
        if let Some(session_id) = finished.ended_session {
            self.tell_session_end(&row.accepted.message.source, &row.session_key, &session_id, "webhook_complete");
        }
    }

    /// A turn was interrupted: by the gateway's stop, then it begins anew at the next start; or by `/stop` or `/new`, whose
    /// own answer says so.
    async fn leave_unanswered(&self, row: &InboxRow, asked: Option<(String, String)>) {
        if self.0.abort.is_cancelled() {
            if let Some((session_id, _)) = &asked {
                self.tell_shutdown(session_id);
            }
            if let Err(error) = self.0.store.unclaim(row.id).await {
                tracing::debug!(%error, "An interrupted message was not put back; the next start finds it all the same.");
            }
            return;
        }
        let remember = asked.map(|(session_id, text)| {
            // Answered by this, so that the next question does not ask for it again.
            let stopped = texts::STOPPED_BEFORE.to_owned();
            let messages = vec![
                NewMessage { role: Role::User, text, status: TurnStatus::Interrupted },
                NewMessage { role: Role::Assistant, text: stopped, status: TurnStatus::Interrupted },
            ];
            (session_id, messages)
        });
        let delivery = row.accepted.delivery.clone().map(|delivery| (delivery, Err("interrupted".to_owned())));
        self.finish_turn(row, Finish { remember, delivery, ..Finish::default() }).await;
    }

    /// Ends a message with one text in its chat.
    async fn answer(&self, row: &InboxRow, text: &str) {
        let replies = self.replies(row, text);
        // A delivery follows its replies; without any it ends here.
        let delivery = row.accepted.delivery.clone().filter(|_| replies.is_empty());
        let delivery = delivery.map(|delivery| (delivery, Ok(())));
        self.finish_turn(row, Finish { replies, delivery, ..Finish::default() }).await;
    }

    /// There is nothing to ask. A person is told so; a template that renders to nothing has nothing to say.
    async fn answer_blank(&self, row: &InboxRow) {
        match row.accepted.delivery {
            Some(_) => self.close(row).await,
            None => self.answer(row, texts::ONLY_TEXT).await,
        }
    }

    /// Ends a message without a word.
    async fn close(&self, row: &InboxRow) {
        let delivery = row.accepted.delivery.clone().map(|delivery| (delivery, Ok(())));
        self.finish_turn(row, Finish { delivery, ..Finish::default() }).await;
    }

    /// Stores a message's end and starts what it leads to. `None`: it had ended before, or the gateway stops.
    async fn finish(&self, row: &InboxRow, finish: Finish) -> Option<crate::store::Finished> {
        let finish = Finish { also: row.joined.clone(), ..finish };
        let targets: Vec<ChatTarget> = finish.replies.iter().map(|reply| reply.target.clone()).collect();
        let finished = self.until_stored(|| self.0.store.finish(row.id, finish.clone())).await??;
        targets.iter().for_each(|target| self.send_waiting(target));
        self.settled(&row.accepted.message, finish.replies.len());
        finished
            .closed
            .iter()
            .filter_map(|closed| closed.message.as_deref())
            .for_each(|message| self.settled(message, 0));
        Some(finished)
    }

    /// Tells the platform that the message is through, with so many replies on their way.
    fn settled(&self, message: &InboundMessage, replies: usize) {
        if let Some(adapter) = self.adapter_of(&message.source) {
            adapter.settled(&message.source.reply_target(), &message.message_id, replies);
        }
    }

    /// A text as replies to where the message's answers go.
    fn replies(&self, row: &InboxRow, text: &str) -> Vec<NewReply> {
        let message = &row.accepted.message;
        let home = message.source.reply_target();
        let targets: Vec<ChatTarget> = match row.accepted.deliver.as_slice() {
            [] => vec![home.clone()],
            targets => targets
                .iter()
                .filter_map(|target| match target {
                    Target::Chat(chat) => Some(chat.clone()),
                    Target::Log => None,
                })
                .collect(),
        };
        targets
            .into_iter()
            .map(|target| NewReply {
                parts: self.split(&target, text),
                reply_to: (target == home).then(|| message.message_id.clone()),
                delivery: row.accepted.delivery.clone(),
                session_key: Some(row.session_key.clone()),
                target,
            })
            .filter(|reply| !reply.parts.is_empty())
            .collect()
    }

    /// The answer to a webhook whose target is the log.
    fn log_answer(&self, row: &InboxRow, answer: &str) {
        let Some(delivery) = &row.accepted.delivery else { return };
        if row.accepted.deliver.contains(&Target::Log) {
            let start: String = answer.chars().take(200).collect();
            tracing::info!(route = %delivery.route, delivery_id = %delivery.delivery_id, answer = ?start, "A webhook was answered.");
        }
    }

    /// Shows "typing…" in the chats that will hear the answer, until the guard goes.
    fn typing(&self, row: &InboxRow) -> tokio_util::sync::DropGuard {
        let done = CancellationToken::new();
        let source = &row.accepted.message.source;
        if row.accepted.delivery.is_none()
            && let Some(adapter) = self.adapter_of(source)
        {
            let (adapter, target, done): (Arc<dyn Adapter>, _, _) =
                (Arc::clone(adapter), source.reply_target(), done.clone());
            tokio::spawn(async move {
                let show = async {
                    tokio::time::sleep(TYPING_AFTER).await;
                    loop {
                        adapter.typing(&target).await;
                        tokio::time::sleep(TYPING_EVERY).await;
                    }
                };
                tokio::select! {
                    () = show => {}
                    () = done.cancelled() => {}
                }
            });
        }
        done.drop_guard()
    }

    /// Repeats a store call until it works. `None` when the gateway stops first, or the call fails for a reason of our own.
    pub(super) async fn until_stored<T, F>(&self, mut call: impl FnMut() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut pause = Duration::from_millis(50);
        let mut internal = 0;
        loop {
            match self.0.health.watch(call().await) {
                Ok(value) => return Some(value),
                Err(StoreError::Internal(_)) if internal == INTERNAL_ATTEMPTS => return None,
                Err(StoreError::Internal(_)) => internal += 1,
                Err(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(2)),
                () = self.0.abort.cancelled() => return None,
            }
        }
    }
}

/// What the model reads: a person's words, with their name where several share the session, what came with them and what
/// they answer (`spec/hermes-gateway.md` §2.9); or a webhook's text inside a fence it cannot close.
fn question(row: &InboxRow, sharing: Sharing) -> String {
    let InboundMessage { text, source, media, quoted, .. } = &row.accepted.message;
    if row.accepted.delivery.is_some() {
        return template::fence(text);
    }
    let mut question = String::new();
    if let Some(quoted) = quoted.as_ref().and_then(|quoted| quoted.text.as_deref()).filter(|text| !is_blank(text)) {
        let quoted = one_line(quoted);
        question.push_str(&format!("[Replying to: \"{quoted}\"]\n"));
    }
    if !media.is_empty() {
        let media = media.iter().map(|note| match &note.name {
            Some(name) => format!("{} \"{}\"", note.kind, one_line(name)),
            None => note.kind.clone(),
        });
        let media: Vec<String> = media.collect();
        question.push_str(&format!("[Attached, and not readable here: {}]\n", media.join(", ")));
    }
    if let Some(name) = source.user_name.as_ref().filter(|_| sharing.is_shared(source)) {
        question.push_str(&format!("[{}] ", one_line(name)));
    }
    question.push_str(text);
    question
}

/// Text of others inside a line of ours: nobody may write something that reads like a line of somebody else.
fn one_line(text: &str) -> String {
    let breaks = |c: char| {
        c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if breaks(c) { ' ' } else { c }).filter(|c| !"[]".contains(*c)).take(QUOTED_CHARS).collect()
}

/// Why a message's session ends with it, if it does.
fn ends_with_its_delivery(row: &InboxRow) -> Option<&'static str> {
    is_alone(&row.accepted).then_some("webhook_complete")
}
