//! Markdown into runs of styled text that lose nothing, for each platform to write in its own format.
//!
//! Read as `CommonMark` with tables, strikethrough and spoilers, but for people who chat: line breaks, blank lines,
//! indentation and a backslash before a brace stay, HTML and entities are text, and marks inside words (`3*4*5`, `__init__`)
//! are not markup. Delimited values are shown as they are. Each block is compared with its source afterwards; one that
//! would lose a letter is shown as it was written.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use pulldown_cmark::{CowStr, Event, LinkType, Options, Parser, Tag, TagEnd};

use crate::verbatim::{Values, without_delimiters};

/// Text of one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) text: String,
    /// Outermost first, in the order of the enum.
    pub(crate) marks: Vec<Mark>,
    /// Said by a mark where there is markup (an address, a fence), so only shown where there is none.
    pub(crate) plain_only: bool,
}

/// A style. The numbers keep neighbours apart: two quotes in a row are two.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mark {
    Quote(usize),
    /// A block of code and its language, which may be empty.
    Pre(usize, Arc<str>),
    /// Hidden until it is touched: `||…||`.
    Spoiler,
    /// An absolute `http`, `https` or `tg` address.
    Link(usize, Arc<str>),
    Bold,
    Italic,
    Strike,
    Code,
}

/// Begins and ends a spoiler.
const SPOILER: &str = "||";
/// What stands for a horizontal rule.
const RULE: &str = "———";
/// Longer addresses are shown, not hidden behind a link.
const LONGEST_LINK: usize = 1000;
/// The deepest list that is still shown deeper than the one around it.
const DEEPEST_INDENT: usize = 8;
/// A table that takes more spaces than this for columns of equal width is shown without: one long cell would make each of
/// many rows as long.
const MOST_PADDING: usize = 4000;

/// Nothing a person would see: white space, control characters, fillers and marks for joining and direction.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || c.is_control() || is_invisible(c))
}

fn is_invisible(c: char) -> bool {
    matches!(u32::from(c),
        0xad | 0x34f | 0x61c | 0x115f | 0x1160 | 0x17b4 | 0x17b5 | 0x180e | 0x200b..=0x200f | 0x202a..=0x202e
        | 0x2060..=0x206f | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0)
}

/// Reads Markdown. The texts of all runs, joined, are the text without markup.
pub(crate) fn read(markdown: &str) -> Vec<Run> {
    let markdown = markdown.replace("\r\n", "\n").replace('\r', "\n");
    let Some((source, values)) = Values::take_out(&markdown) else {
        return vec![literal(&without_delimiters(&markdown))];
    };
    let mut runs = read_with(&source, &values);
    for run in &mut runs {
        if let Cow::Owned(whole) = values.put_back(&run.text) {
            run.text = whole;
        }
    }
    runs
}

/// Reads Markdown in whose texts, but not in whose marks, letters stand for values.
fn read_with(source: &str, values: &Values<'_>) -> Vec<Run> {
    let events: Vec<_> =
        Parser::new_ext(source, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH).into_offset_iter().collect();
    let mut runs = Vec::new();
    let mut shown_to = 0;
    let mut ids = 0;
    for block in blocks(&events) {
        let range = block[0].1.clone();
        let start = range.start.max(shown_to);
        let end = start + source[start..range.end.max(start)].trim_end().len();
        // What lies between blocks belongs to none: blank lines, indentation, definitions of links.
        push(&mut runs, literal(&source[shown_to..start]));
        let mut writer = Writer::new(source, values, ids);
        writer.write(block);
        ids = writer.ids;
        if writer.is_faithful_to(&source[start..end]) {
            for run in writer.runs {
                push(&mut runs, run);
            }
        } else {
            push(&mut runs, literal(&source[start..end]));
        }
        shown_to = end;
    }
    push(&mut runs, literal(&source[shown_to..]));
    runs
}

fn literal(text: &str) -> Run {
    Run { text: text.to_owned(), marks: Vec::new(), plain_only: false }
}

fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        _ if run.text.is_empty() => {}
        Some(last) if last.marks == run.marks && last.plain_only == run.plain_only => last.text.push_str(&run.text),
        _ => runs.push(run),
    }
}

type Spanned<'s> = (Event<'s>, Range<usize>);

/// The events of each top-level block.
fn blocks<'e, 's>(events: &'e [Spanned<'s>]) -> Vec<&'e [Spanned<'s>]> {
    let mut blocks = Vec::new();
    let (mut begun, mut depth) = (0, 0_usize);
    for (index, (event, _)) in events.iter().enumerate() {
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            blocks.push(&events[begun..=index]);
            begun = index + 1;
        }
    }
    blocks
}

