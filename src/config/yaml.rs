//! YAML as a tree of nodes that know their line and column, with plain scalars typed by the rules of YAML 1.1.
//!
//! Only structure and scalars: what keys mean is decided in `keys.rs` and `build.rs`. Why this reads parser events
//! itself is told in `docs/decisions/0001-yaml-below-serde.md`.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, Span, StrInput, StructureStyle, Tag};

/// Deeper nesting is refused.
const MAX_DEPTH: usize = 64;
/// More nodes (a node reached through an alias counts again) are refused.
const MAX_NODES: usize = 100_000;
/// More bytes of text, counted the same way, are refused.
const MAX_TEXT: usize = 8 << 20;

/// Where something stands in the file; both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Text as written, without its quotes.
    Scalar(Scalar),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping in the order of the file, each key once.
    Map(Vec<Entry>),
}

/// A scalar before it is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scalar {
    /// The text.
    pub(crate) text: String,
    /// Written without quotes (and not as a block), so it may be a number, a boolean, a date or null.
    pub(crate) plain: bool,
    /// Holds text from the environment, which error messages must not repeat.
    pub(crate) expanded: bool,
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_place: Place,
    pub(crate) value: Node,
}

/// A key that stood in its mapping twice; the last one won.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Duplicate {
    pub(crate) path: String,
    pub(crate) place: Place,
    pub(crate) first: Place,
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Document {
    /// `None` when the file holds nothing but comments.
    pub(crate) root: Option<Node>,
    pub(crate) duplicates: Vec<Duplicate>,
}

/// Why a file cannot be read as YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    pub(crate) message: String,
    pub(crate) suggestion: Option<String>,
}

/// A plain scalar's type by YAML 1.1, as the reference's loader resolves it (`vectors/yaml_scalars.json`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Typed {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    /// A date or a time; kept as its text.
    Date,
    Text,
}

impl Scalar {
    /// The type. Quoted scalars are text.
    pub(crate) fn typed(&self) -> Typed {
        if self.plain { resolve(&self.text) } else { Typed::Text }
    }
}

impl Node {
    /// A plain scalar that stands nowhere, for values from the environment.
    pub(crate) fn from_text(text: impl Into<String>) -> Self {
        let scalar = Scalar { text: text.into(), plain: true, expanded: true };
        Self { place: Place::default(), value: Value::Scalar(scalar) }
    }

    /// Whether there is nothing: `key:`, `~`, `null`.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar) if scalar.typed() == Typed::Null)
    }

    /// The entries of a mapping.
    pub(crate) fn entries(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The entry of a mapping.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries()?.iter().find(|entry| entry.key == key)
    }

    /// What it is, for messages: `text`, `a number`, `a list`, …
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
            Value::Scalar(scalar) => match scalar.typed() {
                Typed::Null => "nothing",
                Typed::Bool(_) => "a boolean",
                Typed::Int(_) | Typed::Float(_) => "a number",
                Typed::Date => "a date",
                Typed::Text => "text",
            },
        }
    }

    /// The same as JSON. Dates and numbers JSON cannot hold become text; so does every scalar but null below a key for
    /// which `is_text` holds, exactly as written (`secret: 0123` stays `0123`).
    pub(crate) fn to_json(&self, is_text: &dyn Fn(&str) -> bool) -> serde_json::Value {
        self.to_json_under(false, is_text)
    }

    fn to_json_under(&self, as_text: bool, is_text: &dyn Fn(&str) -> bool) -> serde_json::Value {
        match &self.value {
            Value::List(items) => items.iter().map(|item| item.to_json_under(as_text, is_text)).collect(),
            Value::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), entry.value.to_json_under(is_text(&entry.key), is_text)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            Value::Scalar(scalar) => match scalar.typed() {
                Typed::Null => serde_json::Value::Null,
                _ if as_text => scalar.text.clone().into(),
                Typed::Bool(value) => value.into(),
                Typed::Int(value) => match (i64::try_from(value), u64::try_from(value)) {
                    (Ok(value), _) => value.into(),
                    (_, Ok(value)) => value.into(),
                    _ => scalar.text.clone().into(),
                },
                Typed::Float(value) => serde_json::Number::from_f64(value)
                    .map_or_else(|| scalar.text.clone().into(), serde_json::Value::Number),
                Typed::Date | Typed::Text => scalar.text.clone().into(),
            },
        }
    }

    /// Where the thing at `path` (dotted, list indexes as numbers) stands, or the nearest thing above it that exists;
    /// `None` when that is this node itself.
    pub(crate) fn place_of(&self, path: &str) -> Option<Place> {
        let mut node = self;
        let mut place = None;
        for segment in path.split(['.', '[', ']']).filter(|segment| !segment.is_empty()) {
            match &node.value {
                Value::Map(_) => {
                    let Some(entry) = node.entry(segment) else { break };
                    (node, place) = (&entry.value, Some(entry.key_place));
                }
                Value::List(items) => {
                    let Some(item) = segment.parse::<usize>().ok().and_then(|index| items.get(index)) else { break };
                    (node, place) = (item, Some(item.place));
                }
                Value::Scalar(_) => break,
            }
        }
        place
    }
}

