//! What the Telegram adapter makes of any text: parts that Telegram takes, with nothing lost.

use hookgate_adapters::{
    Adapter, Part, TelegramAdapter, TelegramOptions, VALUE_END, VALUE_START, delimited, without_delimiters,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::support::telegram_html;

fn adapter() -> TelegramAdapter {
    TelegramAdapter::new(TelegramOptions::new("1:a".into())).unwrap()
}

/// So many random texts usually, and so many with `HOOKGATE_ACCEPTANCE=full`.
fn cases(usual: u32, full: u32) -> ProptestConfig {
    let is_full = std::env::var("HOOKGATE_ACCEPTANCE").is_ok_and(|size| size == "full");
    ProptestConfig { cases: if is_full { full } else { usual }, failure_persistence: None, ..ProptestConfig::default() }
}

/// What must come through: everything but what cannot be seen and the punctuation that markup is made of.
fn content(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|c| {
        let invisible = INVISIBLE.iter().any(|(first, last)| (*first..=*last).contains(c));
        !invisible && !c.is_whitespace() && !c.is_control() && !c.is_ascii_punctuation()
    })
}

/// Fillers, variation selectors and marks for joining and direction.
const INVISIBLE: [(char, char); 13] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
];

fn check(markdown: &str) -> Result<(), TestCaseError> {
    let parts = adapter().split(markdown);
    let markdown = &*without_delimiters(markdown);
    let plain: String = parts.iter().map(|part| part.plain.as_str()).collect();
    let mut shown = plain.chars();
    for wanted in content(markdown) {
        prop_assert!(shown.any(|c| c == wanted), "{wanted:?} is lost: {plain:?}");
    }
    for part in &parts {
        prop_assert!(
            !part.plain.contains([VALUE_START, VALUE_END]) && !part.formatted.contains([VALUE_START, VALUE_END])
        );
        let parsed = telegram_html::parse(&part.formatted);
        prop_assert!(parsed.is_ok(), "{parsed:?}: {:?}", part.formatted);
        let seen = parsed.unwrap().text;
        prop_assert!(!seen.trim().is_empty(), "nothing to see: {part:?}");
        prop_assert!(seen.encode_utf16().count() <= 4096 && part.plain.encode_utf16().count() <= 4096);
        // What is seen is the plain text, but for addresses and fences that markup says.
        let mut plain = part.plain.chars();
        prop_assert!(seen.chars().all(|c| plain.any(|p| p == c || c == '\u{fffd}' && p == '\0')), "{part:?}");
    }
    let something = markdown.chars().any(|c| c.is_ascii_punctuation() || content(&c.to_string()).next().is_some());
    prop_assert!(parts.is_empty() != something, "{parts:?}");
    Ok(())
}

/// A template around one value: the value comes through as it is, and what it is does not decide what the markup is.
fn check_value(before: &str, value: &str, after: &str) -> Result<(), TestCaseError> {
    let around = |value: &str| format!("{before}{}{after}", delimited(value));
    check(&around(value))?;
    let shown = without_delimiters(value).replace("\r\n", "\n").replace('\r', "\n");
    let template = without_delimiters(&format!("{before}{after}")).into_owned();
    let is_blank = !shown.chars().any(|c| c.is_ascii_punctuation() || content(&c.to_string()).next().is_some());
    if is_blank || template.contains('ж') {
        return Ok(()); // Markup around nothing is shown as it was written.
    }
    // A letter that the template does not have says where the value stands.
    let (marked, got) = (adapter().split(&around("ж")), adapter().split(&around(value)));
    let plain = |parts: &[Part]| -> String { parts.iter().map(|part| part.plain.as_str()).collect() };
    if template.contains("```") || template.contains("~~~") {
        // Whether it can be a language is the value's to say.
        prop_assert!(plain(&got).contains(&shown), "{got:?}");
        return Ok(());
    }
    if template.contains("|-|") {
        // The columns of a table are as wide as what is in them.
        let solid = |text: String| -> String { text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect() };
        prop_assert_eq!(solid(plain(&got)), solid(plain(&marked).replace('ж', &shown)));
        return Ok(());
    }
    prop_assert_eq!(plain(&got), plain(&marked).replace('ж', &shown));
    // Whether an address can be followed is the value's to say.
    if !["](", "]:", "<http"].iter().any(|mark| template.contains(mark)) {
        let formatted = |parts: &[Part]| -> String { parts.iter().map(|part| part.formatted.as_str()).collect() };
        let escaped = shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
        prop_assert_eq!(formatted(&got), formatted(&marked).replace('ж', &escaped.replace('\0', "\u{fffd}")));
    }
    Ok(())
}

