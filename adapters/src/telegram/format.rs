//! Replies in Telegram's HTML, cut into parts that always parse and always fit.
//!
//! Tags are written from runs of styled text, never patched into a string, so they nest by construction; the text is cut
//! before it is tagged, so a block of code that is cut is closed and opened again with its language.
//! Rules: core.telegram.org/bots/api#html-style.

use unicode_segmentation::GraphemeCursor;

use crate::Part;
use crate::markdown::{self, Mark, Run};

/// What a part begins with that may have been said before.
pub(super) const MARK: &str = "↻ ";
/// A message holds so many UTF-16 units after its markup was read.
pub(super) const LONGEST_MESSAGE: usize = 4096;
/// Two stay free for [`MARK`], but in a last part that fits as a whole.
const LONGEST_PART: usize = LONGEST_MESSAGE - 2;
/// Above this many bytes a part is sent without markup: Telegram also limits what it parses.
const LONGEST_HTML: usize = 32 * 1024;

/// The parts of a reply in Markdown. Joined, the plain texts are the reply without markup, but for parts that would be
/// blank, which Telegram refuses.
pub(super) fn parts(markdown: &str) -> Vec<Part> {
    let runs = markdown::read(markdown);
    let plain: String = runs.iter().map(|run| run.text.as_str()).collect();
    let mut parts = Vec::new();
    let mut slices = Slices { runs: &runs, index: 0, offset: 0 };
    let mut rest = plain.as_str();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(next_cut(rest));
        rest = after;
        let slice = slices.take(piece.len());
        if !markdown::is_blank(piece) {
            parts.push(Part { formatted: html(&slice, piece), plain: piece.to_owned(), buttons: Vec::new() });
        }
    }
    parts
}

/// How many bytes of a text go into its next part: all of it if it fits, else to the last newline in the second half, else
/// to the last space there, else as many whole graphemes as fit.
fn next_cut(text: &str) -> usize {
    let (mut units, mut newline, mut space, mut full) = (0, None, None, None);
    for (at, c) in text.char_indices() {
        units += c.len_utf16();
        if units > LONGEST_MESSAGE {
            let full = full.unwrap_or(at);
            return newline.or(space).unwrap_or_else(|| grapheme_boundary(text, full));
        }
        if units > LONGEST_PART {
            full = full.or(Some(at));
        } else if units > LONGEST_PART / 2 {
            let end = at + c.len_utf8();
            match c {
                '\n' => newline = Some(end),
                ' ' | '\t' | '\u{3000}' if is_boundary(text, end) => space = Some(end),
                _ => {}
            }
        }
    }
    text.len()
}

/// A part that leaves no room for [`MARK`], as two without markup.
pub(super) fn halves_to_mark(part: &Part) -> Option<[Part; 2]> {
    let units = part.plain.encode_utf16().count();
    if units <= LONGEST_PART {
        return None;
    }
    let middle = part.plain.char_indices().map(|(at, _)| at).find(|at| *at >= part.plain.len() / 2)?;
    let (first, rest) = part.plain.split_at(grapheme_boundary(&part.plain, middle));
    Some([(first, Vec::new()), (rest, part.buttons.clone())].map(|(plain, buttons)| {
        let mut formatted = String::with_capacity(plain.len());
        escape(&mut formatted, plain);
        Part { formatted, plain: plain.to_owned(), buttons }
    }))
}

/// Whether no grapheme reaches across: a space can carry a combining mark.
fn is_boundary(text: &str, at: usize) -> bool {
    GraphemeCursor::new(at, text.len(), true).is_boundary(text, 0) == Ok(true)
}

/// The last grapheme boundary at or before `end`, which is a character boundary; `end` itself inside a grapheme longer
/// than half a part.
fn grapheme_boundary(text: &str, end: usize) -> usize {
    if is_boundary(text, end) {
        return end;
    }
    match GraphemeCursor::new(end, text.len(), true).prev_boundary(text, 0) {
        Ok(Some(at)) if at >= end / 2 => at,
        _ => end,
    }
}

/// Walks along the runs in steps of given lengths.
struct Slices<'r> {
    runs: &'r [Run],
    index: usize,
    offset: usize,
}

