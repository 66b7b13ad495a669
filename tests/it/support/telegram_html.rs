//! Telegram's HTML as the Bot API reads it: the same tags, the same four named entities, the same complaints.
//!
//! Stricter in one respect: what the documentation forbids and the service quietly mends (a quote in a quote, a style
//! inside of code) is refused here, so that nobody comes to rely on it.

/// A text after its markup was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Parsed {
    /// What a person sees.
    pub(crate) text: String,
    /// In the order of their beginnings.
    pub(crate) entities: Vec<Entity>,
}

/// A styled piece of the text. Offset and length count UTF-16 units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entity {
    pub(crate) kind: &'static str,
    pub(crate) offset: usize,
    pub(crate) length: usize,
    /// The address of a link, the language of a block of code.
    pub(crate) argument: Option<String>,
}

const TAGS: [&str; 16] = [
    "b",
    "strong",
    "i",
    "em",
    "u",
    "ins",
    "s",
    "strike",
    "del",
    "tg-spoiler",
    "span",
    "a",
    "code",
    "pre",
    "blockquote",
    "tg-emoji",
];

struct Open {
    tag: String,
    kind: &'static str,
    offset: usize,
    argument: Option<String>,
    index: usize,
}

/// Reads a text; the error is what follows `Bad Request: can't parse entities: `.
pub(crate) fn parse(html: &str) -> Result<Parsed, String> {
    let mut parsed = Parsed::default();
    let mut open: Vec<Open> = Vec::new();
    let mut units = 0;
    let mut at = 0;
    while let Some(c) = html[at..].chars().next() {
        if c == '<' && html[at + 1..].starts_with('/') {
            at = end_tag(html, at, &mut open, &mut parsed, units)?;
        } else if c == '<' {
            at = start_tag(html, at, &mut open, &mut parsed, units)?;
        } else {
            let (c, length) = if c == '&' { character(&html[at..]) } else { (c, c.len_utf8()) };
            parsed.text.push(c);
            units += c.len_utf16();
            at += length;
        }
    }
    if let Some(unclosed) = open.last() {
        return Err(format!("Can't find end tag corresponding to start tag \"{}\"", unclosed.tag));
    }
    parsed.entities.retain(|entity| entity.length > 0);
    Ok(parsed)
}

/// A reference like `&lt;`, and how many bytes it takes; anything else is a plain `&`.
fn character(html: &str) -> (char, usize) {
    let end = html.find(|c: char| c != '&' && c != '#' && !c.is_ascii_alphanumeric()).unwrap_or(html.len());
    let name = &html[1..end];
    let c = match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "quot" => Some('"'),
        _ => match name.strip_prefix('#') {
            Some(number) => match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok().and_then(char::from_u32),
                None => number.parse().ok().and_then(char::from_u32),
            }
            .filter(|c| *c != '\0'),
            None => None,
        },
    };
    match c {
        Some(c) => (c, end + usize::from(html[end..].starts_with(';'))),
        None => ('&', 1),
    }
}

fn start_tag(
    html: &str,
    begin: usize,
    open: &mut Vec<Open>,
    parsed: &mut Parsed,
    units: usize,
) -> Result<usize, String> {
    let unclosed = || format!("Unclosed start tag at byte offset {begin}");
    let mut rest = &html[begin + 1..];
    let name_end = rest.find(|c: char| c.is_ascii_whitespace() || c == '>').ok_or_else(unclosed)?;
    let tag = rest[..name_end].to_ascii_lowercase();
    rest = &rest[name_end..];
    if !TAGS.contains(&tag.as_str()) {
        return Err(format!("Unsupported start tag \"{tag}\" at byte offset {begin}"));
    }
    let mut attributes = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('>') {
            rest = after;
            break;
        }
        let name_end = rest.find(|c: char| c.is_ascii_whitespace() || c == '=' || c == '>').ok_or_else(unclosed)?;
        let name = rest[..name_end].to_ascii_lowercase();
        if name.is_empty() {
            return Err(format!("Empty attribute name in the tag \"{tag}\" at byte offset {begin}"));
        }
        rest = rest[name_end..].trim_start();
        let mut value = String::new();
        if let Some(after) = rest.strip_prefix('=') {
            rest = after.trim_start();
            let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
            let end = match quote {
                Some(quote) => rest[1..].find(quote).map(|end| end + 1),
                None => rest.find(|c: char| c.is_ascii_whitespace() || c == '>'),
            }
            .ok_or_else(unclosed)?;
            let mut raw = &rest[usize::from(quote.is_some())..end];
            rest = &rest[end + usize::from(quote.is_some())..];
            while let Some(c) = raw.chars().next() {
                let (c, length) = if c == '&' { character(raw) } else { (c, c.len_utf8()) };
                value.push(c);
                raw = &raw[length..];
            }
        }
        attributes.push((name, value));
    }
    let attribute = |name: &str| attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let (kind, argument) = match tag.as_str() {
        "b" | "strong" => ("bold", None),
        "i" | "em" => ("italic", None),
        "u" | "ins" => ("underline", None),
        "s" | "strike" | "del" => ("strikethrough", None),
        "tg-spoiler" => ("spoiler", None),
        "span" if attribute("class").as_deref() == Some("tg-spoiler") => ("spoiler", None),
        "span" => return Err(format!("Tag \"span\" must have class \"tg-spoiler\" at byte offset {begin}")),
        "a" => ("text_link", attribute("href")),
        "code" => ("code", attribute("class").and_then(|class| class.strip_prefix("language-").map(str::to_owned))),
        "pre" => ("pre", None),
        "blockquote" => ("blockquote", None),
        _ => ("custom_emoji", attribute("emoji-id")),
    };
    // `<pre><code class="language-x">` is one entity.
    let in_pre = open.last().is_some_and(|outer| outer.kind == "pre" && outer.offset == units);
    let kind = if kind == "code" && in_pre { "pre_language" } else { kind };
    for outer in open.iter() {
        let forbidden = matches!(outer.kind, "code" | "pre" | "pre_language") && kind != "pre_language"
            || outer.kind == "blockquote" && kind == "blockquote"
            || outer.kind == "text_link" && matches!(kind, "text_link" | "code" | "pre");
        if forbidden {
            return Err(format!("Tag \"{tag}\" is not allowed inside of \"{}\" at byte offset {begin}", outer.tag));
        }
    }
    if kind == "pre_language"
        && let Some(Open { index, .. }) = open.last()
    {
        parsed.entities[*index].argument.clone_from(&argument);
    }
    open.push(Open { tag, kind, offset: units, argument: argument.clone(), index: parsed.entities.len() });
    if kind != "pre_language" {
        parsed.entities.push(Entity { kind, offset: units, length: 0, argument });
    }
    Ok(html.len() - rest.len())
}

