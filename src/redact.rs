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

/// How many bytes at the end of a text that was cut there may be the beginning of a secret, if at least `least` are.
pub fn begun_at_end(text: &str, least: usize) -> usize {
    longest_part(text, least, |value, part| value.get(..part), |text, part| text.ends_with(part))
}

/// How many bytes at the start of a text that was cut there may be the end of a secret, if at least `least` are.
pub fn ended_at_start(text: &str, least: usize) -> usize {
    longest_part(text, least, |value, part| value.get(value.len() - part..), |text, part| text.starts_with(part))
}

fn longest_part(
    text: &str,
    least: usize,
    part_of: impl Fn(&str, usize) -> Option<&str>,
    is_there: impl Fn(&str, &str) -> bool,
) -> usize {
    let known = known().read().unwrap_or_else(PoisonError::into_inner);
    let longest = |value: &String| {
        let lengths = (least.max(1)..=value.len().min(text.len())).rev();
        lengths.into_iter().find(|length| part_of(value, *length).is_some_and(|part| is_there(text, part)))
    };
    known.values.iter().filter_map(longest).max().unwrap_or(0)
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
    #[test]
    fn a_part_of_a_secret_is_found_where_a_text_was_cut() {
        add(&[SecretString::from("cut-me-here"), SecretString::from("schlüssel-zwei")]);
        assert_eq!(
            (begun_at_end("a cut-me-he", 4), begun_at_end("a cut-me-here", 4), begun_at_end("a cut", 4)),
            (9, 11, 0)
        );
        assert_eq!((ended_at_start("me-here b", 1), ended_at_start("zwei", 4), ended_at_start("wei", 4)), (7, 4, 0));
        assert_eq!((begun_at_end("schlü", 4), ended_at_start("üssel-zwei", 4)), (6, 11));
    }
}
