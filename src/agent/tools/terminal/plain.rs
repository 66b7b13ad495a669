//! What a program printed for a terminal, as text for a model: without escape sequences and without secrets, also where
//! the text was cut. Carriage returns stay.

use std::borrow::Cow;

use anstyle_parse::{DefaultCharAccumulator, Params, Parser, Perform};
use hookgate_hooks::process::{Captured, cut_text_after, cut_text_before, note};

use crate::redact;

/// Shorter parts of a secret may remain at a cut: they tell nothing, and begin many words.
const SHORTEST_PART: usize = 4;

/// What is shown of a text: no escape sequences, secrets masked, no space around it.
pub(in crate::agent::tools) fn plain(text: &str) -> String {
    masked(text).trim().to_owned()
}

fn masked(text: &str) -> String {
    redact::redact(&see(text).text)
}

/// What was captured, with a note in the place of what was cut. No part of a secret remains beside it, nor of an escape
/// sequence that would swallow what follows.
pub(super) fn joined(captured: &Captured) -> String {
    if captured.cut() == 0 {
        return captured.text();
    }
    let (head, tail) = (cut_text_before(captured.head()), cut_text_after(captured.tail()));
    let (end, start) = (whole_until(&head, SHORTEST_PART), whole_from(&tail));
    // Replaced bytes make this inexact; nobody counts on it.
    let cut = captured.cut() + (head.len() - end + start) as u64;
    format!("{}{}{}", &head[..end], note(cut), &tail[start..])
}

/// What can be said of bytes of which more may follow, and how many bytes that uses up. What may be the beginning of a
/// secret, a character or an escape sequence waits for the rest of it; what follows `lost` bytes is no part of a secret.
pub(in crate::agent::tools) fn so_far(bytes: &[u8], lost: u64, is_complete: bool) -> (usize, String) {
    /// A program that never ends a sequence must not keep us from reading.
    const LONGEST_WAIT: usize = 8 * 1024;
    let text: Cow<'_, str> = if lost > 0 { cut_text_after(bytes).into() } else { String::from_utf8_lossy(bytes) };
    let start = if lost > 0 { whole_from(&text) } else { 0 };
    let (mut used, mut end) = (bytes.len(), text.len());
    if !is_complete {
        let character = bytes.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
        let end_of_characters = text.strip_suffix('\u{fffd}').filter(|_| character > 0).map_or(text.len(), str::len);
        end = whole_until(&text[..end_of_characters], 1);
        let waiting = &text[end..end_of_characters];
        if waiting.len() > LONGEST_WAIT || waiting.contains('\u{fffd}') {
            end = end_of_characters;
        }
        used -= character + (end_of_characters - end);
    }
    let said = if start < end { masked(&text[start..end]) } else { String::new() };
    let lost = if lost > 0 { note(lost + start as u64).trim_start().to_owned() } else { String::new() };
    (used, lost + &said)
}

/// How much of a text can stay, of which the continuation is missing.
fn whole_until(text: &str, least: usize) -> usize {
    let seen = see(text);
    let mut end = seen.text.len();
    // What is left may again end with the beginning of a secret: two may overlap.
    loop {
        match redact::begun_at_end(&seen.text[..end], least) {
            0 => break,
            part => end -= part,
        }
    }
    seen.from.get(end).copied().unwrap_or(seen.whole)
}

/// From where a text can stay, of which the beginning is missing. That may be the beginning of an escape sequence.
fn whole_from(text: &str) -> usize {
    let after = |skipped: usize| Some(skipped + end_of_secret(&text[skipped..])?);
    [Some(0), end_of_code(text), end_of_string(text)].into_iter().flatten().filter_map(after).max().unwrap_or(0)
}

/// Up to where a text begins with the end of a secret.
fn end_of_secret(text: &str) -> Option<usize> {
    let seen = see(text);
    let mut start = 0;
    loop {
        match redact::ended_at_start(&seen.text[start..], SHORTEST_PART) {
            0 => break,
            part => start += part,
        }
    }
    (start > 0).then(|| seen.from.get(start).copied().unwrap_or(text.len()))
}

/// Where a control sequence ends (ECMA-48 §5.4: parameters, intermediates, a final byte), if a text begins inside one.
fn end_of_code(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = usize::from(bytes.first() == Some(&b'['));
    at += bytes[at..].iter().take_while(|byte| matches!(byte, b'0'..=b'?')).count();
    at += bytes[at..].iter().take_while(|byte| matches!(byte, b' '..=b'/')).count();
    matches!(bytes.get(at)?, b'0'..=b'~').then_some(at + 1)
}

/// Where a control string (a title, a link) ends, if a text begins inside one. They are short, and on one line.
fn end_of_string(text: &str) -> Option<usize> {
    const LONGEST: usize = 4096;
    let line = text.bytes().take(LONGEST).position(|byte| matches!(byte, b'\n' | 0x07 | 0x1b))?;
    match &text.as_bytes()[line..] {
        [0x07, ..] => Some(line + 1),
        [0x1b, b'\\', ..] => Some(line + 2),
        _ => None,
    }
}

/// The visible part of a text.
#[derive(Default)]
struct Seen {
    text: String,
    /// For each byte of `text`, where its character is in the original.
    from: Vec<usize>,
    /// Where we are in the original.
    at: usize,
    /// Up to where the original is made of whole characters and sequences.
    whole: usize,
}

fn see(text: &str) -> Seen {
    let mut seen = Seen::default();
    let mut parser = Parser::<DefaultCharAccumulator>::new();
    for (at, byte) in text.bytes().enumerate() {
        seen.at = at;
        if byte == b'\n' && seen.whole < at {
            // A sequence that was never ended: it must not swallow the following lines. CAN cancels it.
            parser.advance(&mut seen, 0x18);
        }
        parser.advance(&mut seen, byte);
    }
    seen
}