/// Reads one document. Anchors, aliases and merge keys are resolved, so the tree is plain.
///
/// # Errors
/// Syntax errors, tabs as indentation, several documents, keys that are not scalars, tags of other languages, nesting
/// deeper than 64 and aliases that multiply beyond 100,000 nodes; each with its place.
pub(crate) fn parse(text: &str) -> Result<Document, Fault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > MAX_TEXT {
        return Err(fault(Place { line: 1, column: 1 }, format!("the file is larger than {} MiB", MAX_TEXT >> 20)));
    }
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    let mut reader = Reader {
        events: Parser::new_from_str_with_options(text, options),
        text,
        lines: text.lines().collect(),
        anchors: HashMap::new(),
        nodes: 0,
        bytes: 0,
        path: Vec::new(),
        duplicates: Vec::new(),
    };
    let mut root = None;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => break,
            Event::DocumentStart(..) if root.is_some() => {
                let message = "a second document begins here; only one is read".to_owned();
                return Err(Fault {
                    suggestion: Some("remove the `---` line".to_owned()),
                    ..fault(at(&span), message)
                });
            }
            Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
            event => root = Some(reader.node(event, &span, 1)?.0),
        }
    }
    let root = root.filter(|node: &Node| !node.is_null());
    Ok(Document { root, duplicates: reader.duplicates })
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    text: &'a str,
    lines: Vec<&'a str>,
    /// Finished anchored nodes with what they cost.
    anchors: HashMap<usize, (Node, Cost)>,
    nodes: usize,
    bytes: usize,
    path: Vec<String>,
    duplicates: Vec<Duplicate>,
}

/// What a node adds to the limits.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    nodes: usize,
    bytes: usize,
    height: usize,
}

