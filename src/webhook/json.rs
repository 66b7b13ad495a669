//! A view of JSON text: look a value up, write it indented, shorten it so that it stays valid JSON.
//!
//! No tree is built: numbers keep their spelling, keys their order, and a lookup reads only what it passes. Nothing here
//! recurses, so no nesting can exhaust the stack.

use std::borrow::Cow;
use std::ops::ControlFlow;

/// How deep values may be nested, the same as `serde_json::Value` takes.
pub const MAX_DEPTH: usize = 127;

/// Names what was left out of a shortened object or list.
const CUT_MARK: &str = "…";

/// One valid JSON value, as its text without blanks around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<'a>(&'a str);

/// What a [`Json`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Kind {
    Null,
    Bool,
    Number,
    String,
    List,
    Object,
}

impl<'a> Json<'a> {
    /// `None` unless `text` is exactly one JSON value, nested at most [`MAX_DEPTH`] deep.
    pub fn parse(text: &'a str) -> Option<Self> {
        // Skips over the value in a loop: no recursion limit, no tree.
        let raw: &serde_json::value::RawValue = serde_json::from_str(text).ok()?;
        let (_, deepest) = extent(raw.get().as_bytes(), 0)?;
        (deepest <= MAX_DEPTH).then(|| Self(raw.get()))
    }

    /// The same, together with its members, if it is an object, as [`Json::members`] gives them: in one pass.
    pub(super) fn parse_with_members(text: &'a str) -> Option<(Self, Vec<(&'a str, Json<'a>)>)> {
        let raw: &serde_json::value::RawValue = serde_json::from_str(text).ok()?;
        let json = Self(raw.get());
        if json.kind() != Kind::Object {
            let (_, deepest) = extent(json.0.as_bytes(), 0)?;
            return (deepest <= MAX_DEPTH).then(|| (json, Vec::new()));
        }
        let mut deepest = 0;
        let members = json.members_with_depth().map(|(key, value, depth)| {
            deepest = deepest.max(depth);
            (key, value)
        });
        let members = members.collect();
        (deepest < MAX_DEPTH).then_some((json, members))
    }

    /// Text that [`Json::parse`] returned before.
    pub(super) fn of_checked(text: &'a str) -> Self {
        Self(text)
    }