/// Writes one top-level block.
struct Writer<'s> {
    source: &'s str,
    /// What letters in the source stand for. Only what is measured or becomes a mark is filled in here.
    values: &'s Values<'s>,
    runs: Vec<Run>,
    marks: Vec<Mark>,
    ids: usize,
    /// Nothing is on the current line yet, but for indentation and a list's marker.
    fresh: bool,
    /// Stretches of text that were written and can be seen.
    visible: usize,
    /// Up to where the source is shown.
    shown_to: usize,
    lists: usize,
    quotes: usize,
    code: Option<String>,
    /// For each open emphasis its delimiter if it is shown as text.
    shown_delimiters: Vec<Option<&'s str>>,
    links: Vec<OpenLink<'s>>,
    spoilers: Vec<SpoilerMark>,
    /// The rows of the open table, and what was written before it: cells are written into `runs` and collected from it.
    table: Vec<Vec<String>>,
    outside_table: Vec<Run>,
}

/// One end of a spoiler: where it stands in the source.
struct SpoilerMark {
    at: usize,
    opens: bool,
}

struct OpenLink<'s> {
    kind: LinkType,
    address: CowStr<'s>,
    linked: bool,
    /// How many visible stretches there were when it began.
    begun: usize,
}

impl<'s> Writer<'s> {
    fn new(source: &'s str, values: &'s Values<'s>, ids: usize) -> Self {
        Self {
            source,
            values,
            runs: Vec::new(),
            marks: Vec::new(),
            ids,
            fresh: true,
            visible: 0,
            shown_to: 0,
            lists: 0,
            quotes: 0,
            code: None,
            shown_delimiters: Vec::new(),
            links: Vec::new(),
            spoilers: Vec::new(),
            table: Vec::new(),
            outside_table: Vec::new(),
        }
    }

    fn write(&mut self, block: &[Spanned<'s>]) {
        self.shown_to = block[0].1.start;
        self.spoilers = spoilers(self.source, block);
        for (event, range) in block {
            match event {
                Event::Start(tag) => self.start(tag, range),
                Event::End(tag) => self.end(*tag, range),
                Event::Text(text) => match &mut self.code {
                    Some(code) => code.push_str(text),
                    None => self.inline(text, range),
                },
                Event::Code(code) => {
                    self.marks.push(Mark::Code);
                    self.text(code);
                    self.marks.pop();
                }
                Event::SoftBreak | Event::HardBreak => self.line_break(range.start),
                Event::Rule => {
                    self.separate(range.start, self.lists);
                    self.text(RULE);
                }
                Event::Html(text) | Event::InlineHtml(text) => self.text(text),
                // Not asked for in the options; shown as written if they should ever come.
                Event::FootnoteReference(_)
                | Event::TaskListMarker(_)
                | Event::InlineMath(_)
                | Event::DisplayMath(_) => {
                    self.text(&self.source[range.clone()]);
                }
            }
            if !matches!(event, Event::Start(_)) {
                let end = range.start + self.source[range.clone()].trim_end().len();
                self.shown_to = self.shown_to.max(end);
            }
        }
        // Behind the marker of an item without text.
        if let Some(last) = self.runs.last_mut() {
            last.text.truncate(last.text.trim_end_matches(' ').len());
        }
    }

    fn start(&mut self, tag: &Tag<'s>, range: &Range<usize>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.separate(range.start, self.lists),
            Tag::Heading { .. } => {
                self.separate(range.start, self.lists);
                if !underline(&self.source[range.clone()]).is_some_and(|line| line.starts_with('-')) {
                    self.marks.push(Mark::Bold);
                }
            }
            Tag::BlockQuote(_) => {
                self.separate(range.start, self.lists);
                if self.quotes == 0 {
                    let id = self.id();
                    self.marks.push(Mark::Quote(id));
                }
                self.quotes += 1;
            }
            Tag::CodeBlock(_) => {
                self.fresh &= self.lists == 0; // never behind a list's marker
                self.separate(range.start, 0);
                self.code = Some(String::new());
            }
            Tag::List(_) => self.lists += 1,
            Tag::Item => {
                self.separate(range.start, self.lists.saturating_sub(1));
                let item = &self.source[range.clone()];
                let marker = item.split_whitespace().next().unwrap_or_default();
                self.text(if matches!(marker, "-" | "*") { "•" } else { marker });
                self.text(" ");
                self.shown_to = range.start + marker.len();
                self.fresh = true;
            }
            Tag::Table(_) => {
                self.separate(range.start, 0);
                self.table.clear();
                self.outside_table = std::mem::take(&mut self.runs);
            }
            Tag::TableHead | Tag::TableRow => self.table.push(Vec::new()),
            Tag::Emphasis => self.open_emphasis(range, 1, Mark::Italic),
            Tag::Strong => self.open_emphasis(range, 2, Mark::Bold),
            Tag::Strikethrough => {
                let width = if self.source[range.clone()].starts_with("~~") { 2 } else { 1 };
                self.open_emphasis(range, width, Mark::Strike);
            }
            Tag::Link { link_type, dest_url, .. } => self.open_link(*link_type, dest_url, range.start + 1),
            Tag::Image { link_type, dest_url, .. } => self.open_link(*link_type, dest_url, range.start + 2),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd, range: &Range<usize>) {
        match tag {
            TagEnd::Heading(_) => match underline(&self.source[range.clone()]) {
                Some(line) if line.starts_with('-') => {
                    self.newline(self.lists);
                    self.text(RULE);
                }
                _ => {
                    self.marks.pop();
                }
            },
            TagEnd::BlockQuote(_) => {
                self.quotes -= 1;
                if self.quotes == 0 {
                    self.marks.pop();
                }
                self.fresh = false;
            }
            TagEnd::CodeBlock => self.code_block(range),
            TagEnd::HtmlBlock => self.trim_newline(),
            TagEnd::List(_) => self.lists -= 1,
            TagEnd::Item => self.fresh = false,
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.runs).into_iter().map(|run| run.text).collect();
                if let Some(row) = self.table.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::Table => self.table(),
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => match self.shown_delimiters.pop().flatten() {
                Some(delimiter) => self.text(delimiter),
                None => {
                    self.marks.pop();
                }
            },
            TagEnd::Link | TagEnd::Image => self.close_link(range),
            _ => {}
        }
    }