impl Cost {
    fn add(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.bytes += other.bytes;
        self.height = self.height.max(other.height + 1);
    }
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Fault> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                let place = Place { line: error.marker().line(), column: error.marker().col() + 1 };
                Err(explain(self.text, place, error.kind(), &error.info()))
            }
            None => Err(fault(Place::default(), "the file ends too early".to_owned())),
        }
    }

    /// The parser lets some tabs pass that other YAML readers refuse; a key behind one would read differently elsewhere.
    fn tab_before(&self, key: Place) -> Option<Fault> {
        let line = self.lines.get(key.line.checked_sub(1)?)?;
        let before: String = line.chars().take(key.column.saturating_sub(1)).collect();
        let tab = before.find('\t').filter(|_| before.trim().is_empty())?;
        Some(tab_fault(Place { line: key.line, column: tab + 1 }))
    }

    fn count(&mut self, cost: Cost, depth: usize, place: Place) -> Result<(), Fault> {
        self.nodes = self.nodes.saturating_add(cost.nodes);
        self.bytes = self.bytes.saturating_add(cost.bytes);
        if depth + cost.height > MAX_DEPTH {
            return Err(fault(place, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        if self.nodes > MAX_NODES || self.bytes > MAX_TEXT {
            return Err(fault(place, format!("the file unfolds to more than {MAX_NODES} values; aliases multiply it")));
        }
        Ok(())
    }

    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<(Node, Cost), Fault> {
        let place = at(span);
        let (anchor, value, cost) = match event {
            Event::Alias(id) => {
                let Some((node, cost)) = self.anchors.get(&id).cloned() else {
                    return Err(fault(place, "an alias cannot stand inside the value it names".to_owned()));
                };
                self.count(cost, depth, place)?;
                return Ok((node, cost));
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = match tag.as_deref() {
                    None => style == ScalarStyle::Plain,
                    Some(tag) => plain_by_tag(tag, place)?,
                };
                let cost = Cost { nodes: 1, bytes: text.len(), height: 0 };
                self.count(cost, depth, place)?;
                (anchor, Value::Scalar(Scalar { text: text.into_owned(), plain, expanded: false }), cost)
            }
            Event::SequenceStart(_, anchor, tag) => {
                expect_tag(tag.as_deref(), &["seq"], place)?;
                let mut cost = Cost { nodes: 1, ..Cost::default() };
                self.count(cost, depth, place)?;
                let mut items = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    if event == Event::SequenceEnd {
                        break;
                    }
                    self.path.push(items.len().to_string());
                    let (item, item_cost) = self.node(event, &span, depth + 1)?;
                    self.path.pop();
                    cost.add(item_cost);
                    items.push(item);
                }
                (anchor, Value::List(items), cost)
            }
            Event::MappingStart(style, anchor, tag) => {
                expect_tag(tag.as_deref(), &["map"], place)?;
                let (entries, cost) = self.mapping(style, depth, place)?;
                (anchor, Value::Map(entries), cost)
            }
            _ => return Err(fault(place, "a value is expected here".to_owned())),
        };
        let node = Node { place, value };
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), cost));
        }
        Ok((node, cost))
    }

    fn mapping(&mut self, style: StructureStyle, depth: usize, place: Place) -> Result<(Vec<Entry>, Cost), Fault> {
        let mut cost = Cost { nodes: 1, ..Cost::default() };
        self.count(cost, depth, place)?;
        let mut entries: Vec<Entry> = Vec::new();
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let is_merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<");
            let (key_node, key_cost) = self.node(event, &span, depth + 1)?;
            let key_place = key_node.place;
            if let Some(tab) = self.tab_before(key_place).filter(|_| style == StructureStyle::Block) {
                return Err(tab);
            }
            let Value::Scalar(Scalar { text: key, .. }) = key_node.value else {
                return Err(fault(key_place, "a key must be text, not a list or a mapping".to_owned()));
            };
            let (event, span) = self.next()?;
            self.path.push(key.clone());
            let (value, value_cost) = self.node(event, &span, depth + 1)?;
            let path = self.path.join(".");
            self.path.pop();
            cost.add(key_cost);
            cost.add(value_cost);
            if is_merge {
                merged.extend(to_merge(value)?);
                continue;
            }
            let first = entries.iter().position(|entry| entry.key == key);
            if let Some(first) = first.map(|index| entries.remove(index)) {
                self.duplicates.push(Duplicate { path, place: key_place, first: first.key_place });
            }
            entries.push(Entry { key, key_place, value });
        }
        for entry in merged {
            if !entries.iter().any(|known| known.key == entry.key) {
                entries.push(entry);
            }
        }
        Ok((entries, cost))
    }
}

/// The entries `<<` brings in, those that win first.
fn to_merge(value: Node) -> Result<Vec<Entry>, Fault> {
    let place = value.place;
    let wrong = |place| fault(place, "`<<` takes a mapping or a list of mappings".to_owned());
    match value.value {
        Value::Map(entries) => Ok(entries),
        Value::List(items) => {
            let mut all = Vec::new();
            for item in items {
                match item.value {
                    Value::Map(entries) => all.extend(entries),
                    _ => return Err(wrong(item.place)),
                }
            }
            Ok(all)
        }
        Value::Scalar(_) => Err(wrong(place)),
    }
}

fn plain_by_tag(tag: &Tag, place: Place) -> Result<bool, Fault> {
    match tag.core_suffix() {
        Some("str") => Ok(false),
        Some("int" | "float" | "bool" | "null" | "timestamp") => Ok(true),
        _ if tag.handle().is_empty() && tag.suffix() == "!" || tag.original() == "!" => Ok(false),
        _ => Err(unknown_tag(tag, place)),
    }
}

fn expect_tag(tag: Option<&Tag>, known: &[&str], place: Place) -> Result<(), Fault> {
    match tag {
        Some(tag) if !tag.core_suffix().is_some_and(|suffix| known.contains(&suffix)) => Err(unknown_tag(tag, place)),
        _ => Ok(()),
    }
}