impl Seen {
    fn push(&mut self, character: char) {
        let length = character.len_utf8();
        self.text.push(character);
        self.from.extend(std::iter::repeat_n(self.at + 1 - length, length));
        self.done();
    }

    fn done(&mut self) {
        self.whole = self.at + 1;
    }
}

impl Perform for Seen {
    fn print(&mut self, character: char) {
        if character.is_control() { self.done() } else { self.push(character) }
    }

    fn execute(&mut self, byte: u8) {
        if matches!(byte, b'\n' | b'\r' | b'\t') { self.push(char::from(byte)) } else { self.done() }
    }

    fn unhook(&mut self) {
        self.done();
    }

    fn osc_dispatch(&mut self, _params: &[&[u8]], _bell_terminated: bool) {
        self.done();
    }

    fn csi_dispatch(&mut self, _params: &Params, _intermediates: &[u8], _ignore: bool, _action: u8) {
        self.done();
    }

    fn esc_dispatch(&mut self, _intermediates: &[u8], _ignore: bool, _byte: u8) {
        self.done();
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    fn secret(value: &str) -> String {
        redact::add(&[SecretString::from(value)]);
        value.to_owned()
    }

    #[test]
    fn escape_sequences_and_control_characters_go_and_text_stays() {
        let cases = [
            ("\x1b[1;31mred\x1b[0m text", "red text"),
            ("\x1b]0;title\x07a\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "alink"),
            ("\x1b(Ba\x1b[2Jb\x1b[10;20Hc\x1b7", "abc"),
            ("\x1bP1;2qsixel\x1b\\after", "after"),
            ("10 %\r100 %\n\ttab", "10 %\r100 %\n\ttab"),
            ("b\x08be\x07ep\0", "bbeep"),
            ("grüße 😀 日本", "grüße 😀 日本"),
            ("  \n out \n\n", "out"),
            ("a\x1b]0;never ended\nnext line", "a\nnext line"),
            ("a\x1b[31", "a"),
            ("\u{9b}31m", "31m"),
        ];
        for (text, expected) in cases {
            assert_eq!(plain(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_secret_is_masked_also_when_it_is_coloured() {
        let value = secret("plain-secret-1");
        assert_eq!(plain(&format!("key={value};")), "key=[redacted];");
        let coloured: String = value.chars().map(|letter| format!("\x1b[3{}m{letter}", letter as u32 % 8)).collect();
        assert_eq!(plain(&format!("key={coloured}\x1b[0m;")), "key=[redacted];");
    }

    #[test]
    fn nothing_of_a_secret_remains_at_a_cut() {
        let value = secret("Zq7-cut-by-the-cap-9x");
        let other = secret("the-cap-9xYYYYYY");
        let coloured: String = value.chars().map(|letter| format!("\x1b[1m{letter}")).collect();
        let linked = format!("\x1b]8;;https://example.org/?key={value}\x07{value}");
        for value in [&value, &coloured, &other, &linked] {
            for cut in (0..=value.len()).filter(|cut| value.is_char_boundary(*cut)) {
                let head = format!("before {}", &value[..cut]);
                let shown = plain(&head[..whole_until(&head, SHORTEST_PART)]);
                let rest = shown.trim_start_matches("before").trim();
                assert!(rest.len() < SHORTEST_PART, "{head:?}: {shown:?}");
                let tail = format!("{} after", &value[cut..]);
                let shown = plain(&tail[whole_from(&tail)..]);
                let rest = shown.trim_end_matches("after").trim().trim_end_matches("[redacted]");
                // A cut escape sequence may leave a few characters of its own.
                assert!(rest.len() < SHORTEST_PART + 3, "{tail:?}: {shown:?}");
            }
        }
    }

    #[test]
    fn overlapping_secrets_leave_nothing_either() {
        let (one, two) = (secret("AAAAAA-middle"), secret("middle-BBBBBB"));
        let head = format!("{one}-BB");
        assert_eq!(&head[..whole_until(&head, SHORTEST_PART)], "");
        let tail = format!("AA-{two}");
        assert_eq!(&tail[whole_from(&tail)..], "");
    }

    #[test]
    fn a_secret_is_not_read_in_two_parts() {
        let value = secret("read-in-two-parts");
        let said = format!("a {value} b\x1b[31mäc");
        for cut in 0..=said.len() {
            let mut bytes = said.as_bytes()[..cut].to_vec();
            let (used, first) = so_far(&bytes, 0, false);
            bytes.extend(&said.as_bytes()[cut..]);
            let (rest, second) = so_far(&bytes[used..], 0, true);
            assert_eq!(used + rest, said.len());
            assert_eq!(format!("{first}{second}"), "a [redacted] bäc", "cut at {cut}: {first:?}, {second:?}");
        }
    }

    #[test]
    fn a_program_that_never_ends_a_sequence_is_read_all_the_same() {
        let bytes = format!("\x1b]{}", "x".repeat(10_000));
        assert_eq!(so_far(bytes.as_bytes(), 0, false).0, bytes.len());
        assert_eq!(so_far(b"\xff\x1b[\xff", 0, false), (1, "\u{fffd}".to_owned()));
        assert_eq!(so_far(b"\x80", 3, false), (0, "[... 3 bytes cut ...]\n".to_owned()));
        assert_eq!(so_far(b"def", 7, true), (3, "[... 7 bytes cut ...]\ndef".to_owned()));
    }
}
