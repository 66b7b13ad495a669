//! Secrets are removed from everything that leaves the process as text, by value: whatever wrote them, and wherever.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, MatchKind};
use secrecy::{ExposeSecret, SecretString};
use tracing_subscriber::fmt::MakeWriter;

/// What stands in a secret's place.
const MASK: &str = "[redacted]";
/// Shorter values would mask ordinary text.
const SHORTEST: usize = 6;

static SECRETS: OnceLock<RwLock<Known>> = OnceLock::new();

#[derive(Default)]
struct Known {
    values: Vec<String>,
    automaton: Option<Arc<AhoCorasick>>,
}

fn known() -> &'static RwLock<Known> {
    SECRETS.get_or_init(RwLock::default)
}

/// Adds values to be masked from now on, in their plain and their URL-encoded form.
pub fn add<'a>(secrets: impl IntoIterator<Item = &'a SecretString>) {
    let mut known = known().write().unwrap_or_else(PoisonError::into_inner);
    for secret in secrets {
        let plain = secret.expose_secret().trim().to_owned();
        let encoded = plain.replace(':', "%3A");
        for value in [plain, encoded] {
            if value.len() >= SHORTEST && !known.values.contains(&value) {
                known.values.push(value);
            }
        }
    }
    let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&known.values);
    known.automaton = automaton.ok().filter(|_| !known.values.is_empty()).map(Arc::new);
}

/// The text without secrets.
pub fn redact(text: &str) -> String {
    match automaton() {
        Some(automaton) if automaton.is_match(text) => {
            let masks = vec![MASK; automaton.patterns_len()];
            automaton.replace_all(text, &masks)
        }
        _ => text.to_owned(),
    }
}

fn automaton() -> Option<Arc<AhoCorasick>> {
    known().read().unwrap_or_else(PoisonError::into_inner).automaton.clone()
}

/// Writes log lines to standard error, without secrets. A line arrives in one piece, or is lost: a full disk or a closed
/// pipe behind standard error must not stop what was to be logged.
#[derive(Debug, Clone, Copy, Default)]
pub struct RedactedStderr;

impl Write for RedactedStderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Nobody may be left to read it (a closed terminal, a pipe's end): that is no reason to stop working.
        let _ = match automaton() {
            Some(automaton) if automaton.is_match(line) => {
                let masks = vec![MASK.as_bytes(); automaton.patterns_len()];
                io::stderr().write_all(&automaton.replace_all_bytes(line, &masks))
            }
            _ => io::stderr().write_all(line),
        };
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for RedactedStderr {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_wherever_it_stands_and_a_longer_one_first() {
        add(&[SecretString::from("123:AAbb-token"), SecretString::from("123:AAbb-token-2"), SecretString::from("ab")]);
        assert_eq!(redact("GET /bot123:AAbb-token/getMe ab"), "GET /bot[redacted]/getMe ab");
        assert_eq!(redact("x123:AAbb-token-2y 123%3AAAbb-token"), "x[redacted]y [redacted]");
    }
}