fn end_tag(html: &str, begin: usize, open: &mut Vec<Open>, parsed: &mut Parsed, units: usize) -> Result<usize, String> {
    let Some(last) = open.pop() else { return Err(format!("Unexpected end tag at byte offset {begin}")) };
    let rest = &html[begin + 2..];
    let end = rest.find('>').ok_or_else(|| format!("Unclosed end tag at byte offset {begin}"))?;
    let name = rest[..end].trim_end().to_ascii_lowercase();
    if !name.is_empty() && name != last.tag {
        return Err(format!(
            "Unmatched end tag at byte offset {begin}, expected \"</{}>\", found \"</{name}>\"",
            last.tag
        ));
    }
    if last.kind != "pre_language" {
        let entity = &mut parsed.entities[last.index];
        entity.length = units - last.offset;
        // A link without an address takes its text for one.
        if last.kind == "text_link" && last.argument.is_none() {
            entity.length = 0;
        }
    }
    Ok(begin + 2 + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entity(kind: &'static str, offset: usize, length: usize, argument: Option<&str>) -> Entity {
        Entity { kind, offset, length, argument: argument.map(str::to_owned) }
    }

    #[test]
    fn tags_become_entities_counted_in_utf_16() {
        let parsed = parse("😀<b>b<i>😀</i></b> <a href=\"http://a.b/?x=&quot;&amp;y\">l</a>").unwrap();
        assert_eq!(parsed.text, "😀b😀 l");
        assert_eq!(
            parsed.entities,
            [
                entity("bold", 2, 3, None),
                entity("italic", 3, 2, None),
                entity("text_link", 6, 1, Some("http://a.b/?x=\"&y")),
            ]
        );
        let parsed = parse("<blockquote><pre><code class=\"language-py\">x</code></pre></blockquote>").unwrap();
        assert_eq!(parsed.entities, [entity("blockquote", 0, 1, None), entity("pre", 0, 1, Some("py"))]);
        assert_eq!(parse("<B>x</>").unwrap().entities, [entity("bold", 0, 1, None)]);
        assert_eq!(parse("<b></b>x").unwrap().entities, []);
    }

    #[test]
    fn only_some_references_are_known() {
        let parsed = parse("&lt;&gt;&amp;&quot;&#65;&#x42;&#0; &nbsp; &copy &lt & &#x110000;").unwrap();
        assert_eq!(parsed.text, "<>&\"AB&#0; &nbsp; &copy < & &#x110000;");
    }

    #[test]
    fn what_the_service_refuses_is_refused() {
        for (html, complaint) in [
            ("a < b", "Unsupported start tag \"\" at byte offset 2"),
            ("<div>x</div>", "Unsupported start tag \"div\" at byte offset 0"),
            ("<br>", "Unsupported start tag \"br\" at byte offset 0"),
            ("<b>x", "Can't find end tag corresponding to start tag \"b\""),
            ("x</b>", "Unexpected end tag at byte offset 1"),
            ("<b><i>x</b></i>", "Unmatched end tag at byte offset 7, expected \"</i>\", found \"</b>\""),
            ("1 <2", "Unclosed start tag at byte offset 2"),
            ("<b>x</b", "Unclosed end tag at byte offset 4"),
            ("<a href=\"x>y</a>", "Unclosed start tag at byte offset 0"),
            ("<span>x</span>", "Tag \"span\" must have class \"tg-spoiler\" at byte offset 0"),
            ("<code><b>x</b></code>", "Tag \"b\" is not allowed inside of \"code\" at byte offset 6"),
            (
                "<blockquote>x<blockquote>y</blockquote></blockquote>",
                "Tag \"blockquote\" is not allowed inside of \"blockquote\" at byte offset 13",
            ),
        ] {
            assert_eq!(parse(html), Err(complaint.to_owned()), "{html}");
        }
    }
}
