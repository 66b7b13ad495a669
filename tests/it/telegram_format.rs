//! What the Telegram adapter makes of any text: parts that Telegram takes, with nothing lost.

use hookgate_adapters::{Adapter, TelegramAdapter, TelegramOptions};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::support::telegram_html;

fn adapter() -> TelegramAdapter {
    TelegramAdapter::new(TelegramOptions::new("1:a".into())).unwrap()
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
    let plain: String = parts.iter().map(|part| part.plain.as_str()).collect();
    let mut shown = plain.chars();
    for wanted in content(markdown) {
        prop_assert!(shown.any(|c| c == wanted), "{wanted:?} is lost: {plain:?}");
    }
    for part in &parts {
        let parsed = telegram_html::parse(&part.formatted);
        prop_assert!(parsed.is_ok(), "{parsed:?}: {:?}", part.formatted);
        let seen = parsed.unwrap().text;
        prop_assert!(!seen.trim().is_empty(), "nothing to see: {part:?}");
        prop_assert!(seen.encode_utf16().count() <= 4094 && part.plain.encode_utf16().count() <= 4094);
        // What is seen is the plain text, but for addresses and fences that markup says.
        let mut plain = part.plain.chars();
        prop_assert!(seen.chars().all(|c| plain.any(|p| p == c || c == '\u{fffd}' && p == '\0')), "{part:?}");
    }
    let something = markdown.chars().any(|c| c.is_ascii_punctuation() || content(&c.to_string()).next().is_some());
    prop_assert!(parts.is_empty() != something, "{parts:?}");
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
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_mix_of_markup_and_text_comes_through(pieces in vec(piece(), 0..40)) {
        check(&pieces.concat())?;
    }

    #[test]
    fn any_text_comes_through(text in any::<String>()) {
        check(&text)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

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
