//! Values inside of a Markdown text that are not Markdown themselves: what a stranger's payload says in a message that the
//! operator laid out. They travel between two noncharacters; what reads Markdown takes them out first and puts them back
//! afterwards, everything else strips the delimiters. The contract is on [`Adapter::split`](crate::Adapter::split).

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// Begins a value. A noncharacter (Unicode 23.7): no text that is meant for others contains it.
pub const VALUE_START: char = '\u{fdd0}';
/// Ends a value.
pub const VALUE_END: char = '\u{fdd1}';

/// Stand in for values while Markdown is read: letters of Tangut, which neither `CommonMark` nor our own rules treat
/// unlike other letters, and which next to nobody writes.
const STAND_INS: std::ops::RangeInclusive<char> = '\u{17000}'..='\u{187f7}';

/// The value between its delimiters; delimiters inside of it are removed, so that it cannot end itself.
pub fn delimited(value: &str) -> String {
    format!("{VALUE_START}{}{VALUE_END}", without_delimiters(value))
}

/// The text without any delimiter, balanced or not. What stood between them stays.
pub fn without_delimiters(text: &str) -> Cow<'_, str> {
    if text.contains([VALUE_START, VALUE_END]) {
        Cow::Owned(text.replace([VALUE_START, VALUE_END], ""))
    } else {
        Cow::Borrowed(text)
    }
}

/// The values of a text, each by the letter that stands in for it. None of them is empty.
#[derive(Debug, Default)]
pub(crate) struct Values<'t>(BTreeMap<char, Cow<'t, str>>);

impl<'t> Values<'t> {
    /// The text with a letter in place of each value, and the values. Delimiters without a partner go. `None` if there
    /// are more values than letters.
    pub(crate) fn take_out(text: &'t str) -> Option<(Cow<'t, str>, Self)> {
        if !text.contains([VALUE_START, VALUE_END]) {
            return Some((Cow::Borrowed(text), Self::default()));
        }
        let written: HashSet<char> = text.chars().filter(|c| STAND_INS.contains(c)).collect();
        let mut free = STAND_INS.filter(|c| !written.contains(c));
        let mut taken = String::with_capacity(text.len());
        let mut values = BTreeMap::new();
        let mut rest = text;
        while let Some((own, after)) = rest.split_once(VALUE_START) {
            taken.push_str(&without_delimiters(own));
            rest = after;
            let Some((value, after)) = rest.split_once(VALUE_END) else { break };
            rest = after;
            let value = without_delimiters(value);
            if !value.is_empty() {
                let letter = free.next()?;
                taken.push(letter);
                values.insert(letter, value);
            }
        }
        taken.push_str(&without_delimiters(rest));
        Some((Cow::Owned(taken), Self(values)))
    }

    /// The text with the values as they are.
    pub(crate) fn put_back<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.0.is_empty() || !text.contains(|c| self.0.contains_key(&c)) {
            return Cow::Borrowed(text);
        }
        let mut whole = String::with_capacity(text.len());
        for c in text.chars() {
            match self.0.get(&c) {
                Some(value) => whole.push_str(value),
                None => whole.push(c),
            }
        }
        Cow::Owned(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_out_and_come_back() {
        let text = format!("a {}b{} 𗀀", delimited("*x*\n𗀁"), delimited("y"));
        let (taken, values) = Values::take_out(&text).unwrap();
        assert_eq!(taken, "a \u{17002}b\u{17003} 𗀀", "letters that the text has are left to it");
        assert_eq!(values.put_back(&taken), "a *x*\n𗀁by 𗀀");
        assert_eq!(values.put_back(&taken), without_delimiters(&text));
    }

    #[test]
    fn stray_delimiters_go_and_nothing_ends_a_value_early() {
        for (text, whole) in [
            ("a\u{fdd1}b", "ab"),
            ("a\u{fdd0}b", "ab"),
            ("\u{fdd0}\u{fdd1}", ""),
            ("\u{fdd0}a\u{fdd0}b\u{fdd1}c\u{fdd1}d", "abcd"),
            (delimited("a\u{fdd1}*b*\u{fdd0}").as_str(), "a*b*"),
        ] {
            let (taken, values) = Values::take_out(text).unwrap();
            assert!(!taken.contains([VALUE_START, VALUE_END]));
            assert_eq!(values.put_back(&taken), whole, "{text:?}");
            assert_eq!(without_delimiters(text), whole, "{text:?}");
        }
        assert_eq!(delimited("a\u{fdd1}*b*\u{fdd0}"), "\u{fdd0}a*b*\u{fdd1}");
    }

    #[test]
    fn letters_are_letters_and_may_not_suffice() {
        assert!(STAND_INS.into_iter().all(char::is_alphanumeric));
        assert!(Values::take_out(&delimited("x").repeat(6_000)).is_some());
        assert!(Values::take_out(&delimited("x").repeat(7_000)).is_none());
    }
}