fn piece() -> impl Strategy<Value = String> {
    let markup = select(vec![
        "*",
        "**",
        "***",
        "_",
        "__",
        "~",
        "~~",
        "`",
        "``",
        "```",
        "```py\n",
        "\n```\n",
        "~~~\n",
        "[",
        "]",
        "](",
        ")",
        "](http://h.org/p_(q))",
        "![",
        "<",
        ">",
        "</b>",
        "<b>",
        "<br>",
        "<!--",
        "&amp;",
        "&",
        "&#65;",
        "\n",
        "\n\n",
        "\n> ",
        "\n# ",
        "\n- ",
        "\n  - ",
        "\n1. ",
        "\n    ",
        "\n---\n",
        "\n===\n",
        "|",
        "\n|a|b|\n|-|-|\n",
        "\\",
        "\\|",
        " ",
        "  \n",
        "\t",
        "\r\n",
        "[x]: http://a.b 'c'\n",
        "- [ ] ",
        "||",
        "\\{",
        "\u{fdd0}",
        "\u{fdd1}",
        "\0",
    ]);
    let text = select(vec![
        "a",
        "word",
        "3",
        "日本",
        "é",
        "e\u{301}",
        "😀",
        "👨‍👩‍👧‍👦",
        "🇩🇪",
        "x1",
        "snake_case",
        "f(x)",
        "http://u.rl/",
        "\u{200d}",
        "\u{202e}",
        "\u{3000}",
    ]);
    prop_oneof![3 => markup.prop_map(str::to_owned), 3 => text.prop_map(str::to_owned), 1 => "\\PC{1,8}"]
}

proptest! {
    #![proptest_config(cases(2000, 100_000))]

    #[test]
    fn any_mix_of_markup_and_text_comes_through(pieces in vec(piece(), 0..40)) {
        check(&pieces.concat())?;
    }

    #[test]
    fn any_template_shows_its_values(template in vec((piece(), piece()), 0..12)) {
        let text: String = template.iter().map(|(own, value)| format!("{own}{}", delimited(value))).collect();
        check(&text)?;
    }

    #[test]
    fn a_value_is_shown_as_it_is(before in vec(piece(), 0..12), value in vec(piece(), 1..12), after in vec(piece(), 0..12)) {
        check_value(&before.concat(), &value.concat(), &after.concat())?;
    }

    #[test]
    fn any_text_comes_through(text in any::<String>()) {
        check(&text)?;
    }
}

proptest! {
    #![proptest_config(cases(40, 2000))]

    #[test]
    fn long_texts_come_through_in_parts(pieces in vec(piece(), 1..30), times in 100_usize..400) {
        check(&pieces.concat().repeat(times))?;
    }
}

#[test]
fn mixes_that_broke_others_come_through() {
    let corpus = [
        "f(x) [a](http://h/p_(q)) 1. - + = | { } . ! #tag >q ~ \\ _a_b_ **b*c** snake_case 3*4*5",
        "use ``` to open a block (see C:\\\\dir_a)",
        "text\n---\n# H\n> q\n![alt](http://h/a_b.png)\n- [ ] x",
        "😀 ends with\n```\ncode\n```\n\n\n",
        "| a | 表 |\n|---|---|\n| x\\|y | 日本語 |",
    ];
    for text in corpus {
        check(text).unwrap();
        check(&text.repeat(50)).unwrap();
        check(&format!("{}\n{text}", corpus.concat())).unwrap();
    }
}