    /// Writes a stretch of a paragraph.
    fn inline(&mut self, text: &str, range: &Range<usize>) {
        // The source, not the event: entities stay as they were written.
        let written = &self.source[range.clone()];
        if written.contains('\n') {
            self.text(text);
            return;
        }
        // A template's placeholder that is to stay is written so: `\{title\}`.
        if written.starts_with(['{', '}']) && self.source[self.shown_to.min(range.start)..range.start].ends_with('\\') {
            self.text("\\");
        }
        let mut shown_to = range.start;
        let mut next = self.spoilers.partition_point(|mark| mark.at < range.start);
        while let Some(&SpoilerMark { at, opens }) = self.spoilers.get(next).filter(|mark| mark.at < range.end) {
            next += 1;
            self.text(&self.source[shown_to..at]);
            if opens {
                self.marks.push(Mark::Spoiler);
            }
            self.put(SPOILER, true);
            if !opens && let Some(last) = self.marks.iter().rposition(|mark| *mark == Mark::Spoiler) {
                self.marks.remove(last);
            }
            shown_to = at + SPOILER.len();
        }
        self.text(&self.source[shown_to..range.end]);
    }

    /// Writes text in the styles that are open.
    fn text(&mut self, text: &str) {
        self.put(text, false);
    }

    fn put(&mut self, text: &str, plain_only: bool) {
        if text.is_empty() {
            return;
        }
        self.fresh = false;
        self.visible += usize::from(!plain_only && !is_blank(&self.values.put_back(text)));
        let mut marks = self.marks.clone();
        marks.sort();
        marks.dedup();
        if marks.contains(&Mark::Spoiler) {
            marks.retain(|mark| *mark != Mark::Code);
        }
        // Code takes no other style, and hidden it is no code; in a link the link is worth more.
        if marks.iter().any(|mark| matches!(mark, Mark::Pre(..) | Mark::Code)) {
            marks.retain(|mark| !matches!(mark, Mark::Bold | Mark::Italic | Mark::Strike));
        }
        if let Some(first) = marks.iter().position(|mark| matches!(mark, Mark::Link(..))) {
            let mut index = 0;
            marks.retain(|mark| {
                index += 1;
                !(matches!(mark, Mark::Code) || matches!(mark, Mark::Link(..)) && index - 1 != first)
            });
        }
        push(&mut self.runs, Run { text: text.to_owned(), marks, plain_only });
    }

