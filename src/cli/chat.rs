//! `hookgate chat`: each line on standard input is a message; at its end the answers that are still to come are awaited.

use std::collections::{HashMap, VecDeque};
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt as _;
use secrecy::SecretString;
use tokio::io::{AsyncBufReadExt as _, BufReader, Split, Stdin};
use tokio_util::sync::CancellationToken;

use super::Context;
use super::output::note;
use crate::app::{App, Options};
use crate::client::{ChatEvent, ChatEvents, GatewayClient, NotSaid};
use crate::config::Config;
use crate::console::{Say, check_chat_name};
use crate::error::UserError;
use crate::store::lock::HomeLock;

/// A gateway that went away may come back, so long.
const COMES_BACK: Duration = Duration::from_secs(30);
/// Messages sent without an answer yet; beyond it the next line waits.
const AHEAD: usize = 100;

#[derive(Debug, Args)]
pub(super) struct ChatCommand {
    /// The conversation's name: letters, digits, - and _
    #[arg(long, default_value = "cli", value_name = "NAME", value_parser = check_chat_name)]
    chat: String,
}

pub(super) async fn run(context: &Context, command: ChatCommand) -> Result<u8, UserError> {
    let config = context.quiet_config()?;
    if HomeLock::holder(&config.home).is_some() {
        let client = GatewayClient::of(&config.home)?;
        converse(context, client, Some(&config.home), &command.chat).await?;
        return Ok(0);
    }
    if std::io::stdin().is_terminal() {
        super::output::note("No gateway runs on this home; this chat is answered here, and ends with it.");
    }
    let (app, client) = local_gateway(config).await?;
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(app.run(shutdown.clone()));
    let outcome = converse(context, client, None, &command.chat).await;
    shutdown.cancel();
    running.await.map_err(|error| UserError::failed(format!("The local gateway failed: {error}.")))??;
    outcome.map(|()| 0)
}

/// A gateway in this process that serves this chat only.
async fn local_gateway(config: Config) -> Result<(App, GatewayClient), UserError> {
    crate::logging::start(Some("warn"), false)?;
    let app = App::build(config, Options { only_local: true, ..Options::default() }).await?;
    let summary = app.summary();
    let (url, token) = summary
        .page()
        .and_then(|page| page.split_once("/?token="))
        .ok_or_else(|| UserError::failed("The local gateway has no address."))?;
    let client = GatewayClient::new(url.to_owned(), SecretString::from(token));
    Ok((app, client))
}

/// Messages on their way, in the order they were said.
#[derive(Default)]
struct Pending {
    order: VecDeque<Say>,
    /// How many replies each message still gets; unknown before it is settled.
    replies: HashMap<String, usize>,
    /// Replies, each with its id, by the message they answer, until it is their turn to be printed.
    texts: HashMap<String, Vec<(String, String)>>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// What can be printed now: the replies of the first messages, in order.
    fn ready(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(first) = self.order.front() {
            let arrived = self.texts.get(&first.id).map_or(0, Vec::len);
            if self.replies.get(&first.id).is_none_or(|wanted| arrived < *wanted) {
                break;
            }
            self.replies.remove(&first.id);
            lines.extend(self.texts.remove(&first.id).unwrap_or_default().into_iter().map(|(_, text)| text));
            self.order.pop_front();
        }
        lines
    }
}

impl Pending {
    /// A reply arrived, perhaps again: what is read after a gap can also be on its way. Whether it is for one of these
    /// messages.
    fn take(&mut self, message: &str, id: &str, text: &str) -> bool {
        if !self.order.iter().any(|say| say.id == message) {
            return false;
        }
        let texts = self.texts.entry(message.to_owned()).or_default();
        if texts.iter().all(|(known, _)| known != id) {
            texts.push((id.to_owned(), text.to_owned()));
        }
        true
    }
}

