//! Every text the gateway itself says in a chat.

use crate::session::Session;

pub(super) const NEW_SESSION: &str = "A new session has begun.";
pub(super) const STOPPED: &str = "Stopped.";
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