    /// Begins a block on a line of its own, after a blank line if the source has one there.
    fn separate(&mut self, start: usize, indent: usize) {
        if !self.fresh {
            let between = self.source.get(self.shown_to..start).unwrap_or_default();
            if between.matches('\n').count() > 1 {
                self.put("\n", false);
            }
            self.newline(indent);
        }
        self.fresh = true;
    }

    fn newline(&mut self, indent: usize) {
        self.put("\n", false);
        self.put(&"  ".repeat(indent.min(DEEPEST_INDENT)), false);
    }

    /// A line's end inside a paragraph. Outside of lists and quotes the next line keeps its indentation.
    fn line_break(&mut self, start: usize) {
        self.newline(self.lists);
        if self.lists == 0 && self.quotes == 0 {
            let next = self.source[start..].split_once('\n').map_or("", |(_, next)| next);
            let indent = next.len() - next.trim_start_matches([' ', '\t']).len();
            self.text(&next[..indent]);
        }
    }

    fn trim_newline(&mut self) {
        if let Some(last) = self.runs.last_mut() {
            last.text.truncate(last.text.trim_end_matches('\n').len());
        }
    }

    fn id(&mut self) -> usize {
        self.ids += 1;
        self.ids
    }

    fn open_emphasis(&mut self, range: &Range<usize>, width: usize, mark: Mark) {
        let whole = &self.source[range.clone()];
        let delimiter = whole.get(..width).unwrap_or_default();
        let before = self.source[..range.start].chars().next_back();
        let after = self.source[range.end..].chars().next();
        let inner = whole.get(width..whole.len().saturating_sub(width)).unwrap_or_default();
        if is_no_markup(delimiter, inner, before, after) {
            self.text(delimiter);
            self.shown_delimiters.push(Some(delimiter));
        } else {
            self.marks.push(mark);
            self.shown_delimiters.push(None);
        }
        self.shown_to = range.start + width;
    }

    fn open_link(&mut self, kind: LinkType, address: &CowStr<'s>, text_start: usize) {
        let whole = self.values.put_back(address);
        let linked = is_address(&whole) && !self.marks.iter().any(|mark| matches!(mark, Mark::Link(..)));
        if linked {
            let id = self.id();
            self.marks.push(Mark::Link(id, Arc::from(&*whole)));
        }
        self.links.push(OpenLink { kind, address: address.clone(), linked, begun: self.visible });
        self.shown_to = text_start;
    }

    fn close_link(&mut self, range: &Range<usize>) {
        let Some(link) = self.links.pop() else { return };
        let nothing_to_see = self.visible == link.begun;
        if nothing_to_see {
            self.text(&link.address);
        }
        if link.linked {
            self.marks.retain(|mark| !matches!(mark, Mark::Link(..)));
        }
        if nothing_to_see {
            return;
        }
        let tail = self.source.get(self.shown_to..range.end).unwrap_or_default();
        let address = match link.kind {
            LinkType::Inline => tail.find("](").map(|at| &tail[at + 1..]),
            LinkType::Reference => tail.find("][").map(|at| &tail[at + 1..]),
            _ => None,
        };
        if let Some(address) = address {
            // An image in a link keeps its address for where there is no markup, too.
            let hidden = link.linked || self.marks.iter().any(|mark| matches!(mark, Mark::Link(..)));
            self.put(&format!(" {address}"), hidden);
        }
    }

    fn code_block(&mut self, range: &Range<usize>) {
        let code = self.code.take().unwrap_or_default();
        let code = code.strip_suffix('\n').unwrap_or(&code);
        let whole = &self.source[range.clone()];
        let fence = whole.trim_start_matches(' ');
        let mark = fence.chars().next().unwrap_or(' ');
        if !fence.starts_with("```") && !fence.starts_with("~~~") {
            // Indented code, or just indented text: as it was written. Outside of lists and quotes the first line's
            // indentation lies before the block.
            if self.lists > 0 || self.quotes > 0 {
                self.text("    ");
            }
            self.text(&code.replace('\n', "\n    "));
            return;
        }
        let ticks = &fence[..fence.len() - fence.trim_start_matches(mark).len()];
        let info = fence[ticks.len()..].lines().next().unwrap_or_default();
        if is_blank(code) {
            // Without code there is no block to say the language: it is shown as it was written.
            self.text(&format!("{ticks}{info}"));
            if whole.trim_end().contains('\n') {
                self.text(&format!("\n{ticks}"));
            }
            return;
        }
        let word = info.split_whitespace().next().unwrap_or_default();
        // A value of several words is no language.
        let language = if self.values.put_back(word).contains(char::is_whitespace) { "" } else { word };
        // A mark says the language; what else stands there (a file's name) is shown before the code.
        let before_rest = info.find(language).map_or(info.len(), |at| at + language.len());
        let rest = info[before_rest..].trim();
        if rest.is_empty() {
            self.put(&format!("{ticks}{info}\n"), true);
        } else {
            let begun = info.len() - info[before_rest..].trim_start().len();
            self.put(&format!("{ticks}{}", &info[..begun]), true);
            self.put(&format!("{rest}\n"), false);
        }
        let id = self.id();
        self.marks.push(Mark::Pre(id, Arc::from(&*self.values.put_back(language))));
        self.text(code);
        self.marks.pop();
        self.put(&format!("\n{ticks}"), true);
    }