/// `home`: where a gateway that went away is looked for again.
async fn converse(
    context: &Context,
    mut client: GatewayClient,
    home: Option<&Path>,
    chat: &str,
) -> Result<(), UserError> {
    let interactive = std::io::stdin().is_terminal();
    if interactive {
        note("Write a line and press Enter; /help lists the commands; Ctrl-D ends.");
    }
    let mut input: Option<Split<BufReader<Stdin>>> = Some(BufReader::new(tokio::io::stdin()).split(b'\n'));
    let mut pending = Pending::default();
    let mut events = follow(&client, chat).await?;
    let mut number = 0_u64;
    let run = uuid();
    let mut answers = Vec::new();
    while input.is_some() || !pending.is_empty() {
        let takes_lines = pending.order.len() < AHEAD;
        tokio::select! {
            line = next_line(&mut input), if takes_lines && input.is_some() => match line {
                Some(text) if text.trim().is_empty() => {}
                Some(text) => {
                    number += 1;
                    let say = Say { chat: Some(chat.to_owned()), id: format!("{run}-{number}"), text };
                    let said = client.say(&say).await;
                    pending.order.push_back(say);
                    match said {
                        Ok(_) => {}
                        Err(NotSaid::Away(_)) if home.is_some() => {
                            events = come_back(&mut client, home, chat, &mut pending).await?;
                        }
                        Err(NotSaid::Away(error) | NotSaid::Refused(error)) => return Err(error),
                    }
                }
                None => input = None,
            },
            event = events.next() => match event {
                // What was missed is read again, as after the gateway was away.
                Some(ChatEvent::Reload) => events = come_back(&mut client, home, chat, &mut pending).await?,
                Some(event) => take(event, &mut pending, context, interactive),
                None => events = come_back(&mut client, home, chat, &mut pending).await?,
            },
        }
        for text in pending.ready() {
            context.output.line(&text);
            if context.output.json {
                answers.push(serde_json::json!({ "text": text }));
            }
        }
    }
    context.output.result(&answers, String::new);
    Ok(())
}

fn take(event: ChatEvent, pending: &mut Pending, context: &Context, interactive: bool) {
    match event {
        // A question does not wait for the end of the turn that waits for its answer.
        ChatEvent::Message { text, buttons, .. } if !buttons.is_empty() => context.output.line(&text),
        ChatEvent::Message { reply_to: Some(message), id, text, .. } if pending.take(&message, &id, &text) => {}
        // What others send here (a webhook) is shown to a person, and is no answer for a script.
        ChatEvent::Message { text, .. } if interactive => context.output.line(&text),
        ChatEvent::Settled { message_id, replies } => {
            pending.replies.insert(message_id, replies);
        }
        _ => {}
    }
}

/// The next line; `None` at the end of the input. What is not UTF-8 in it is replaced, not dropped.
async fn next_line(input: &mut Option<Split<BufReader<Stdin>>>) -> Option<String> {
    let line = input.as_mut()?.next_segment().await.ok().flatten()?;
    Some(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned())
}

async fn follow(client: &GatewayClient, chat: &str) -> Result<ChatEvents, UserError> {
    let mut events = client.follow(chat).await?;
    while let Some(event) = events.next().await {
        if event == ChatEvent::Ready {
            return Ok(events);
        }
    }
    Err(UserError::failed("The gateway went away."))
}

/// The gateway went away: waits for it, says again what has no answer (it is answered once), and takes the replies that
/// came meanwhile.
async fn come_back(
    client: &mut GatewayClient,
    home: Option<&Path>,
    chat: &str,
    pending: &mut Pending,
) -> Result<ChatEvents, UserError> {
    let order = &pending.order;
    let again = async {
        loop {
            if let Ok(found) = home.map_or_else(|| Ok(client.clone()), GatewayClient::of)
                && let Ok(events) = follow(&found, chat).await
                && let Some(through) = say_all(&found, order).await
            {
                return (found, events, through);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let (found, events, through) = tokio::time::timeout(COMES_BACK, again).await.map_err(|_| {
        UserError::failed(
            "The gateway went away and did not come back; what it had taken is answered when it runs again.",
        )
    })?;
    *client = found;
    for line in client.history(chat).await? {
        if let (Some(message), Some(id), true) = (line.reply_to, line.id, line.buttons.is_empty()) {
            pending.take(&message, &id, &line.text);
        }
    }
    pending.replies.extend(through);
    Ok(events)
}

/// Says everything again; how many replies those got that are through. `None` when the gateway is not there.
async fn say_all(client: &GatewayClient, order: &VecDeque<Say>) -> Option<Vec<(String, usize)>> {
    let mut through = Vec::new();
    for say in order {
        if let Some(replies) = client.say(say).await.ok()? {
            through.push((say.id.clone(), replies));
        }
    }
    Some(through)
}

/// Tells this run's messages from those of others.
fn uuid() -> String {
    hex::encode(rand::random::<[u8; 8]>())
}
