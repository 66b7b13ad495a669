//! Every text the gateway itself says in a chat.

use std::time::Duration;

use crate::session::Session;

pub(super) const NEW_SESSION: &str = "A new session has begun.";
/// `/new` where it is to be confirmed.
pub(super) const CONFIRM_NEW: &str = "Begin a new session? The one so far is kept, but not gone on with.";
pub(super) const CONFIRM: &str = "Yes";
pub(super) const KEEP: &str = "No";
pub(super) const SESSION_KEPT: &str = "The session goes on as it was.";
pub(super) const STOPPED: &str = "Stopped.";
/// What the model reads as its answer to what was stopped.
pub(super) const STOPPED_BEFORE: &str = "(I was stopped before I answered this.)";
pub(super) const NOTHING_TO_STOP: &str = "Nothing is running.";
pub(super) const ONLY_TEXT: &str = "I can only read text so far. Please write what it is about.";

/// `/new` closed messages that had not been answered.
pub(super) fn new_session_closed(waiting: usize) -> String {
    match waiting {
        0 => NEW_SESSION.into(),
        1 => format!("{NEW_SESSION} One message that waited before it is left unanswered."),
        _ => format!("{NEW_SESSION} {waiting} messages that waited before it are left unanswered."),
    }
}

/// The conversation before this one ended by itself.
pub(super) fn session_over(reason: &str) -> String {
    let why = if reason == "idle" { "rested for long" } else { "was from another day" };
    format!("The conversation before {why}; this is a new one.")
}

/// Not a command we know.
pub(super) fn unknown_command(name: &str) -> String {
    format!("Unknown command /{name}. /help lists the commands.")
}

/// The session's queue is full.
pub(super) fn too_many_waiting(limit: usize) -> String {
    format!("{limit} messages wait for an answer here already; this one was not taken. Please send it again later.")
}

/// The message's turn took the gateway down again and again.
pub(super) fn given_up(attempts: i64) -> String {
    format!(
        "This message could not be answered: the gateway was interrupted {attempts} times while it worked on it. \
         Please ask again, perhaps in other words."
    )
}

/// A command of the admins was called by somebody else.
pub(super) fn admins_only(name: &str, allowed: &[String]) -> String {
    let allowed = allowed.iter().map(|name| name.trim_start_matches('/')).filter(|name| *name != "help");
    let allowed: Vec<String> = ["help"].into_iter().chain(allowed).map(|name| format!("/{name}")).collect();
    format!("/{name} is for admins only. You may use: {}.", allowed.join(", "))
}

/// A guest called a command.
pub(super) const GUESTS_TALK: &str = "Guests may only talk here; /help and /status work too.";

/// Somebody who is neither owner nor admin wanted to end what others share.
pub(super) const SHARED_SESSION: &str = "Others share this session; only an owner or admin may begin a new one.";

/// A command was refused by a hook that gave no words.
pub(super) const COMMAND_DENIED: &str = "This command is not allowed here.";

/// A hook refused the message and gave no words.
pub(super) fn blocked(reason: &str) -> String {
    format!("This message was blocked: {reason}")
}

/// `/status`.
pub(super) fn status(session: Option<&Session>, busy: bool, waiting: usize, model: &str) -> String {
    let session = match session {
        Some(session) => format!("{} ({} messages)", session.id, session.messages),
        None => "none yet".into(),
    };
    format!(
        "session: {session}\nrunning: {}\nwaiting: {waiting}\nmodel: {model}\nversion: hookgate {}",
        if busy { "yes" } else { "no" },
        env!("CARGO_PKG_VERSION")
    )
}

/// A question whose turn is gone was left in the chat.
pub(super) const QUESTION_OF_BEFORE: &str = "This request is no longer valid: the turn that asked is over.";

/// A button of it was pressed.
pub(super) const NO_LONGER_OPEN: &str = "This button is no longer valid.";

/// A button was pressed by somebody who may not.
pub(super) const NOT_YOURS: &str = "This is not for you to decide.";

/// The turn ended before anybody answered.
pub(super) const WITHDRAWN: &str = "Withdrawn: the turn that asked was stopped.";

/// Nobody answered an approval.
pub(super) const APPROVAL_EXPIRED: &str = "Expired: nobody answered in time. It was not run.";

/// Nobody answered a question.
pub(super) const QUESTION_EXPIRED: &str = "Expired: nobody answered in time.";

/// `/approve` or `/deny` without anything to decide.
pub(super) const NOTHING_TO_DECIDE: &str = "There is nothing to approve or deny here.";

/// Somebody may not decide about approvals.
pub(super) const MAY_NOT_APPROVE: &str = "Only an owner or admin may approve or deny.";

/// `/yolo`.
pub(super) fn yolo(is_on: bool) -> &'static str {
    if is_on {
        "Yolo is on: in this session nothing is asked any more. What never runs still never runs. /yolo turns it off."
    } else {
        "Yolo is off: approvals are asked for again."
    }
}

/// Text that is shown as it is, in a fence it cannot close.
pub(super) fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{text}\n{fence}")
}

/// A request for approval.
pub(super) fn approval_card(description: &str, command: &str, timeout: Duration) -> String {
    format!(
        "**Approval needed:** {}\n{}\nAnswer with /approve, /approve session, /approve always or /deny (with a reason, if \
         you like) within {} s.",
        plain(description),
        fenced(command),
        timeout.as_secs()
    )
}

/// A question of the model.
pub(super) fn question_card(question: &str, options: &[String]) -> String {
    let mut text = question.to_owned();
    for (number, option) in options.iter().enumerate() {
        text.push_str(&format!("\n{}. {}", number + 1, plain(option)));
    }
    text
}

/// How a request was decided.
pub(super) fn decided(choice: &str, by: &str) -> String {
    let by = plain(by);
    match choice {
        "deny" => format!("Denied by {by}."),
        "once" => format!("Approved once by {by}."),
        "session" => format!("Approved for this session by {by}."),
        _ => format!("Approved from now on by {by}."),
    }
}

/// How a question was answered.
pub(super) fn answered(question: &str, answer: &str, by: &str) -> String {
    let answer: String = answer.chars().take(300).collect();
    format!("{question}\n\n{}: {}", plain(by), plain(&answer))
}

/// Nobody could be asked; for the model, which passes it on.
pub(super) fn cannot_ask(why: &str) -> String {
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    format!("it needs the approval of a person, and nobody could be asked{why}; it was not run")
}

/// No chat in which somebody could be asked.
pub(super) const NO_CHAT_TO_ASK: &str =
    "the answer of this turn goes to no chat; let its route deliver to a chat where somebody may approve";

/// The only person in the chat may not approve.
pub(super) const NOBODY_MAY_APPROVE: &str =
    "with `roles:` set only owners and admins may approve, and none of them is in this chat";

/// The turn had begun to act when the gateway stopped.
pub(super) fn interrupted_in_the_middle(effects: &[String]) -> String {
    format!(
        "I was interrupted in the middle of this, by a stop or a crash of the gateway. I had used {} by then and do not \
         repeat that by myself. Please look at what was done, and ask again for what is missing.",
        effects.join(", ")
    )
}

/// Markdown of others reads as it is written.
fn plain(text: &str) -> String {
    text.chars().flat_map(|c| if "\\`*_~|[]<>#".contains(c) { vec!['\\', c] } else { vec![c] }).collect()
}