struct Slice<'r> {
    text: &'r str,
    run: &'r Run,
}

impl<'r> Slices<'r> {
    /// The next `bytes` bytes, which end at a character boundary.
    fn take(&mut self, mut bytes: usize) -> Vec<Slice<'r>> {
        let mut slices = Vec::new();
        while let Some(run) = self.runs.get(self.index).filter(|_| bytes > 0) {
            let left = &run.text[self.offset..];
            let text = &left[..left.len().min(bytes)];
            bytes -= text.len();
            self.offset += text.len();
            slices.push(Slice { text, run });
            if self.offset == run.text.len() {
                (self.index, self.offset) = (self.index + 1, 0);
            }
        }
        slices
    }
}

fn html(slices: &[Slice<'_>], plain: &str) -> String {
    let mut html = String::with_capacity(plain.len() * 2);
    let mut open: Vec<&Mark> = Vec::new();
    let mut blank = true;
    for Slice { text, run } in slices.iter().filter(|slice| !slice.run.plain_only) {
        let common = open.iter().zip(&run.marks).take_while(|(open, wanted)| **open == *wanted).count();
        close(&mut html, open.drain(common..));
        for mark in &run.marks[common..] {
            open_tag(&mut html, mark);
            open.push(mark);
        }
        escape(&mut html, text);
        blank &= markdown::is_blank(text);
    }
    close(&mut html, open.drain(..));
    if blank || html.len() > LONGEST_HTML {
        html.clear();
        escape(&mut html, plain);
    }
    html
}

fn open_tag(html: &mut String, mark: &Mark) {
    match mark {
        Mark::Quote(_) => html.push_str("<blockquote>"),
        Mark::Pre(_, language) if language.is_empty() => html.push_str("<pre>"),
        Mark::Pre(_, language) => {
            html.push_str("<pre><code class=\"language-");
            escape(html, language);
            html.push_str("\">");
        }
        Mark::Link(_, address) => {
            html.push_str("<a href=\"");
            escape(html, address);
            html.push_str("\">");
        }
        Mark::Spoiler => html.push_str("<tg-spoiler>"),
        Mark::Bold => html.push_str("<b>"),
        Mark::Italic => html.push_str("<i>"),
        Mark::Strike => html.push_str("<s>"),
        Mark::Code => html.push_str("<code>"),
    }
}

fn close<'m>(html: &mut String, marks: impl DoubleEndedIterator<Item = &'m Mark>) {
    for mark in marks.rev() {
        html.push_str(match mark {
            Mark::Quote(_) => "</blockquote>",
            Mark::Pre(_, language) if language.is_empty() => "</pre>",
            Mark::Pre(..) => "</code></pre>",
            Mark::Link(..) => "</a>",
            Mark::Spoiler => "</tg-spoiler>",
            Mark::Bold => "</b>",
            Mark::Italic => "</i>",
            Mark::Strike => "</s>",
            Mark::Code => "</code>",
        });
    }
}

