//! `hookgate setup`: asks for what a first Telegram bot needs, checks the token with Telegram, and writes `.env` in one step.
//! Questions go to standard error, answers come from standard input, so it can be piped.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::Context;
use super::output::note;
use crate::error::UserError;
use crate::files::write_atomically;

/// Asking Telegram takes no longer.
const ASK: Duration = Duration::from_secs(10);
/// Wrong answers to one question before it gives up.
const TRIES: u32 = 3;
const TELEGRAM: &str = "https://api.telegram.org";

pub(super) async fn run(context: &Context) -> Result<u8, UserError> {
    let loaded = context.load();
    let home = loaded
        .home
        .clone()
        .ok_or_else(|| context.config().err().unwrap_or_else(|| UserError::failed("There is no home directory.")))?;
    let telegram = loaded.config.as_ref().and_then(|config| config.telegram.get(""));
    let base_url = telegram.map_or(TELEGRAM, |telegram| telegram.base_url.as_str());
    let proxy = telegram.and_then(|telegram| telegram.proxy.as_ref());
    note(&format!("hookgate setup writes {}. An empty answer keeps what is there.", home.join(".env").display()));

    let mut values = BTreeMap::new();
    let mut bot = None;
    for attempt in 1..=TRIES {
        let Some(token) = ask("Telegram bot token (from @BotFather): ")? else { break };
        let token = SecretString::from(token);
        crate::redact::add([&token]);
        match hookgate_adapters::check_token(base_url, token.clone(), proxy, ASK).await {
            Ok(name) => {
                note(&format!("The token is @{name}'s."));
                values.insert("TELEGRAM_BOT_TOKEN", token.expose_secret().to_owned());
                bot = Some(name);
                break;
            }
            Err(error) => {
                note(&crate::redact::redact(&error));
                if attempt == TRIES {
                    return Err(UserError::failed("No token was accepted; nothing was written."));
                }
            }
        }
    }
    if let Some(users) = asked_users()? {
        values.insert("TELEGRAM_ALLOWED_USERS", users);
    }
    if values.is_empty() {
        context.output.result(&json!({ "written": [] }), || "Nothing was changed.".into());
        return Ok(0);
    }
    let names: Vec<&str> = values.keys().copied().collect();
    write(&home, &values)?;
    context.output.result(&json!({ "written": names, "bot": bot, "home": home }), || {
        let talk = bot.as_ref().map(|bot| format!("\n  write to https://t.me/{bot}")).unwrap_or_default();
        format!(
            "Written: {}. Next:\n  hookgate doctor        check everything\n  hookgate gateway run   start{talk}",
            names.join(", ")
        )
    });
    Ok(0)
}

/// Numeric user ids, parted by commas.
fn asked_users() -> Result<Option<String>, UserError> {
    for _ in 0..TRIES {
        let Some(answer) = ask("Your numeric Telegram user id (several: parted by commas): ")? else { return Ok(None) };
        let ids: Vec<&str> = answer.split(',').map(str::trim).filter(|id| !id.is_empty()).collect();
        if !ids.is_empty() && ids.iter().all(|id| id.bytes().all(|byte| byte.is_ascii_digit())) {
            return Ok(Some(ids.join(",")));
        }
        note("A user id is a number such as 42; the log names it when you write to the bot.");
    }
    Err(UserError::failed("No user id was given; nothing was written."))
}

/// One line of standard input; `None` when it is empty or there is no more.
fn ask(question: &str) -> Result<Option<String>, UserError> {
    let _ = write!(std::io::stderr(), "{question}").and_then(|()| std::io::stderr().flush());
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| UserError::failed(format!("Standard input cannot be read: {error}.")))?;
    Ok(Some(line.trim().to_owned()).filter(|line| !line.is_empty()))
}

/// Sets variables in `.env` and leaves its other lines as they are.
fn write(home: &Path, values: &BTreeMap<&str, String>) -> Result<(), UserError> {
    let path = home.join(".env");
    let old = match crate::files::read_text(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(UserError::failed(format!("{} cannot be read: {error}.", path.display()))),
    };
    write_atomically(&path, with_values(&old, values).as_bytes()).map_err(|error| UserError::unwritable(&path, &error))
}

/// The text with each variable set once, where it stood, or at the end.
fn with_values(old: &str, values: &BTreeMap<&str, String>) -> String {
    let name_of = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("export ").unwrap_or(line);
        line.split_once('=').map(|(name, _)| name.trim().to_owned())
    };
    let mut left = values.clone();
    let mut lines: Vec<String> = Vec::new();
    for line in old.lines() {
        match name_of(line).filter(|name| values.contains_key(name.as_str())) {
            Some(name) => {
                if let Some(value) = left.remove(name.as_str()) {
                    lines.push(format!("{name}={value}"));
                }
            }
            None => lines.push(line.to_owned()),
        }
    }
    lines.extend(left.into_iter().map(|(name, value)| format!("{name}={value}")));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_set_once_and_other_lines_stay() {
        let old = "# mine\nexport TELEGRAM_BOT_TOKEN=old\nOTHER=1\nTELEGRAM_BOT_TOKEN=older\n";
        let values =
            BTreeMap::from([("TELEGRAM_BOT_TOKEN", "new".to_owned()), ("TELEGRAM_ALLOWED_USERS", "7".to_owned())]);
        assert_eq!(with_values(old, &values), "# mine\nTELEGRAM_BOT_TOKEN=new\nOTHER=1\nTELEGRAM_ALLOWED_USERS=7\n");
        assert_eq!(with_values("", &BTreeMap::from([("A", "b".to_owned())])), "A=b\n");
    }
}