    /// The cells as columns, in a block of code. They are of equal width unless that takes more than [`MOST_PADDING`].
    fn table(&mut self) {
        self.runs = std::mem::take(&mut self.outside_table);
        let width = |cell: &str| width(&self.values.put_back(cell));
        let columns = self.table.iter().map(Vec::len).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.table.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0)
            })
            .collect();
        let text: usize = self.table.iter().flatten().map(|cell| width(cell)).sum();
        let full = widths.iter().sum::<usize>().saturating_mul(self.table.len());
        if full.saturating_sub(text) > MOST_PADDING {
            widths.fill(1);
        }
        let mut lines = Vec::new();
        for (index, row) in self.table.iter().enumerate() {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, full)| format!("{cell}{}", " ".repeat(full.saturating_sub(width(cell)))));
            lines.push(cells.collect::<Vec<_>>().join(" | ").trim_end().to_owned());
            if index == 0 {
                lines.push(widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>().join("-+-"));
            }
        }
        let id = self.id();
        self.marks.push(Mark::Pre(id, Arc::from("")));
        self.text(&lines.join("\n"));
        self.marks.pop();
    }

    /// Whether the block shows something, and every letter, digit and symbol of its source, in order.
    fn is_faithful_to(&self, source: &str) -> bool {
        let mut shown = self.runs.iter().flat_map(|run| run.text.chars());
        // A bullet alone is not worth a dash.
        let nothing = |run: &Run| run.plain_only || is_blank(&self.values.put_back(&run.text.replace('•', "")));
        let blank = self.runs.iter().all(nothing);
        !blank && source.chars().filter(|c| is_content(*c)).all(|wanted| shown.any(|c| c == wanted))
    }
}

fn is_content(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !c.is_ascii_punctuation()
}

