//! Where the gateway's moments become hook payloads. Payloads are a public wire format: they are filled here and nowhere
//! else on the message path, and are not built when no hook wants them.

use hookgate_adapters::Source;
use hookgate_hooks::payload::{
    AgentEnd, AgentStart, Command, DispatchEvent, DispatchMedia, DispatchSource, Excerpt, MessageReceived, MessageSent,
    NewSession, OnSessionFinalize, OnSessionReset, PreGatewayDispatch, SessionEnd, SessionReset, SessionStart,
    TurnStatus, WebhookReceived,
};
use hookgate_hooks::{Directive, Event};

use super::Gateway;
use super::handle::Call;
use crate::agent::TurnOutcome;
use crate::session::{Session, SessionKey};
use crate::store::{DeliveryRef, InboxRow, OutboxRow, SessionedMessage};

impl Gateway {
    /// A copy of a message that is about to be stored, when somebody wants to hear of it.
    pub(super) fn to_be_told(&self, message: &SessionedMessage) -> Option<SessionedMessage> {
        self.0.hooks.wants(&Event::MESSAGE_RECEIVED).then(|| message.clone())
    }

    /// The message was stored: told once, also when it is handled again or never.
    pub(super) fn tell_received(&self, stored: Option<&SessionedMessage>) {
        let Some(SessionedMessage { session_key, accepted }) = stored else { return };
        self.0.hooks.emit(&Event::MESSAGE_RECEIVED, || {
            let (message, source) = (&accepted.message, &accepted.message.source);
            MessageReceived {
                platform: source.platform.to_string(),
                chat_id: source.chat_id.clone(),
                chat_type: source.chat_type.as_str().to_owned(),
                user_id: source.user_id.clone(),
                user_name: source.user_name.clone(),
                thread_id: source.thread_id.clone(),
                message_id: message.message_id.clone(),
                text: message.text.clone(),
                session_key: session_key.to_string(),
            }
        });
    }

    pub(super) fn tell_delivery(&self, delivery: &DeliveryRef, event: &str) {
        self.0.hooks.emit(&Event::WEBHOOK_RECEIVED, || WebhookReceived {
            route: delivery.route.clone(),
            event: event.to_owned(),
            delivery_id: delivery.delivery_id.clone(),
        });
    }

    pub(super) async fn ask_dispatch(&self, row: &InboxRow) -> Directive {
        self.0.hooks.ask(&Event::PRE_GATEWAY_DISPATCH, || PreGatewayDispatch { event: dispatch_event(row) }).await
    }

    pub(super) async fn ask_command(&self, row: &InboxRow, event: Event, call: &Call) -> Directive {
        let source = &row.accepted.message.source;
        let event = event.typed_as(&call.typed);
        let payload =
            || Command::new(source.platform.as_str(), source.user_id.as_deref(), &call.name, &call.typed, &call.args);
        self.0.hooks.ask(&event, payload).await
    }

    pub(super) fn tell_session_start(&self, source: &Source, session: &Session, reason: &str) {
        self.0.hooks.emit(&Event::SESSION_START, || SessionStart {
            platform: source.platform.to_string(),
            user_id: source.user_id.clone(),
            session_id: session.id.clone(),
            session_key: session.key.to_string(),
            reason: reason.to_owned(),
        });
    }

    pub(super) fn tell_agent_start(&self, source: &Source, session: &Session, text: &str) {
        self.0.hooks.emit(&Event::AGENT_START, || agent_start(source, session, text));
    }

    pub(super) fn tell_agent_end(&self, source: &Source, session: &Session, text: &str, outcome: &TurnOutcome) {
        self.0.hooks.emit(&Event::AGENT_END, || {
            let (response, status, error) = match outcome {
                TurnOutcome::Answer(answer) => (answer.as_str(), TurnStatus::Completed, None),
                TurnOutcome::Failed { for_user, .. } => ("", TurnStatus::Failed, Some(for_user.clone())),
                TurnOutcome::Interrupted => ("", TurnStatus::Interrupted, None),
            };
            AgentEnd { start: agent_start(source, session, text), response: Excerpt::of(response), status, error }
        });
    }

    /// `/new`, in the reference's order (`spec/hermes-hooks.md` §4).
    pub(super) fn tell_reset(&self, source: &Source, key: &SessionKey, old: Option<&str>, new: &str) {
        let platform = source.platform.as_str();
        let sessions = || NewSession { old_session_id: old.map(str::to_owned), new_session_id: new.to_owned() };
        self.0.hooks.emit(&Event::ON_SESSION_FINALIZE, || OnSessionFinalize::new_session(platform, sessions()));
        if let Some(old) = old {
            self.tell_session_end(source, key, old, "reset");
        }
        self.0.hooks.emit(&Event::SESSION_RESET, || SessionReset {
            platform: platform.to_owned(),
            user_id: source.user_id.clone(),
            session_key: key.to_string(),
            reason: "reset".into(),
        });
        self.0.hooks.emit(&Event::ON_SESSION_RESET, || OnSessionReset::new_session(platform, sessions()));
    }