    /// The text as it was received.
    pub fn text(self) -> &'a str {
        self.0
    }

    /// What it is.
    pub fn kind(self) -> Kind {
        match self.0.as_bytes().first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::List,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'n') => Kind::Null,
            _ => Kind::Number,
        }
    }

    /// The value of a string, without quotes and escapes. A lone surrogate becomes `U+FFFD`.
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        (self.kind() == Kind::String).then(|| unescape(self.0))
    }

    /// A string's value, and the JSON text of everything else: `5`, `1.50`, `null`, `true`.
    pub fn plain(self) -> Cow<'a, str> {
        self.as_str().unwrap_or(Cow::Borrowed(self.0))
    }

    /// The value at a path: `a.b`, with list indexes as `a.0.b` or `a[0].b`. `None` when any step of it is missing.
    pub fn get(self, path: &str) -> Option<Json<'a>> {
        let mut here = self;
        for segment in path.split('.') {
            let (name, mut indexes) = match segment.find('[') {
                Some(at) => segment.split_at(at),
                None => (segment, ""),
            };
            if !name.is_empty() {
                here = match here.kind() {
                    Kind::Object => here.member(name)?,
                    Kind::List => here.element(index(name)?)?,
                    _ => return None,
                };
            } else if indexes.is_empty() {
                return None;
            }
            while !indexes.is_empty() {
                let (number, rest) = indexes.strip_prefix('[')?.split_once(']')?;
                here = here.element(index(number)?)?;
                indexes = rest;
            }
        }
        Some(here)
    }

    /// A member of an object; the last one when the key is there more than once.
    pub fn member(self, key: &str) -> Option<Json<'a>> {
        self.members().filter(|(name, _)| unescape(name) == key).last().map(|(_, value)| value)
    }

    /// An element of a list, from 0.
    pub fn element(self, index: usize) -> Option<Json<'a>> {
        self.elements().nth(index)
    }

    /// The members of an object in order: each key as it is written, with quotes, and its value.
    pub fn members(self) -> impl Iterator<Item = (&'a str, Json<'a>)> {
        self.members_with_depth().map(|(key, value, _)| (key, value))
    }

    /// The same with how deep each value is nested.
    fn members_with_depth(self) -> impl Iterator<Item = (&'a str, Json<'a>, usize)> {
        let mut tokens = Tokens::new(self.0);
        let is_object = tokens.next() == Some("{");
        std::iter::from_fn(move || {
            let key = match tokens.next().filter(|_| is_object)? {
                "," => tokens.next()?,
                token => token,
            };
            tokens.next().filter(|token| *token == ":")?;
            let (value, depth) = tokens.take_value()?;
            Some((key, value, depth))
        })
    }

    /// The elements of a list in order.
    pub fn elements(self) -> impl Iterator<Item = Json<'a>> {
        let mut tokens = Tokens::new(self.0);
        let is_list = tokens.next() == Some("[");
        std::iter::from_fn(move || {
            if !is_list {
                return None;
            }
            tokens.skip_comma();
            tokens.take_value().map(|(value, _)| value)
        })
    }

    /// Two-space indented, UTF-8, numbers as they are written.
    pub fn pretty(self) -> String {
        let mut writer = Writer::new(usize::MAX);
        let _ = self.write(None, &mut writer);
        writer.out
    }

    /// The first `limit` characters of [`Json::pretty`], and how many were left out.
    pub(crate) fn pretty_start(self, limit: usize) -> (String, usize) {
        let cut = self.pretty_chars(None).saturating_sub(limit);
        let mut writer = Writer::new(limit);
        let _ = self.write(None, &mut writer);
        truncate_chars(&mut writer.out, limit);
        (writer.out, cut)
    }

    /// [`Json::pretty`] in at most `limit` characters (100 and more) and still valid JSON: first long strings are
    /// shortened, then the rest of the document is left out. Every cut says inside the JSON how much is missing.
    pub fn shortened(self, limit: usize) -> String {
        match self.kind() {
            Kind::String => return encode_string(self.0, Some(limit)),
            Kind::Object | Kind::List => {}
            _ if self.0.chars().count() <= limit => return self.0.to_owned(),
            _ => return encode_string(&format!("\"{}\"", self.0), Some(limit)),
        }
        if self.pretty_chars(None) <= limit {
            return self.pretty();
        }
        let longest_string = Some(limit / 4);
        let whole = self.pretty_chars(longest_string);
        let mut writer = Writer::new(limit);
        let _ = self.write(longest_string, &mut writer);
        if writer.chars > limit {
            writer.cut(whole);
        }
        writer.out
    }

    fn pretty_chars(self, longest_string: Option<usize>) -> usize {
        let mut counter = Counter(0);
        let _ = self.write(longest_string, &mut counter);
        counter.0
    }

    fn write(self, longest_string: Option<usize>, sink: &mut impl Sink) -> ControlFlow<()> {
        let mut tokens = Tokens::new(self.0).peekable();
        let mut open = Vec::new();
        while let Some(token) = tokens.next() {
            match token {
                "{" | "[" => {
                    sink.text(token);
                    let close = if token == "{" { "}" } else { "]" };
                    if tokens.next_if_eq(&close).is_none() {
                        open.push(close);
                        sink.boundary(&open, false)?;
                        sink.line(open.len());
                        continue;
                    }
                    sink.text(close);
                }
                "}" | "]" => {
                    open.pop();
                    sink.line(open.len());
                    sink.text(token);
                }
                "," => {
                    sink.text(token);
                    sink.line(open.len());
                    continue;
                }
                ":" => {
                    sink.text(": ");
                    continue;
                }
                key if tokens.peek() == Some(&":") => {
                    sink.text(&encode_string(key, None));
                    continue;
                }
                string if string.starts_with('"') => sink.text(&encode_string(string, longest_string)),
                literal => sink.text(literal),
            }
            if !open.is_empty() {
                sink.boundary(&open, true)?;
            }
        }
        ControlFlow::Continue(())
    }
}