fn unknown_tag(tag: &Tag, place: Place) -> Fault {
    let suggestion = Some("put the value in quotes if the `!` belongs to it".to_owned());
    Fault { suggestion, ..fault(place, format!("the tag `{}` means nothing here", tag.original())) }
}

fn at(span: &Span) -> Place {
    Place { line: span.start.line(), column: span.start.col() + 1 }
}

fn fault(place: Place, message: String) -> Fault {
    Fault { place, message, suggestion: None }
}

fn tab_fault(place: Place) -> Fault {
    Fault {
        suggestion: Some("indent with spaces".to_owned()),
        ..fault(place, "a tab indents this line, and YAML allows only spaces there".to_owned())
    }
}

/// Says what a syntax error most likely is.
fn explain(text: &str, place: Place, kind: &ErrorKind, info: &str) -> Fault {
    let tab_on = |line: usize| {
        let line = text.lines().nth(line.checked_sub(1)?)?;
        let indentation = line.len() - line.trim_start_matches([' ', '\t']).len();
        line[..indentation].find('\t')
    };
    for line in [place.line, place.line.saturating_sub(1), place.line + 1] {
        if let Some(tab) = tab_on(line) {
            return tab_fault(Place { line, column: tab + 1 });
        }
    }
    let suggestion = match kind {
        ErrorKind::UnclosedQuotedScalar => Some("a quote is opened here and never closed"),
        ErrorKind::RecursionLimitExceeded => {
            return fault(place, format!("nested deeper than {MAX_DEPTH} levels"));
        }
        ErrorKind::UnexpectedCharacter { character: '@' | '`' | '%' } => Some("put the value in quotes"),
        ErrorKind::ExpectedFlowMappingSeparator | ErrorKind::ExpectedFlowSequenceSeparator => {
            Some("put a value that contains `{`, `}`, `[`, `]` or `,` in quotes")
        }
        ErrorKind::MappingValueNotAllowed => {
            Some("put a value that contains `: ` in quotes, and check the indentation here and on the line above")
        }
        ErrorKind::SimpleKeyExpected | ErrorKind::ExpectedBlockMappingKey | ErrorKind::InvalidSimpleKey => {
            Some("check the indentation, and the `:` with a space after it, here and on the line above")
        }
        ErrorKind::UnknownAnchor => Some("define it with `&name` above, or put the value in quotes"),
        _ => None,
    };
    Fault { suggestion: suggestion.map(str::to_owned), ..fault(place, format!("this is not valid YAML: {info}")) }
}

/// Types a plain scalar.
pub(crate) fn resolve(text: &str) -> Typed {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Typed::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Typed::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Typed::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Typed::Float(f64::NAN),
        _ => {}
    }
    if let Some(value) = integer(text) {
        return Typed::Int(value);
    }
    if let Some(value) = float(text) {
        return Typed::Float(value);
    }
    if is_date(text) { Typed::Date } else { Typed::Text }
}

fn signed(text: &str) -> (bool, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    }
}

fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = signed(text);
    let is = |digits: &str, wanted: fn(u8) -> bool| digits.bytes().all(|byte| byte == b'_' || wanted(byte));
    let plain = |digits: &str| digits.replace('_', "");
    let value = if let Some(rest) = digits.strip_prefix("0b") {
        is(rest, |byte| matches!(byte, b'0' | b'1')).then(|| i128::from_str_radix(&plain(rest), 2).ok())??
    } else if let Some(rest) = digits.strip_prefix("0x") {
        is(rest, |byte| byte.is_ascii_hexdigit()).then(|| i128::from_str_radix(&plain(rest), 16).ok())??
    } else if digits == "0" {
        0
    } else if let Some(rest) = digits.strip_prefix('0') {
        is(rest, |byte| matches!(byte, b'0'..=b'7')).then(|| i128::from_str_radix(&plain(digits), 8).ok())??
    } else if digits.starts_with(|first: char| first.is_ascii_digit()) {
        let (whole, parts) = sexagesimal(digits)?;
        if !is(whole, |byte| byte.is_ascii_digit()) {
            return None;
        }
        let mut value = plain(whole).parse::<i128>().ok()?;
        for part in parts {
            value = value.checked_mul(60)?.checked_add(part)?;
        }
        value
    } else {
        return None;
    };
    Some(if negative { -value } else { value })
}