    /// A session rested too long, or its day is over.
    pub(super) fn tell_expired(&self, session: &Session, reason: &'static str) {
        self.0.hooks.emit(&Event::ON_SESSION_FINALIZE, || OnSessionFinalize::expired(&session.id, &session.platform));
        self.tell_stored_end(session, reason);
    }

    /// The end of a session of which only the record is at hand.
    fn tell_stored_end(&self, session: &Session, reason: &'static str) {
        self.0.hooks.emit(&Event::SESSION_END, || SessionEnd {
            platform: session.platform.clone(),
            user_id: session.user_id.clone(),
            session_key: session.key.to_string(),
            session_id: session.id.clone(),
            reason: reason.to_owned(),
        });
    }

    /// The operator ended a session from outside.
    pub(super) fn tell_ended(&self, session: &Session) {
        self.0.hooks.emit(&Event::ON_SESSION_FINALIZE, || OnSessionFinalize::boundary(&session.id, &session.platform));
        self.tell_stored_end(session, "reset");
        self.0.hooks.emit(&Event::SESSION_RESET, || SessionReset {
            platform: session.platform.clone(),
            user_id: session.user_id.clone(),
            session_key: session.key.to_string(),
            reason: "reset".into(),
        });
    }

    pub(super) fn tell_session_end(&self, source: &Source, key: &SessionKey, session_id: &str, reason: &str) {
        self.0.hooks.emit(&Event::SESSION_END, || SessionEnd {
            platform: source.platform.to_string(),
            user_id: source.user_id.clone(),
            session_key: key.to_string(),
            session_id: session_id.to_owned(),
            reason: reason.to_owned(),
        });
    }

    /// The gateway stops in the middle of a session's turn.
    pub(super) fn tell_shutdown(&self, session_id: &str) {
        self.0.hooks.emit(&Event::ON_SESSION_FINALIZE, || OnSessionFinalize::shutdown(session_id));
    }

    pub(super) fn tell_sent(&self, row: &OutboxRow, message_id: &str) {
        self.0.hooks.emit(&Event::MESSAGE_SENT, || MessageSent {
            platform: row.target.platform.to_string(),
            chat_id: row.target.chat_id.clone(),
            thread_id: row.target.thread_id.clone(),
            message_id: Some(message_id.to_owned()),
            reply_to: row.reply_to.clone(),
            text: row.part.plain.clone(),
            part: row.number,
            parts: row.of,
            session_key: row.session_key.as_ref().map(ToString::to_string),
        });
    }
}

fn agent_start(source: &Source, session: &Session, text: &str) -> AgentStart {
    AgentStart {
        platform: source.platform.to_string(),
        user_id: source.user_id.clone(),
        chat_id: source.chat_id.clone(),
        thread_id: source.thread_id.clone().unwrap_or_default(),
        chat_type: source.chat_type.as_str().to_owned(),
        session_id: session.id.clone(),
        message: Excerpt::of(text),
    }
}

fn dispatch_event(row: &InboxRow) -> DispatchEvent {
    let message = &row.accepted.message;
    let source = &message.source;
    let quoted = message.quoted.as_ref();
    DispatchEvent {
        text: message.text.clone(),
        message_type: message_type(row).to_owned(),
        source: DispatchSource {
            platform: source.platform.to_string(),
            chat_id: source.chat_id.clone(),
            chat_name: source.chat_name.clone(),
            chat_type: source.chat_type.as_str().to_owned(),
            user_id: source.user_id.clone(),
            user_name: source.user_name.clone(),
            thread_id: source.thread_id.clone(),
            is_bot: source.is_bot,
            message_id: Some(message.message_id.clone()),
            ..DispatchSource::default()
        },
        message_id: Some(message.message_id.clone()),
        media: message
            .media
            .iter()
            .map(|media| DispatchMedia { kind: media.kind.clone(), name: media.name.clone() })
            .collect(),
        reply_to_message_id: quoted.map(|quoted| quoted.message_id.clone()),
        reply_to_text: quoted.and_then(|quoted| quoted.text.clone()),
        reply_to_is_own_message: quoted.is_some_and(|quoted| quoted.is_own),
        metadata: serde_json::Map::from_iter([("addressed".to_owned(), message.addressed.into())]),
        timestamp: jiff::Timestamp::from_millisecond(message.sent_at).map(|time| time.to_string()).unwrap_or_default(),
        ..DispatchEvent::default()
    }
}

/// The reference's kinds (`spec/hermes-gateway.md` §2.4).
fn message_type(row: &InboxRow) -> &str {
    let message = &row.accepted.message;
    match message.media.first() {
        Some(media) => &media.kind,
        None if super::is_command(&row.accepted) => "command",
        None => "text",
    }
}
