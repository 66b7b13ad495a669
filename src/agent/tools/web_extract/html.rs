//! What a person would read of a page: its words without its markup, in one pass over it.

use reqwest::Url;

use super::entities;

/// Elements whose content nobody reads, and that may hold others.
const UNREAD: [&str; 8] = ["noscript", "template", "svg", "head", "math", "object", "select", "canvas"];
/// Elements whose content is no markup, and that nobody reads.
const RAW: [&str; 5] = ["script", "style", "iframe", "noembed", "noframes"];
/// What may stand in a head: anything else ends it, as browsers have it.
const OF_HEAD: [&str; 11] =
    ["html", "head", "title", "meta", "link", "base", "script", "style", "noscript", "template", "object"];
/// Elements with an empty line around them.
const APART: [&str; 15] =
    ["p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "dl", "table", "pre", "blockquote", "article", "section"];
/// Elements on lines of their own.
const LINES: [&str; 24] = [
    "address",
    "aside",
    "body",
    "br",
    "caption",
    "dd",
    "details",
    "div",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "hr",
    "legend",
    "li",
    "main",
    "nav",
    "option",
    "summary",
    "title",
    "tr",
];

/// Where reading ends: a short page of links to itself would become a long text.
const LONGEST_TEXT: usize = 4 << 20;

/// A page as a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// On one line; empty when it has none.
    pub(super) title: String,
    /// The rest.
    pub(super) text: String,
}

/// Reads a page found at `at`, to which its links are relative.
pub(super) fn read(html: &str, at: &Url) -> Page {
    let mut reader =
        Reader { rest: html, at: at.clone(), out: Out::default(), title: None, unread: None, link: None, pre: 0 };
    while !reader.rest.is_empty() && reader.out.text.len() < LONGEST_TEXT {
        reader.step();
    }
    reader.end_link();
    Page { title: one_line(&reader.title.unwrap_or_default()), text: reader.out.text }
}

/// A text on one line, without blanks around it.
pub(in crate::agent::tools) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

struct Reader<'a> {
    rest: &'a str,
    at: Url,
    out: Out,
    title: Option<String>,
    /// The element whose content is skipped, and how many of its name are open.
    unread: Option<(&'static str, usize)>,
    /// Where the words of a link begin, and where it leads.
    link: Option<(usize, Url)>,
    pre: usize,
}

impl<'a> Reader<'a> {
    fn step(&mut self) {
        let Some(words) = self.rest.find('<') else {
            let words = std::mem::take(&mut self.rest);
            return self.words(words);
        };
        if words > 0 {
            let (words, rest) = self.rest.split_at(words);
            self.rest = rest;
            return self.words(words);
        }
        let mut after = self.rest[1..].chars();
        match after.next() {
            Some('!') if self.rest.starts_with("<!--") => self.skip_past("<!--".len(), "-->"),
            Some('!' | '?') => self.skip_past(2, ">"),
            Some('/') if after.next().is_some_and(|next| next.is_ascii_alphabetic()) => {
                let (name, _, rest) = tag(&self.rest[2..]);
                self.rest = rest;
                self.end(&name);
            }
            Some(first) if first.is_ascii_alphabetic() => {
                let (name, attributes, rest) = tag(&self.rest[1..]);
                self.rest = rest;
                self.start(&name, attributes);
            }
            // No markup.
            _ => {
                self.rest = &self.rest[1..];
                self.words("<");
            }
        }
    }

    fn skip_past(&mut self, from: usize, end: &str) {
        self.rest = match self.rest[from..].find(end) {
            Some(at) => &self.rest[from + at + end.len()..],
            None => "",
        };
    }

    /// The text until an element of raw text ends. Its end tag stays.
    fn raw(&mut self, name: &str) -> &'a str {
        let is_end = |at: &usize| {
            let after = self.rest.as_bytes().get(at + 2..at + 2 + name.len());
            after.is_some_and(|after| after.eq_ignore_ascii_case(name.as_bytes()))
        };
        let end = self.rest.match_indices("</").map(|(at, _)| at).find(is_end).unwrap_or(self.rest.len());
        let (raw, rest) = self.rest.split_at(end);
        self.rest = rest;
        raw
    }

    fn words(&mut self, words: &str) {
        if self.unread.is_none() {
            self.out.words(&entities::decode(words), self.pre > 0);
        }
    }
}