fn index(digits: &str) -> Option<usize> {
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Shortens `text` to `limit` characters.
pub(crate) fn truncate_chars(text: &mut String, limit: usize) {
    if let Some((end, _)) = text.char_indices().nth(limit) {
        text.truncate(end);
    }
}

/// Where indented JSON goes.
trait Sink {
    fn text(&mut self, text: &str);
    fn line(&mut self, depth: usize);
    /// A member may end here or, without `has_members`, begin here; `open` are the closing brackets to come.
    fn boundary(&mut self, open: &[&'static str], has_members: bool) -> ControlFlow<()>;
}

struct Counter(usize);

impl Sink for Counter {
    fn text(&mut self, text: &str) {
        self.0 += text.chars().count();
    }

    fn line(&mut self, depth: usize) {
        self.0 += 1 + 2 * depth;
    }

    fn boundary(&mut self, _: &[&'static str], _: bool) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

struct Writer {
    out: String,
    chars: usize,
    limit: usize,
    /// The last place where the document can be closed within the limit.
    closable: Option<Closable>,
}

struct Closable {
    bytes: usize,
    chars: usize,
    open: Vec<&'static str>,
    has_members: bool,
}

impl Writer {
    fn new(limit: usize) -> Self {
        Self { out: String::new(), chars: 0, limit, closable: None }
    }

    /// Goes back to the last closable place, says what is missing and closes all brackets.
    fn cut(&mut self, whole: usize) {
        let Some(Closable { bytes, chars, mut open, has_members }) = self.closable.take() else { return };
        self.out.truncate(bytes);
        if has_members {
            self.out.push(',');
        }
        self.line(open.len());
        let missing = whole.saturating_sub(chars);
        self.out.push_str(&match open.last() {
            Some(&"}") => format!("\"{CUT_MARK}\": \"{missing} characters cut\""),
            _ => format!("\"{CUT_MARK} {missing} characters cut\""),
        });
        while let Some(close) = open.pop() {
            self.line(open.len());
            self.out.push_str(close);
        }
    }
}

impl Sink for Writer {
    fn text(&mut self, text: &str) {
        self.chars += text.chars().count();
        self.out.push_str(text);
    }

    fn line(&mut self, depth: usize) {
        self.chars += 1 + 2 * depth;
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n("  ", depth));
    }

    fn boundary(&mut self, open: &[&'static str], has_members: bool) -> ControlFlow<()> {
        if self.limit == usize::MAX {
            return ControlFlow::Continue(());
        }
        if self.chars > self.limit {
            return ControlFlow::Break(());
        }
        // The comma, the line of the note with a generous number, and a line per bracket.
        let note = 1 + (1 + 2 * open.len()) + 50;
        let brackets: usize = (0..open.len()).map(|depth| 2 + 2 * depth).sum();
        if self.closable.is_none() || self.chars + note + brackets <= self.limit {
            self.closable =
                Some(Closable { bytes: self.out.len(), chars: self.chars, open: open.to_vec(), has_members });
        }
        ControlFlow::Continue(())
    }
}

/// The value of a JSON string that is written with its quotes.
pub(crate) fn unescape(quoted: &str) -> Cow<'_, str> {
    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(quoted);
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let mut chars = rest.chars();
        let escaped = chars.next();
        rest = chars.as_str();
        match escaped {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                let (decoded, after) = unescape_unicode(rest);
                out.push(decoded);
                rest = after;
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Reads what follows `\u`: four hex digits, and the second half of a surrogate pair if there is one.
fn unescape_unicode(text: &str) -> (char, &str) {
    let unit = |text: &str| text.get(..4).and_then(|digits| u16::from_str_radix(digits, 16).ok());
    let Some(first) = unit(text) else { return (char::REPLACEMENT_CHARACTER, text) };
    let after = &text[4..];
    let second = after.strip_prefix("\\u").and_then(unit);
    let pair = second.map(|second| char::decode_utf16([first, second]).next());
    match (char::from_u32(u32::from(first)), pair) {
        (Some(character), _) => (character, after),
        (None, Some(Some(Ok(character)))) => (character, &after[6..]),
        _ => (char::REPLACEMENT_CHARACTER, after),
    }
}

/// Writes a JSON string anew, with the escapes that JSON requires and no others. With `limit`, in at most so many
/// characters (quotes and escapes count), the last of which say how many of the value's are missing.
pub(crate) fn encode_string(quoted: &str, limit: Option<usize>) -> String {
    let value = unescape(quoted);
    let encode = |text: &str| serde_json::Value::from(text).to_string();
    let whole = encode(&value);
    let Some(limit) = limit.filter(|limit| whole.chars().count() > *limit) else { return whole };
    let room = limit.saturating_sub(2 + cut_note(value.chars().count()).chars().count());
    let (mut used, mut kept, mut end) = (0, 0, 0);
    for (at, character) in value.char_indices() {
        used += encode(character.encode_utf8(&mut [0; 4])).chars().count() - 2;
        if used > room {
            break;
        }
        kept += 1;
        end = at + character.len_utf8();
    }
    encode(&format!("{}{}", &value[..end], cut_note(value.chars().count() - kept)))
}

/// What stands behind a value that was cut.
pub(crate) fn cut_note(characters: usize) -> String {
    format!("{CUT_MARK} [{characters} characters cut]")
}

/// Where the string that begins at `start` ends.
fn string_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Where the value that begins at `start` of valid JSON ends, and how deep it is nested; `None` when a closing bracket
/// stands there. Strings are skipped in strides: this is what every lookup costs.
fn extent(text: &[u8], start: usize) -> Option<(usize, usize)> {
    let (mut at, mut depth, mut deepest) = (start, 0_usize, 0);
    loop {
        match *text.get(at)? {
            b'"' => at = string_end(text, at)?,
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
                at += 1;
                continue;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            _ if depth == 0 => {
                let end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b':') || byte.is_ascii_whitespace();
                at += text[at..].iter().position(end).unwrap_or(text.len() - at);
            }
            _ => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return Some((at, deepest));
        }
    }
}

/// The tokens of valid JSON text: brackets, commas, colons, strings with their quotes, other scalars.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn peek_byte(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        self.at += rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_comma(&mut self) {
        if self.peek_byte() == Some(b',') {
            self.at += 1;
        }
    }

    /// The whole value that begins here and how deep it is nested; `None` at the end of the list or object.
    fn take_value(&mut self) -> Option<(Json<'a>, usize)> {
        self.peek_byte()?;
        let start = self.at;
        let (end, deepest) = extent(self.text.as_bytes(), start)?;
        self.at = end;
        self.text.get(start..end).map(|text| (Json(text), deepest))
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let first = self.peek_byte()?;
        let rest = &self.text.as_bytes()[self.at..];
        let length = match first {
            b'{' | b'}' | b'[' | b']' | b',' | b':' => 1,
            b'"' => string_end(rest, 0)?,
            _ => rest
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']' | b':') || byte.is_ascii_whitespace())
                .unwrap_or(rest.len()),
        };
        let token = self.text.get(self.at..self.at + length);
        self.at += length;
        token
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn parse(text: &str) -> Json<'_> {
        Json::parse(text).expect(text)
    }

    #[test]
    fn paths_reach_members_and_elements() {
        let text = r#" {"a": {"b": [[1, 2], [3]], "é": "x", "A\n": 1}, "k": 1, "k": 2, "a.b": 9, "": 5} "#;
        for (path, found) in [
            ("a.b.0.1", Some("2")),
            ("a.b[1][0]", Some("3")),
            ("a.b[1].0", Some("3")),
            ("a.é", Some("\"x\"")),
            ("k", Some("2")),
            ("a.b.2", None),
            ("a.b.-1", None),
            ("a.b.+1", None),
            ("a.b.99999999999999999999999", None),
            ("a.b[x]", None),
            ("a.b[0", None),
            ("a.b]0[", None),
            ("a..b", None),
            (".a", None),
            ("a.", None),
            ("", None),
            ("k.x", None),
            ("k[0]", None),
            ("missing", None),
        ] {
            assert_eq!(parse(text).get(path).map(Json::text), found, "{path}");
        }
        assert_eq!(parse("[[5]]").get("0.0").map(Json::text), Some("5"));
        assert_eq!(parse("[[5]]").get("[0][0]").map(Json::text), Some("5"));
    }

    #[test]
    fn escaped_keys_are_found_and_brackets_in_strings_do_not_count() {
        let text = r#"{"x": "}]\"{[", "\u006bey\ud83d\ude00": {"y": "\\"}, "z": 1}"#;
        assert_eq!(parse(text).get("key😀.y").map(Json::plain).as_deref(), Some("\\"));
        assert_eq!(parse(text).get("z").map(Json::text), Some("1"));
        assert_eq!(parse(text).get("x").map(Json::plain).as_deref(), Some("}]\"{["));
    }

    #[test]
    fn lone_surrogates_neither_fail_nor_stay() {
        let text = r#"["\ud800", "\udc00x", "\ud83d\u0041", "\ud83d\ude00"]"#;
        let plain: Vec<_> = parse(text).elements().map(|element| element.plain().into_owned()).collect();
        assert_eq!(plain, ["\u{fffd}", "\u{fffd}x", "\u{fffd}A", "😀"]);
        serde_json::from_str::<Value>(&parse(text).pretty()).expect("valid again");
    }

    #[test]
    fn pretty_keeps_numbers_order_and_letters() {
        let text = r#"{"b":1.50,"a":12345678901234567890123456789012345678901234567890,"e":1E+2,"u":"\u00e9\u0001\/","o":{},"l":[ ],"n":[{"x":null}]}"#;
        let pretty = "{\n  \"b\": 1.50,\n  \"a\": 12345678901234567890123456789012345678901234567890,\n  \"e\": 1E+2,\n  \
                      \"u\": \"é\\u0001/\",\n  \"o\": {},\n  \"l\": [],\n  \"n\": [\n    {\n      \"x\": null\n    }\n  ]\n}";
        assert_eq!(parse(text).pretty(), pretty);
    }

    #[test]
    fn nesting_is_bounded_and_never_exhausts_the_stack() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Json::parse(&nested(MAX_DEPTH)).is_some());
        serde_json::from_str::<Value>(&nested(MAX_DEPTH)).expect("whatever passes here fits into a tree");
        assert!(Json::parse(&nested(MAX_DEPTH + 1)).is_none());
        assert!(Json::parse(&nested(500_000)).is_none());
        assert!(Json::parse(&r#"{"a":"#.repeat(300_000)).is_none());
    }

    #[test]
    fn a_shortened_document_keeps_its_start_and_says_what_is_missing() {
        let body = "x".repeat(5_000);
        let text = format!(r#"{{"action":"opened","issue":{{"body":"{body}","number":7}},"sender":"octo"}}"#);
        let shortened = parse(&text).shortened(4_000);
        let value: Value = serde_json::from_str(&shortened).expect("valid");
        assert_eq!(value["action"], "opened");
        assert_eq!(value["issue"]["number"], 7, "one long string does not displace what follows it");
        assert_eq!(value["sender"], "octo");
        assert!(value["issue"]["body"].as_str().expect("text").ends_with("characters cut]"), "{shortened}");

        let many = Value::from((0..5_000).collect::<Vec<_>>()).to_string();
        let shortened = parse(&many).shortened(4_000);
        let value: Vec<Value> = serde_json::from_str(&shortened).expect("valid");
        assert_eq!(value[100], 100);
        let kept = value.len() - 1;
        let whole = serde_json::to_string_pretty(&(0..5_000).collect::<Vec<_>>()).expect("json");
        let start = serde_json::to_string_pretty(&(0..kept).collect::<Vec<_>>()).expect("json");
        let missing = whole.len() - start.trim_end_matches("\n]").len();
        assert_eq!(value[kept], format!("… {missing} characters cut"));
        assert!(shortened.len() > 3_900, "uses the room it has");
    }

    #[test]
    fn long_scalars_are_shortened_to_valid_json() {
        for text in [format!("\"{}\"", "\\n".repeat(3_000)), "7".repeat(9_000), format!("\"{}\"", "é".repeat(5_000))] {
            let shortened = parse(&text).shortened(4_000);
            assert!(shortened.chars().count() <= 4_000);
            let value: String = serde_json::from_str(&shortened).expect("valid");
            assert!(value.ends_with(" characters cut]"));
        }
        assert_eq!(parse("12").shortened(100), "12");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,300}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 200, 12, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..12).prop_map(Value::from),
                prop::collection::vec((".{0,20}", inner), 0..12)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn pretty_is_what_serde_writes(value in any_json()) {
            let text = value.to_string();
            prop_assert_eq!(parse(&text).pretty(), serde_json::to_string_pretty(&value).expect("json"));
        }

        #[test]
        fn shortened_fits_and_is_valid(value in any_json(), limit in 100_usize..1_500) {
            let text = value.to_string();
            let shortened = parse(&text).shortened(limit);
            prop_assert!(serde_json::from_str::<Value>(&shortened).is_ok(), "{}", shortened);
            prop_assert!(shortened.chars().count() <= limit, "{} > {}", shortened.chars().count(), limit);
            if serde_json::to_string_pretty(&value).expect("json").chars().count() <= limit {
                prop_assert_eq!(serde_json::from_str::<Value>(&shortened).expect("json"), value);
            }
        }

        #[test]
        fn lookups_agree_with_a_tree(value in any_json(), path in "[a-c0-9.\\[\\]]{0,8}") {
            let text = value.to_string();
            let _ = parse(&text).get(&path);
            if let Value::Object(members) = &value {
                for (key, member) in members {
                    let found = parse(&text).member(key).expect("there");
                    prop_assert_eq!(&serde_json::from_str::<Value>(found.text()).expect("json"), member);
                }
            }
        }

        #[test]
        fn any_text_is_refused_or_shown(text in ".{0,200}") {
            if let Some(json) = Json::parse(&text) {
                let _ = (json.pretty(), json.shortened(100), json.get("a.0"));
            }
        }
    }
}