/// The ends of a block's spoilers, in order. A pair stands in one paragraph and one style, around something, and outside
/// of words, code and tables: `a || b` and `x||y||z` are none.
fn spoilers(source: &str, block: &[Spanned<'_>]) -> Vec<SpoilerMark> {
    /// A block or a style that is open.
    #[derive(Clone, Copy)]
    struct Level {
        literal: bool,
        begun: Option<usize>,
    }
    let mut found = Vec::new();
    let mut levels = vec![Level { literal: false, begun: None }];
    for (event, range) in block {
        let Some(level) = levels.last_mut() else { break };
        match event {
            Event::Start(tag) => {
                let literal = level.literal
                    || matches!(tag, Tag::CodeBlock(_) | Tag::Table(_) | Tag::HtmlBlock)
                    || matches!(tag, Tag::Link { link_type: LinkType::Autolink | LinkType::Email, .. });
                levels.push(Level { literal, begun: None });
            }
            Event::End(_) => drop(levels.pop()),
            Event::Text(_) if !level.literal && !source[range.clone()].contains('\n') => {
                for (at, _) in source[range.clone()].match_indices(SPOILER) {
                    let (before, after) = (&source[..range.start + at], &source[range.start + at + SPOILER.len()..]);
                    let escaped = at == 0 && before.ends_with('\\');
                    if escaped || before.ends_with('|') || after.starts_with('|') {
                        continue;
                    }
                    let (before, after) = (before.chars().next_back(), after.chars().next());
                    let is_text = |c: Option<char>| c.is_some_and(|c| !c.is_whitespace());
                    match level.begun {
                        Some(begun) if is_text(before) && !is_in_word(after) => {
                            found.extend([(begun, true), (range.start + at, false)]);
                            level.begun = None;
                        }
                        _ if is_text(after) && !is_in_word(before) => level.begun = Some(range.start + at),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(at, opens)| SpoilerMark { at, opens }).collect()
}

/// The line below a heading that is marked by one (`---` or `===`).
fn underline(heading: &str) -> Option<&str> {
    let (_, last) = heading.trim_end().rsplit_once('\n')?;
    let last = last.trim_start_matches(|c: char| c.is_whitespace() || c == '>').trim_end();
    (!last.is_empty() && (last.bytes().all(|b| b == b'-') || last.bytes().all(|b| b == b'='))).then_some(last)
}

/// Delimiters that `CommonMark` takes for emphasis and people who chat do not mean as such.
fn is_no_markup(delimiter: &str, inner: &str, before: Option<char>, after: Option<char>) -> bool {
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    match delimiter {
        "*" => is_in_word(before) || is_in_word(after),
        "**" => is_in_word(before) && is_in_word(after) && (digit(before) || digit(after)),
        "__" => inner.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'),
        "~" => true,
        _ => false,
    }
}

/// Whether a mark beside this character is inside a word. Scripts without spaces between words put marks right beside
/// letters.
fn is_in_word(c: Option<char>) -> bool {
    c.is_some_and(|c| c.is_alphanumeric() && !is_wide(c))
}

/// Whether a link can be followed from a chat: others are shown as they were written.
fn is_address(address: &str) -> bool {
    address.len() <= LONGEST_LINK
        && !address.contains(|c: char| c.is_whitespace() || c.is_control())
        && reqwest::Url::parse(address).is_ok_and(|url| match url.scheme() {
            "http" | "https" => url.host_str().is_some_and(|host| host.contains(['.', ':'])),
            scheme => scheme == "tg",
        })
}

/// Columns of a text in a fixed-width font; of its longest line, if it has several.
fn width(text: &str) -> usize {
    let columns = |c| if is_wide(c) { 2 } else { usize::from(!is_zero_width(c)) };
    text.split('\n').map(|line| line.chars().map(columns).sum()).max().unwrap_or(0)
}

/// East Asian wide characters and most emoji.
fn is_wide(c: char) -> bool {
    matches!(u32::from(c),
        0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f
        | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1f64f | 0x1f680..=0x1f6ff | 0x1f900..=0x1faff | 0x20000..=0x3fffd)
}

fn is_zero_width(c: char) -> bool {
    matches!(u32::from(c), 0x0300..=0x036f | 0x200b..=0x200f | 0x20d0..=0x20ff | 0xfe00..=0xfe0f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(markdown: &str) -> String {
        read(markdown).into_iter().map(|run| run.text).collect()
    }

    /// What is seen where there is markup, with `⟨marks⟩` around styled runs.
    fn seen(markdown: &str) -> String {
        let show = |run: Run| {
            let names: Vec<_> = run
                .marks
                .iter()
                .map(|mark| match mark {
                    Mark::Quote(_) => "quote".to_owned(),
                    Mark::Pre(_, language) => format!("pre:{language}"),
                    Mark::Link(_, address) => format!("link:{address}"),
                    other => format!("{other:?}").to_lowercase(),
                })
                .collect();
            if names.is_empty() { run.text } else { format!("⟨{}⟩{}⟨⟩", names.join(" "), run.text) }
        };
        read(markdown).into_iter().filter(|run| !run.plain_only).map(show).collect()
    }

    #[test]
    fn hostile_markdown_does_not_grow() {
        let long = "x".repeat(3000);
        let table = format!("|a|b|\n|-|-|\n|{long}|1|\n{}", "|y|2|\n".repeat(500));
        let shown = plain(&table);
        assert!(shown.starts_with("a | b\n--+--\nxxx"), "{}", &shown[..40]);
        assert!(shown.contains("\ny | 2\n"));
        let list = format!("{}a\n{}", "- ".repeat(1500), "b\n".repeat(1500));
        let quote = format!("{}a\n{}", ">".repeat(1500), "b\n".repeat(1500));
        for hostile in [table, list, quote] {
            let shown = plain(&hostile).len();
            assert!(shown < 10 * hostile.len(), "{} became {shown} bytes", hostile.len());
        }
    }

    #[test]
    fn markup_becomes_marks() {
        for (markdown, expected) in [
            ("**b** and *i* and _i_ ~~s~~ `c`", "⟨bold⟩b⟨⟩ and ⟨italic⟩i⟨⟩ and ⟨italic⟩i⟨⟩ ⟨strike⟩s⟨⟩ ⟨code⟩c⟨⟩"),
            ("***x***", "⟨bold italic⟩x⟨⟩"),
            ("**a `c` b**", "⟨bold⟩a ⟨⟩⟨code⟩c⟨⟩⟨bold⟩ b⟨⟩"),
            ("# Head\n\ntext", "⟨bold⟩Head⟨⟩\n\ntext"),
            ("```py\nx = 1\n\ny\n```\nafter", "⟨pre:py⟩x = 1\n\ny⟨⟩\nafter"),
            ("[a](http://a.b/p_(q)) c", "⟨link:http://a.b/p_(q)⟩a⟨⟩ c"),
            ("[a](docs/x.md)", "a (docs/x.md)"),
            ("![alt](http://h.org/a_b.png)", "⟨link:http://h.org/a_b.png⟩alt⟨⟩"),
            ("[](http://h.org)", "⟨link:http://h.org⟩http://h.org⟨⟩"),
            ("<http://h.org>", "⟨link:http://h.org⟩http://h.org⟨⟩"),
            ("- a\n  - b\n- [ ] c\n\n2. x\n3) y", "• a\n  • b\n• [ ] c\n\n2. x\n3) y"),
            ("- a\n\n  para\n- b", "• a\n\n  para\n• b"),
            ("- a\n  ```\n  code\n  ```", "• a\n⟨pre:⟩code⟨⟩"),
            ("> q\n> r\n\nx", "⟨quote⟩q\nr⟨⟩\n\nx"),
            ("> a\n>\n> - b", "⟨quote⟩a\n\n• b⟨⟩"),
            ("a\n\n---\n\nb", "a\n\n———\n\nb"),
            ("a\n---\nb", "a\n———\nb"),
            ("重要な**太字**です", "重要な⟨bold⟩太字⟨⟩です"),
            ("|a|b|\n|-|-|\n|日本|`x`\\|y|", "⟨pre:⟩a    | b\n-----+----\n日本 | x|y⟨⟩"),
            ("it is ||Bob||, or (||a\nb||)", "it is ⟨spoiler⟩Bob⟨⟩, or (⟨spoiler⟩a\nb⟨⟩)"),
            ("**x ||y|| z**", "⟨bold⟩x ⟨⟩⟨spoiler bold⟩y⟨⟩⟨bold⟩ z⟨⟩"),
            ("||*i* `pw` ||", "||⟨italic⟩i⟨⟩ ⟨code⟩pw⟨⟩ ||"),
            ("||*i* `pw` [l](http://h.o)||", "⟨spoiler italic⟩i⟨⟩⟨spoiler⟩ pw ⟨⟩⟨spoiler link:http://h.o⟩l⟨⟩"),
            ("||a *||b|| c* d||", "⟨spoiler⟩a ⟨⟩⟨spoiler italic⟩b⟨⟩⟨spoiler italic⟩ c⟨⟩⟨spoiler⟩ d⟨⟩"),
            ("<http://a.b/||c||>", "⟨link:http://a.b/||c||⟩http://a.b/||c||⟨⟩"),
            ("*||a* b|| `||c||`", "⟨italic⟩||a⟨⟩ b|| ⟨code⟩||c||⟨⟩"),
            ("[\u{200b}](http://h.org)", "⟨link:http://h.org⟩\u{200b}http://h.org⟨⟩"),
        ] {
            assert_eq!(seen(markdown), expected, "{markdown}");
        }
    }

    #[test]
    fn text_that_is_no_markdown_stays_as_it_is() {
        for text in [
            "3*4*5",
            "2**3**4",
            "snake_case and __init__.py",
            "a < b && c > d &amp; &copy; <b>no</b>",
            "#tag",
            "  leading\n   spaces",
            "a\n\n\n\nb\n",
            "use ``` to open a block (see C:\\dir_a)",
            "*args, **kwargs",
            "~5 and ~6~",
            "    indented\n    more",
            "[foo]: http://x.org \"title\"",
            "<div>\n**x**\n</div>",
            "#",
            "-",
            ">",
            "[x] done",
            r"\{issue.title\} {a}",
            r"\{",
            "a || b || c",
            "x||y||z",
            "|| a ||",
            "||a",
            "||||",
            "|||a|||",
            "||a\n\nb||",
            "1. ",
            "🙂 👨‍👩‍👧‍👦",
            "\t",
        ] {
            assert_eq!(seen(text), text);
        }
    }

    #[test]
    fn values_are_shown_as_they_are_and_markup_around_them_counts() {
        use crate::delimited as v;
        let nasty = "C:\\_dir\\*x* [Your invoice](http://evil.org) ||y|| `z`\n\n# <b>&amp;\n```\n| a";
        let address = "https://ex.org/a_b_c(d)?x=*y*";
        for (markdown, expected) in [
            (v(nasty), nasty.to_owned()),
            (format!("**{}** x", v(nasty)), format!("⟨bold⟩{nasty}⟨⟩ x")),
            (format!("`{}`", v(nasty)), format!("⟨code⟩{nasty}⟨⟩")),
            (format!("```py\n{}\n```", v(nasty)), format!("⟨pre:py⟩{nasty}⟨⟩")),
            (format!("# {}\nx", v(nasty)), format!("⟨bold⟩{nasty}⟨⟩\nx")),
            (format!("> {}\n\nx", v(nasty)), format!("⟨quote⟩{nasty}⟨⟩\n\nx")),
            (format!("- {}\n- ||{}||", v(nasty), v("b")), format!("• {nasty}\n• ⟨spoiler⟩b⟨⟩")),
            (format!("[{}]({})", v(nasty), v(address)), format!("⟨link:{address}⟩{nasty}⟨⟩")),
            (format!("[a]({}/b#{})", v("http://h.org"), v("*c*")), "⟨link:http://h.org/b#*c*⟩a⟨⟩".into()),
            (format!("[a]({})", v("javascript:x()")), "a (javascript:x())".into()),
            (format!("[a]({})", v("http://h.org/ b")), "a (http://h.org/ b)".into()),
            (format!("[a](http://h.org/{})", v(&"x".repeat(990))), format!("a (http://h.org/{})", "x".repeat(990))),
            (format!("[{}](http://h.org)", v(" ")), "⟨link:http://h.org⟩ http://h.org⟨⟩".into()),
            (format!("{}*{}*{}", v("3"), v("4"), v("5")), "3*4*5".into()),
            (format!("x{}*y* _{}_", v("\\"), v("a_")), "x\\*y* ⟨italic⟩a_⟨⟩".into()),
            (format!("|a|\n|-|\n|{}|\n|c|", v("x|y|z")), "⟨pre:⟩a\n-----\nx|y|z\nc⟨⟩".into()),
            (format!("``` {}\nx\n```", v("a b")), "a b\n⟨pre:⟩x⟨⟩".into()),
            (format!("```{}\nx\n```", v("rs")), "⟨pre:rs⟩x⟨⟩".into()),
            (format!("**{}**", v("\u{200b}")), "**\u{200b}**".into()),
            (format!("**a**{}", v("\r\n**b**")), "⟨bold⟩a⟨⟩\n**b**".into()),
        ] {
            assert_eq!(seen(&markdown), expected, "{markdown}");
        }
        assert_eq!(plain(&format!("[a]({}) ||{}||", v(address), v("b"))), format!("a ({address}) ||b||"));
        let table = |cell: &str| plain(&format!("|a|b|\n|-|-|\n|{}|1|\n{}", v(cell), "|y|2|\n".repeat(500)));
        assert!(table("xxx").contains("\ny   | 2\n"));
        assert!(table(&"x".repeat(3000)).contains("\ny | 2\n"), "padding is counted with the values in");
    }

    #[test]
    fn more_values_than_can_stand_apart_are_shown_without_markup() {
        assert_eq!(
            seen(&format!("**{}**", crate::delimited("*a*").repeat(7000))),
            format!("**{}**", "*a*".repeat(7000))
        );
    }

    #[test]
    fn the_plain_text_says_what_marks_would() {
        assert_eq!(plain("see [a](http://a.b)!"), "see a (http://a.b)!");
        assert_eq!(plain("x\n```py\ny\n```"), "x\n```py\ny\n```");
        assert_eq!(plain("[a][r]\n\n[r]: http://a.b"), "a [r]\n\n[r]: http://a.b");
        assert_eq!(plain("**b**\r\nc"), "b\nc");
        assert_eq!(plain("it is ||*Bob*||"), "it is ||Bob||");
        assert_eq!(plain(r"\||a|| \\{b"), r"||a|| \{b");
    }

    #[test]
    fn a_block_that_would_lose_something_is_shown_as_written() {
        for text in ["|a|b|\n|-|-|\n|1|2|lost|", "> [foo]: http://x", "[a][] [b]\n[a]: <x> 'T'"] {
            let shown = plain(text);
            let mut shown = shown.chars();
            assert!(text.chars().filter(|c| c.is_alphanumeric()).all(|wanted| shown.any(|c| c == wanted)), "{text}");
        }
    }
}
