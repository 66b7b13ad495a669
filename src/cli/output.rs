//! Standard output, for people or as JSON.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::redact::redact;

static FAILED: AtomicBool = AtomicBool::new(false);

/// Whether a result could not be written, for example to a full disk.
pub(super) fn failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// Writes a line on standard output. A reader that has gone (`| head`) is no failure.
fn print(text: &str) {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            FAILED.store(true, Ordering::Relaxed);
            note(&format!("hookgate: standard output cannot be written: {error}"));
        }
        _ => {}
    }
}

/// The text as a terminal may show it: what could move its cursor, change its colours or hide a line is written out.
fn visible(text: &str) -> Cow<'_, str> {
    let acts = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(acts) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown.into()
}

/// Writes text that is a file of its own.
pub(super) fn raw(text: &[u8]) {
    print(String::from_utf8_lossy(text).trim_end());
}

/// Writes a line on standard error, if anybody is still there to read it.
pub(super) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", visible(text));
}

/// Where results go, and in which form.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    /// One JSON document and nothing else.
    pub(super) json: bool,
}

impl Output {
    /// The result: `json` as one document, or `text`.
    pub(super) fn result(self, json: &impl Serialize, text: impl FnOnce() -> String) {
        if self.json {
            print(&serde_json::to_string_pretty(json).unwrap_or_default());
        } else {
            let text = text();
            if !text.is_empty() {
                print(visible(text.trim_end()).as_ref());
            }
        }
    }

    /// The same for what others wrote: configured secrets in it are masked.
    pub(super) fn told(self, json: &impl Serialize, text: impl FnOnce() -> String) {
        if self.json {
            print(&redact(&serde_json::to_string_pretty(json).unwrap_or_default()));
        } else {
            self.result(json, || redact(&text()));
        }
    }

    /// A line for people.
    pub(super) fn line(self, text: &str) {
        if !self.json {
            print(&visible(text));
        }
    }

    /// What a gateway that goes on running tells of itself; lost when nobody listens.
    pub(super) fn event(self, json: &impl Serialize) {
        let _ = writeln!(io::stdout(), "{}", serde_json::to_string_pretty(json).unwrap_or_default());
    }

    /// Why the command failed: on standard error, and as a JSON object on standard output when that was asked for.
    pub(super) fn error(self, message: &str) {
        note(&format!("hookgate: {message}"));
        if self.json {
            print(&serde_json::json!({ "error": message }).to_string());
        }
    }
}

/// Columns that line up; the last one is not padded.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header.get(column).map_or(0, |cell| cell.len())]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let last = cells.len().saturating_sub(1);
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            let pad = if column == last { 0 } else { widths[column].saturating_sub(cell.chars().count()) };
            format!("{cell}{}", " ".repeat(pad))
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(header.to_vec())];
    lines.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    lines.join("\n")
}

/// Unix milliseconds as people read them, UTC.
pub(super) fn time(at: i64) -> String {
    jiff::Timestamp::from_millisecond(at).map(|time| time.strftime("%Y-%m-%d %H:%M:%S").to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_of_others_cannot_act_on_the_terminal() {
        for (text, shown) in [
            ("plain\n\tü 😀", "plain\n\tü 😀"),
            ("a\u{1b}[2Jb", "a\\u{1b}[2Jb"),
            ("over\rwritten\u{9b}1m\u{7f}", "over\\u{d}written\\u{9b}1m\\u{7f}"),
            ("\u{202e}txt", "\\u{202e}txt"),
        ] {
            assert_eq!(super::visible(text), shown);
        }
    }

    #[test]
    fn columns_line_up_and_the_last_is_not_padded() {
        let rows = [vec!["a".into(), "1".into()], vec!["long".into(), "2".into()]];
        assert_eq!(super::table(&["name", "n"], &rows), "name  n\na     1\nlong  2");
        assert_eq!(super::time(0), "1970-01-01 00:00:00");
    }
}