/// `1:30` as `1` and `[30]`: every part after the first is below 60.
fn sexagesimal(text: &str) -> Option<(&str, Vec<i128>)> {
    let mut segments = text.split(':');
    let whole = segments.next()?;
    let mut parts = Vec::new();
    for part in segments {
        if !matches!(part.len(), 1 | 2) || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        parts.push(part.parse::<i128>().ok().filter(|part| *part < 60)?);
    }
    Some((whole, parts))
}

fn float(text: &str) -> Option<f64> {
    let (negative, body) = signed(text);
    if matches!(body, ".inf" | ".Inf" | ".INF") {
        return Some(if negative { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    let (whole, fraction) = body.split_once('.')?;
    if let Some((whole, parts)) = sexagesimal(whole).filter(|(_, parts)| !parts.is_empty()) {
        let tail = digits_or_underscores(fraction).then(|| format!("0.{}0", fraction.replace('_', "")))?;
        let mut value = digits_or_underscores(whole).then(|| whole.replace('_', "").parse::<f64>().ok())??;
        for part in parts {
            value = value.mul_add(60.0, f64::from(i32::try_from(part).ok()?));
        }
        let value = value + tail.parse::<f64>().ok()?;
        return Some(if negative { -value } else { value });
    }
    let (fraction, exponent) = match fraction.find(['e', 'E']) {
        Some(split) => (&fraction[..split], Some(&fraction[split + 1..])),
        None => (fraction, None),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        exponent
            .strip_prefix(['+', '-'])
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
    });
    let whole_fits = if whole.is_empty() {
        text.starts_with('.') && fraction.starts_with(|first: char| first.is_ascii_digit())
    } else {
        whole.starts_with(|first: char| first.is_ascii_digit()) && digits_or_underscores(whole)
    };
    if !(exponent_fits && whole_fits && digits_or_underscores(fraction)) {
        return None;
    }
    let value = format!("0{whole}.{fraction}0e{}", exponent.unwrap_or("0")).replace('_', "").parse::<f64>().ok()?;
    Some(if negative { -value } else { value })
}

fn digits_or_underscores(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'_' || byte.is_ascii_digit())
}

/// `2026-01-01`, or a date with a time.
fn is_date(text: &str) -> bool {
    let (date, time) = match text.find(['T', 't', ' ', '\t']) {
        Some(split) => (&text[..split], Some(text[split + 1..].trim_start_matches([' ', '\t']))),
        None => (text, None),
    };
    let fits = |part: &str, least: usize, most: usize| {
        (least..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let parts: Vec<&str> = date.split('-').collect();
    let &[year, month, day] = parts.as_slice() else { return false };
    let Some(time) = time else { return fits(year, 4, 4) && fits(month, 2, 2) && fits(day, 2, 2) };
    let clock_end = time.find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.').unwrap_or(time.len());
    let clock: Vec<&str> = time[..clock_end].split(':').collect();
    let &[hour, minute, second] = clock.as_slice() else { return false };
    let (second, fraction) = second.split_once('.').unwrap_or((second, ""));
    let zone = time[clock_end..].trim_start_matches([' ', '\t']);
    let zone_fits = zone.is_empty()
        || zone == "Z"
        || zone.strip_prefix(['+', '-']).is_some_and(|offset| {
            let (hours, minutes) = offset.split_once(':').unwrap_or((offset, "00"));
            fits(hours, 1, 2) && fits(minutes, 2, 2)
        });
    fits(year, 4, 4)
        && fits(month, 1, 2)
        && fits(day, 1, 2)
        && fits(hour, 1, 2)
        && fits(minute, 2, 2)
        && fits(second, 2, 2)
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
        && zone_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Node {
        parse(text).unwrap().root.unwrap()
    }

    fn fault_of(text: &str) -> Fault {
        parse(text).unwrap_err()
    }

    fn json(text: &str) -> serde_json::Value {
        read(text).to_json(&|_| false)
    }

    #[test]
    fn plain_scalars_are_typed_by_yaml_1_1() {
        let vectors = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/yaml_scalars.json")).unwrap();
        let vectors: serde_json::Value = serde_json::from_slice(&vectors).unwrap();
        let cases = vectors["cases"].as_array().unwrap();
        assert!(cases.len() > 20);
        for case in cases {
            let scalar = case["scalar"].as_str().unwrap();
            let document = read(&format!("key: {scalar}\n"));
            let Value::Scalar(found) = &document.entry("key").unwrap().value.value else { panic!("{scalar}") };
            let (kind, value) = match found.typed() {
                Typed::Null => ("NoneType", "None".to_owned()),
                Typed::Bool(true) => ("bool", "True".to_owned()),
                Typed::Bool(false) => ("bool", "False".to_owned()),
                Typed::Int(value) => ("int", value.to_string()),
                Typed::Float(value) => ("float", format!("{value:?}")),
                Typed::Date => ("date", found.text.clone()),
                Typed::Text => ("str", found.text.clone()),
            };
            assert_eq!(
                (kind, value.as_str()),
                (case["type"].as_str().unwrap(), case["value"].as_str().unwrap()),
                "{scalar}"
            );
        }
    }

    #[test]
    fn the_edges_of_the_types_are_text() {
        for text in [
            "0b",
            "0x",
            "08",
            "1:60",
            "0:30",
            "1:",
            ":30",
            "1.0e3",
            "-.5",
            ".",
            "e3",
            "1_000x",
            "+",
            "-",
            "y",
            "Y",
            "tRue",
            "nUll",
            "2026-1-1",
            "2026-01-01T1:1:1",
            "1:30:",
            "99999999999999999999999999999999999999999",
        ] {
            assert_eq!(resolve(text), Typed::Text, "{text}");
        }
        for (text, wanted) in [
            ("0b101", Typed::Int(5)),
            ("-0x1E", Typed::Int(-30)),
            ("+12", Typed::Int(12)),
            ("1:02:03", Typed::Int(3723)),
            ("-1:30", Typed::Int(-90)),
            ("1.", Typed::Float(1.0)),
            ("-1.5", Typed::Float(-1.5)),
            ("1_0.2_5", Typed::Float(10.25)),
            ("1:30.5", Typed::Float(90.5)),
            ("-.Inf", Typed::Float(f64::NEG_INFINITY)),
            ("2026-01-01 10:20:30", Typed::Date),
            ("2026-1-1T10:20:30.5+02:00", Typed::Date),
            ("2026-01-01T10:20:30Z", Typed::Date),
        ] {
            assert_eq!(resolve(text), wanted, "{text}");
        }
    }

    #[test]
    fn every_key_and_value_knows_its_place() {
        let root = read("# comment\nüa:\n  list: [x, {é: \"y\"}]\n  text: |\n    one\n    two\n");
        let ua = root.entry("üa").unwrap();
        assert_eq!(ua.key_place, Place { line: 2, column: 1 });
        let list = ua.value.entry("list").unwrap();
        assert_eq!(list.value.place, Place { line: 3, column: 9 });
        assert_eq!(root.place_of("üa.list[1].é"), Some(Place { line: 3, column: 14 }));
        assert_eq!(root.place_of("üa.list.0"), Some(Place { line: 3, column: 10 }));
        assert_eq!(root.place_of("üa.nothing.here"), Some(Place { line: 2, column: 1 }));
        assert_eq!(root.place_of("nothing"), None);
        assert_eq!(ua.value.entry("text").unwrap().key_place, Place { line: 4, column: 3 });
    }

    #[test]
    fn a_duplicate_key_is_told_and_the_last_wins() {
        let document = parse("a:\n  b: 1\n  c: 2\n  b: 3\n").unwrap();
        assert_eq!(document.root.unwrap().to_json(&|_| false), serde_json::json!({"a": {"c": 2, "b": 3}}));
        let duplicate = &document.duplicates[0];
        assert_eq!((duplicate.path.as_str(), duplicate.place.line, duplicate.first.line), ("a.b", 4, 2));
    }

    #[test]
    fn aliases_and_merge_keys_are_resolved() {
        assert_eq!(
            json(
                "base: &base {x: 1, y: 2}\nother: &other {y: 9, z: 3}\nuse:\n  <<: [*base, *other]\n  x: 5\nagain: *base\n"
            ),
            serde_json::json!({
                "base": {"x": 1, "y": 2}, "other": {"y": 9, "z": 3},
                "use": {"x": 5, "y": 2, "z": 3}, "again": {"x": 1, "y": 2},
            })
        );
        assert_eq!(json("'<<': {x: 1}\n"), serde_json::json!({"<<": {"x": 1}}));
        assert!(fault_of("<<: 1\n").message.contains("`<<` takes a mapping"));
        assert!(fault_of("a: &a [*a]\n").message.contains("inside the value it names"));
    }

    #[test]
    fn aliases_that_multiply_are_refused_quickly() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = format!("*a{}", level - 1);
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", [below.as_str(); 9].join(", ")));
        }
        let fault = fault_of(&bomb);
        assert!(fault.message.contains("more than 100000 values"), "{}", fault.message);
        assert!(fault.place.line > 1);
        let wide = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(1 << 20), ["*a"; 20].join(", "));
        assert!(fault_of(&wide).message.contains("aliases multiply it"));
        let mut deep = "a0: &a0 x\n".to_owned();
        for level in 1..200 {
            deep.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
        }
        assert_eq!(fault_of(&deep).message, "nested deeper than 64 levels");
        assert_eq!(fault_of(&"[".repeat(100_000)).message, "nested deeper than 64 levels");
        assert_eq!(
            fault_of(&(0..100).map(|n| " ".repeat(n) + "a:\n").collect::<String>()).message,
            "nested deeper than 64 levels"
        );
    }

    #[test]
    fn a_tab_as_indentation_is_named_with_its_line() {
        for (text, line, column) in [
            ("a:\n\tb: 1\n", 2, 1),
            ("a:\n  b: 1\n\tc: 2\n", 3, 1),
            ("a:\n  - x\n\t- y\n", 3, 1),
            ("a:\n \tb: 1\n", 2, 2),
            ("a: x\n\tb: 2\n", 2, 1),
            ("\ta: 1\n", 1, 1),
        ] {
            let fault = fault_of(text);
            assert_eq!(fault.place, Place { line, column }, "{text:?}");
            assert_eq!(fault.message, "a tab indents this line, and YAML allows only spaces there", "{text:?}");
            assert_eq!(fault.suggestion.as_deref(), Some("indent with spaces"));
        }
        assert_eq!(
            json("a: |\n  all:\n  \tmake\nb:\t1 # \there\n"),
            serde_json::json!({"a": "all:\n\tmake\n", "b": 1})
        );
    }

    #[test]
    fn what_cannot_be_read_says_where_and_why() {
        for (text, line, message) in [
            ("a: 1\nb: \"x\n", 2, "unclosed quote"),
            ("a: b: c\n", 1, "mapping values are not allowed"),
            ("a:1\nb: 2\n", 2, "mapping values are not allowed"),
            ("a: {b: 1\n", 1, "unclosed bracket"),
            ("a: @x\n", 1, "unexpected character"),
            ("a: *nobody\n", 1, "unknown anchor"),
            ("a: 1\n---\nb: 1\n", 2, "a second document begins here"),
            ("? [a]\n: 1\n", 1, "a key must be text"),
            ("a: !!python/object:os.system x\n", 1, "means nothing here"),
            ("a: !!binary x\n", 1, "means nothing here"),
        ] {
            let fault = fault_of(text);
            assert_eq!(fault.place.line, line, "{text:?}: {fault:?}");
            assert!(fault.message.contains(message), "{text:?}: {fault:?}");
        }
    }

    #[test]
    fn nothing_but_comments_is_an_empty_document() {
        for text in ["", "\u{feff}", "# only\n", "---\n", "---\n...\n", "~\n", "\n\n"] {
            assert_eq!(parse(text).unwrap().root, None, "{text:?}");
        }
        assert_eq!(json("\u{feff}a: 1\r\nb: x\r\n"), serde_json::json!({"a": 1, "b": "x"}));
    }

    #[test]
    fn tags_and_chosen_keys_say_what_is_text() {
        assert_eq!(json("a: !!str 1\nb: !!int \"1\"\nc: ! 1\n"), serde_json::json!({"a": "1", "b": 1, "c": "1"}));
        let root = read(
            "secret: 0123\nother: 0123\nsecrets: {secret: [1_0, yes, null]}\nbig: 18446744073709551615\ninf: .inf\n",
        );
        assert_eq!(
            root.to_json(&|key| key == "secret"),
            serde_json::json!({
                "secret": "0123", "other": 83, "secrets": {"secret": ["1_0", "yes", null]},
                "big": u64::MAX, "inf": ".inf",
            })
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[a:&*<!|>\\-\\[\\]{},'\"#\n\t 0é]{0,60}") {
            let _ = parse(&text);
        }

        #[test]
        fn no_scalar_panics(text in "[-+0-9a-fx_:.eETZ ]{0,20}") {
            resolve(&text);
        }
    }
}
