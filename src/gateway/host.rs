//! The gateway as a turn's tools see it: who is asked, where a text goes, what must not be done twice.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use hookgate_adapters::{ChatTarget, ChatType, Platform};
use hookgate_hooks::payload::TransformTerminalOutput;
use hookgate_hooks::{Directive, Event};
use tokio::sync::OwnedSemaphorePermit;

use super::approvals::Asker;
use super::{Gateway, texts};
use crate::agent::tools::{Approval, ApprovalRequest, Host, Standing};
use crate::redact::redact;
use crate::store::{InboxRow, NewReply, Target};

/// The gateway around one turn.
pub(super) struct TurnHost {
    gateway: Gateway,
    row: InboxRow,
    session_id: String,
    turn_id: String,
    /// Tools whose effects are noted.
    noted: Mutex<HashSet<String>>,
    /// The turn's place among the running ones; given away while a person is waited for.
    place: tokio::sync::Mutex<Option<OwnedSemaphorePermit>>,
    waiting: AtomicUsize,
}

impl TurnHost {
    pub(super) fn new(gateway: &Gateway, row: &InboxRow, session_id: &str, place: OwnedSemaphorePermit) -> Self {
        Self {
            gateway: gateway.clone(),
            row: row.clone(),
            session_id: session_id.to_owned(),
            turn_id: row.id.0.to_string(),
            noted: Mutex::default(),
            place: tokio::sync::Mutex::new(Some(place)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The turn is over: its place is free.
    pub(super) async fn leave(&self) {
        drop(self.place.lock().await.take());
    }

    /// Where people who follow the turn can be asked. `Err`: nowhere; why.
    fn asker(&self) -> Result<Asker<'_>, String> {
        let message = &self.row.accepted.message;
        let source = &message.source;
        let target = if self.row.accepted.delivery.is_some() {
            let chat = self.row.accepted.deliver.iter().find_map(|target| match target {
                Target::Chat(chat) => Some(chat.clone()),
                Target::Log => None,
            });
            chat.ok_or_else(|| texts::cannot_ask(texts::NO_CHAT_TO_ASK))?
        } else {
            source.reply_target()
        };
        let in_group = !matches!(source.chat_type, ChatType::Dm | ChatType::Webhook);
        Ok(Asker {
            target,
            reply_to: in_group.then(|| message.message_id.clone()),
            session_key: &self.row.session_key,
            session_id: &self.session_id,
            turn_id: &self.turn_id,
        })
    }

    /// Waits for people without holding up other turns.
    async fn without_place<T>(&self, wait: impl Future<Output = T> + Send) -> T {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        drop(self.place.lock().await.take());
        let outcome = wait.await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let mut place = self.place.lock().await;
        if place.is_none() && self.waiting.load(Ordering::Relaxed) == 0 {
            *place = Arc::clone(&self.gateway.0.turns).acquire_owned().await.ok();
        }
        outcome
    }
}

#[async_trait]
impl Host for TurnHost {
    async fn note_effect(&self, what: &str) -> Result<(), String> {
        if self.noted.lock().unwrap_or_else(PoisonError::into_inner).contains(what) {
            return Ok(());
        }
        let store = &self.gateway.0.store;
        let noted = self.gateway.until_stored(|| store.note_effect(self.row.id, what)).await;
        noted.ok_or("the turn is over, so nothing is done any more")?;
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned());
        Ok(())
    }

    fn standing(&self, request: &ApprovalRequest) -> Standing {
        match self.asker() {
            Ok(asker) => self.gateway.standing(&asker, request),
            Err(_) => self.gateway.standing_nowhere(request),
        }
    }

    async fn approve(&self, request: ApprovalRequest) -> Approval {
        let asker = match self.asker() {
            Ok(asker) => asker,
            Err(why) => return self.gateway.not_asked(&self.row, &self.turn_id, &request, why),
        };
        let source = &self.row.accepted.message.source;
        let is_alone = self.row.accepted.delivery.is_none() && source.chat_type == ChatType::Dm;
        if is_alone && !self.gateway.0.access.may_approve(source) {
            let why = texts::cannot_ask(texts::NOBODY_MAY_APPROVE);
            return self.gateway.not_asked(&self.row, &self.turn_id, &request, why);
        }
        self.without_place(self.gateway.ask_approval(&asker, &request)).await
    }

    async fn transform_terminal_output(&self, command: &str, cwd: &Path, output: String, exit_code: i32) -> String {
        let payload = || TransformTerminalOutput {
            command: command.to_owned(),
            output: output.clone(),
            returncode: exit_code,
            exit_code,
            task_id: self.session_id.clone(),
            cwd: cwd.display().to_string(),
            env_type: "local",
        };
        match self.gateway.0.hooks.ask(&Event::TRANSFORM_TERMINAL_OUTPUT, payload).await {
            Directive::Replace(text) => text,
            Directive::Block { reason } => format!("BLOCKED: {reason}"),
            _ => output,
        }
    }

    async fn send_message(&self, target: Option<&str>, text: &str) -> Result<String, String> {
        let text = redact(text);
        let targets = match target {
            Some(target) => vec![self.gateway.target_named(target)?],
            None => match self.row.accepted.deliver.as_slice() {
                [] => vec![self.row.accepted.message.source.reply_target()],
                targets => targets
                    .iter()
                    .filter_map(|target| match target {
                        Target::Chat(chat) => Some(chat.clone()),
                        Target::Log => None,
                    })
                    .collect(),
            },
        };
        if targets.is_empty() {
            return Err("this turn's answer goes to the log; name a target such as `telegram:42`".to_owned());
        }
        for target in &targets {
            let reply = NewReply {
                parts: self.gateway.split(target, &text),
                target: target.clone(),
                reply_to: None,
                delivery: None,
                session_key: Some(self.row.session_key.clone()),
            };
            if reply.parts.is_empty() {
                return Err("the text is empty".to_owned());
            }
            let store = &self.gateway.0.store;
            let stored = self.gateway.until_stored(|| store.send(reply.clone())).await;
            stored.ok_or("the gateway is stopping, so nothing was sent")?;
            self.gateway.send_waiting(target);
        }
        Ok(targets.iter().map(ChatTarget::to_string).collect::<Vec<_>>().join(", "))
    }

    async fn clarify(&self, question: &str, options: &[String]) -> Result<String, String> {
        if self.row.accepted.delivery.is_some() {
            return Err(
                "this turn was started by a webhook: nobody is there to answer; decide by what you know".to_owned()
            );
        }
        let asker = self.asker()?;
        self.without_place(self.gateway.ask_question(&asker, question, options)).await
    }
}

impl Gateway {
    /// A chat as `send_message` names it: `platform[@account]:chat[:thread]`, on a platform that is running.
    fn target_named(&self, name: &str) -> Result<ChatTarget, String> {
        let wrong =
            || format!("`{name}` is no target; write it as platform:chat or platform:chat:thread, such as telegram:42");
        let mut fields = name.trim().splitn(3, ':');
        let (platform, chat) = (fields.next().unwrap_or_default(), fields.next().ok_or_else(wrong)?);
        let (platform, account) = platform.split_once('@').unwrap_or((platform, ""));
        let platform: Platform = platform.parse().map_err(|_| wrong())?;
        if chat.trim().is_empty() {
            return Err(wrong());
        }
        let target = ChatTarget {
            platform,
            account: account.to_owned(),
            chat_id: chat.trim().to_owned(),
            thread_id: fields.next().map(str::trim).filter(|thread| !thread.is_empty()).map(str::to_owned),
        };
        match self.adapter(&target) {
            Some(_) => Ok(target),
            None => Err(format!("{} is not running here", platform.with_account(account))),
        }
    }
}