impl Reader<'_> {
    fn start(&mut self, name: &str, attributes: &str) {
        if RAW.contains(&name) {
            self.raw(name);
            return;
        }
        if name == "title" && self.unread.is_none_or(|(unread, _)| unread == "head") {
            let title = entities::decode(self.raw(name));
            self.title.get_or_insert(title);
            return;
        }
        if self.unread.is_some_and(|(unread, _)| unread == "head") && !OF_HEAD.contains(&name) {
            self.unread = None;
        }
        if let Some((unread, open)) = &mut self.unread {
            *open += usize::from(*unread == name && !attributes.ends_with('/'));
            return;
        }
        if let Some(unread) = UNREAD.iter().find(|unread| **unread == name) {
            self.unread = (!attributes.ends_with('/')).then_some((unread, 1));
            return;
        }
        match name {
            "a" => {
                self.end_link();
                let address = attribute(attributes, "href").map(|href| entities::decode(&href));
                self.link = address.and_then(|address| self.leads_to(&address)).map(|url| (self.out.text.len(), url));
            }
            "td" | "th" => self.out.gap(Gap::Blank),
            "pre" => self.pre += 1,
            _ => {}
        }
        self.around(name);
        if name == "li" {
            self.out.words("- ", false);
        }
    }

    fn end(&mut self, name: &str) {
        if let Some((unread, open)) = &mut self.unread {
            *open -= usize::from(*unread == name);
            if *open == 0 {
                self.unread = None;
            }
            return;
        }
        match name {
            "a" => self.end_link(),
            "pre" => self.pre = self.pre.saturating_sub(1),
            _ => {}
        }
        self.around(name);
    }

    fn around(&mut self, name: &str) {
        if APART.contains(&name) {
            self.out.gap(Gap::EmptyLine);
        } else if LINES.contains(&name) {
            self.out.gap(Gap::Line);
        }
    }

    /// Where a link leads, if that is another page.
    fn leads_to(&self, address: &str) -> Option<Url> {
        let address = address.trim();
        if address.is_empty() || address.starts_with('#') {
            return None;
        }
        let url = self.at.join(address).ok()?;
        matches!(url.scheme(), "http" | "https" | "mailto").then_some(url)
    }

    fn end_link(&mut self) {
        let Some((begin, url)) = self.link.take() else { return };
        let words = self.out.text[begin..].trim();
        if !words.is_empty() && words != url.as_str() {
            let gap = std::mem::replace(&mut self.out.gap, Gap::Blank);
            self.out.words(&format!("({url})"), false);
            self.out.gap(gap);
        }
    }
}

/// What stands between two words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    #[default]
    None,
    Blank,
    Line,
    EmptyLine,
}

/// The text so far. Blanks at its end are still to come, so there are never two.
#[derive(Default)]
struct Out {
    text: String,
    gap: Gap,
}

impl Out {
    fn gap(&mut self, gap: Gap) {
        self.gap = self.gap.max(gap);
    }

    fn words(&mut self, words: &str, is_verbatim: bool) {
        for c in words.chars() {
            match c {
                '\n' if is_verbatim => {
                    self.gap = if self.gap >= Gap::Line { Gap::EmptyLine } else { Gap::Line };
                }
                c if c.is_whitespace() && !(is_verbatim && self.gap != Gap::Blank) => self.gap(Gap::Blank),
                c => {
                    let between = match std::mem::take(&mut self.gap) {
                        _ if self.text.is_empty() => "",
                        Gap::None => "",
                        Gap::Blank => " ",
                        Gap::Line => "\n",
                        Gap::EmptyLine => "\n\n",
                    };
                    self.text.push_str(between);
                    self.text.push(c);
                }
            }
        }
    }
}

/// Takes a tag apart after its `<` or `</`: its name in lower case, its attributes, and what follows it.
fn tag(text: &str) -> (String, &str, &str) {
    let name_end = text.find(|c: char| c.is_whitespace() || matches!(c, '/' | '>')).unwrap_or(text.len());
    let (name, rest) = text.split_at(name_end);
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in rest.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if before == '=' => quote = Some(c),
            (None, '>') => return (name.to_ascii_lowercase(), rest[..at].trim(), &rest[at + 1..]),
            _ => {}
        }
        if !c.is_whitespace() {
            before = c;
        }
    }
    (name.to_ascii_lowercase(), rest.trim(), "")
}

/// An attribute's value as it is written.
fn attribute(attributes: &str, wanted: &str) -> Option<String> {
    let mut rest = attributes;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        if rest.is_empty() {
            return None;
        }
        let name_end = rest.find(|c: char| c.is_whitespace() || matches!(c, '=' | '/')).unwrap_or(rest.len());
        let (name, after) = rest.split_at(name_end);
        let after = after.trim_start();
        let Some(value) = after.strip_prefix('=').map(str::trim_start) else {
            rest = after;
            if name.eq_ignore_ascii_case(wanted) {
                return None;
            }
            continue;
        };
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (value, after) = match quote {
            Some(quote) => value[1..].split_once(quote).unwrap_or((&value[1..], "")),
            None => value.split_at(value.find(char::is_whitespace).unwrap_or(value.len())),
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value.to_owned());
        }
        rest = after;
    }
}