fn escape(html: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\0' => html.push('\u{fffd}'),
            c => html.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Button;

    fn one(markdown: &str) -> String {
        let mut parts = parts(markdown);
        assert_eq!(parts.len(), 1, "{markdown}");
        parts.remove(0).formatted
    }

    fn units(text: &str) -> usize {
        text.encode_utf16().count()
    }

    /// The plain texts, after checking that they fit and join to `whole`.
    fn cut(markdown: &str, whole: &str) -> Vec<String> {
        let plain: Vec<_> = parts(markdown).into_iter().map(|part| part.plain).collect();
        assert!(plain.iter().all(|part| units(part) <= LONGEST_MESSAGE));
        assert_eq!(plain.concat(), whole);
        plain
    }

    #[test]
    fn html_is_nested_and_escaped() {
        for (markdown, expected) in [
            ("a < b & \"c\"", "a &lt; b &amp; &quot;c&quot;"),
            ("**b *bi*** x", "<b>b <i>bi</i></b> x"),
            ("*i **ib***", "<i>i </i><b><i>ib</i></b>"),
            (
                "```c++ x=\"1\"\n<&>\n```",
                "x=&quot;1&quot;\n<pre><code class=\"language-c++\">&lt;&amp;&gt;</code></pre>",
            ),
            ("```ls -la /tmp", "```ls -la /tmp"),
            ("a\n\n```result 42\n```\n\nend", "a\n\n```result 42\n```\n\nend"),
            ("```\n```", "```\n```"),
            ("[x](http://a.b/?c=\"d\"&e)", "<a href=\"http://a.b/?c=&quot;d&quot;&amp;e\">x</a>"),
            ("**a ||b||**", "<b>a </b><tg-spoiler><b>b</b></tg-spoiler>"),
            ("> **q**\n\n> r", "<blockquote><b>q</b></blockquote>\n\n<blockquote>r</blockquote>"),
        ] {
            assert_eq!(one(markdown), expected, "{markdown}");
        }
    }

    #[test]
    fn blank_text_has_no_parts() {
        for blank in ["", " \n\t\n", "\u{200b}\u{feff}", "\u{3000}"] {
            assert!(parts(blank).is_empty(), "{blank:?}");
        }
        assert!(parts(&"\n".repeat(9000)).is_empty());
    }

    #[test]
    fn cuts_are_at_newlines_then_spaces_then_graphemes() {
        let words = "word ".repeat(1000);
        let pieces = cut(&words, &words);
        assert_eq!(pieces.iter().map(|piece| units(piece)).collect::<Vec<_>>(), [4090, 910]);
        let lines = format!("{}\n{}", "a".repeat(3000), "b ".repeat(1000));
        assert_eq!(units(&cut(&lines, &lines)[0]), 3001);
        let early = format!("{}\n{}", "a".repeat(100), "b".repeat(5000));
        assert_eq!(units(&cut(&early, &early)[0]), LONGEST_PART);
        let emoji = "😀".repeat(5000);
        assert_eq!(cut(&emoji, &emoji).len(), 3);
        for shift in 0..12 {
            let family = format!("{}👨‍👩‍👧‍👦{}", "a".repeat(LONGEST_PART - shift), "b".repeat(50));
            let pieces = cut(&family, &family);
            assert!(pieces.iter().any(|piece| piece.contains("👨‍👩‍👧‍👦")), "torn at {shift}");
        }
        let zalgo = format!("a{}", "\u{301}".repeat(10_000));
        assert_eq!(cut(&zalgo, &zalgo).len(), 3);
    }

    #[test]
    fn what_fits_into_one_message_is_one_and_can_still_be_marked() {
        for exact in ["a".repeat(4096), "汉".repeat(4096), "😀".repeat(2048)] {
            assert_eq!(cut(&exact, &exact).len(), 1);
            let part = &parts(&exact)[0];
            let halves = halves_to_mark(part).unwrap();
            assert!(halves.iter().all(|half| units(&half.plain) <= LONGEST_PART));
            assert_eq!(halves.map(|half| half.plain).concat(), exact);
        }
        let longer = "a".repeat(4097);
        assert_eq!(cut(&longer, &longer).iter().map(|piece| units(piece)).collect::<Vec<_>>(), [4094, 3]);
        assert_eq!(halves_to_mark(&Part::verbatim("x".repeat(4094))), None);
        let buttons = vec![vec![Button::new("Yes", "y")]];
        let [first, rest] =
            halves_to_mark(&Part { buttons: buttons.clone(), ..Part::verbatim("x".repeat(4096)) }).unwrap();
        assert_eq!((first.buttons.len(), rest.buttons), (0, buttons));
    }

    #[test]
    fn code_that_is_cut_is_closed_and_opened_again() {
        let code = "x = 1\n".repeat(1500);
        let parts = parts(&format!("```py\n{code}```"));
        assert_eq!(parts.len(), 3);
        for part in &parts {
            assert!(part.formatted.starts_with("<pre><code class=\"language-py\">x = 1\n"), "{}", part.formatted);
            assert!(part.formatted.ends_with("</code></pre>"));
        }
    }

    #[test]
    fn html_that_would_be_too_long_is_left_out() {
        let markdown = "**&**`<` ".repeat(900);
        for part in parts(&markdown) {
            assert!(part.formatted.len() <= LONGEST_HTML);
            assert!(!markdown::is_blank(&part.plain));
        }
    }
}
