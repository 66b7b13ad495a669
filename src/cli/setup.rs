//! `hookgate setup`: asks for what a first Telegram bot needs, checks the token with Telegram, and writes `.env` in one step.
//! Questions go to standard error, answers come from standard input, so it can be piped.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::time::Duration;

use hookgate_adapters::Proxies;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::Context;
use super::output::note;
use crate::config::Loaded;
use crate::error::UserError;
use crate::files::write_atomically;

/// Asking Telegram takes no longer.
const ASK: Duration = Duration::from_secs(10);
/// Wrong answers to one question before it gives up.
const TRIES: u32 = 3;

/// What was answered to a question.
enum Answer {
    Text(String),
    /// Nothing: what is there stays.
    Keep,
    /// There is no more input.
    End,
}

pub(super) async fn run(context: &Context) -> Result<u8, UserError> {
    let loaded = context.load();
    let home = loaded
        .home
        .clone()
        .ok_or_else(|| context.config().err().unwrap_or_else(|| UserError::failed("There is no home directory.")))?;
    let (base_url, proxies) = server(&loaded)?;
    note(&format!("hookgate setup writes {}. An empty answer keeps what is there.", home.join(".env").display()));

    let mut values = BTreeMap::new();
    let (mut bot, mut ended, mut refused) = (None, false, false);
    for attempt in 1..=TRIES {
        let token = match ask("Telegram bot token (from @BotFather): ")? {
            Answer::Text(token) => SecretString::from(token),
            Answer::Keep => break,
            Answer::End => {
                ended = true;
                break;
            }
        };
        crate::redact::add([&token]);
        match hookgate_adapters::check_token(&base_url, token.clone(), &proxies, ASK).await {
            Ok(name) => {
                note(&format!("The token is @{name}'s."));
                values.insert("TELEGRAM_BOT_TOKEN", token.expose_secret().to_owned());
                bot = Some(name);
                break;
            }
            Err(error) => {
                refused = true;
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
    if values.is_empty() && ended {
        return Err(UserError::failed("The input ended before a token was accepted; nothing was written."));
    }
    if values.is_empty() && refused {
        return Err(UserError::failed("No token was accepted; nothing was written."));
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

/// Where a token is checked, and through what. A token goes nowhere else than the configuration says.
fn server(loaded: &Loaded) -> Result<(String, Proxies), UserError> {
    let (server, proxies) = loaded.telegram.as_ref().ok_or_else(|| {
        UserError::config(
            "The configuration does not tell where Telegram is asked; `hookgate config check` says what is wrong with it."
                .to_owned(),
        )
    })?;
    Ok((server.base_url.clone(), proxies.or_through(server.proxy.as_ref())))
}

/// Numeric user ids, parted by commas.
fn asked_users() -> Result<Option<String>, UserError> {
    for _ in 0..TRIES {
        let Answer::Text(answer) = ask("Your numeric Telegram user id (several: parted by commas): ")? else {
            return Ok(None);
        };
        let ids: Vec<&str> = answer.split(',').map(str::trim).filter(|id| !id.is_empty()).collect();
        if !ids.is_empty() && ids.iter().all(|id| id.bytes().all(|byte| byte.is_ascii_digit())) {
            return Ok(Some(ids.join(",")));
        }
        note("A user id is a number such as 42; the log names it when you write to the bot.");
    }
    Err(UserError::failed("No user id was given; nothing was written."))
}

/// Asks for one line of standard input.
fn ask(question: &str) -> Result<Answer, UserError> {
    let _ = write!(std::io::stderr(), "{question}").and_then(|()| std::io::stderr().flush());
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    let read = read.map_err(|error| UserError::failed(format!("Standard input cannot be read: {error}.")))?;
    Ok(match line.trim() {
        "" if read == 0 => Answer::End,
        "" => Answer::Keep,
        text => Answer::Text(text.to_owned()),
    })
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
