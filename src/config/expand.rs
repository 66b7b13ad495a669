//! `${NAME}` and `${NAME:-default}` in strings, after parsing.
//!
//! | written | becomes |
//! |---|---|
//! | `${NAME}` | the value, also when it is empty; unset: a problem, the text stays |
//! | `${NAME:-text}` | the value; unset or empty: `text`, in which references are expanded too |
//! | `$${NAME}` | the text `${NAME}` |
//! | `$NAME`, `$`, `$$` | themselves |
//! | `${}`, `${a b}`, `${NAME-x}`, `${NAME` | a problem, the text stays |

use std::collections::BTreeMap;

/// How deep defaults may hold references.
const MAX_DEPTH: usize = 8;

/// Text with its references replaced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Expanded {
    /// The text; references with a problem stand in it unchanged.
    pub(crate) text: String,
    /// Whether anything was replaced, so that the text may hold a value of the environment.
    pub(crate) replaced: bool,
    /// What is wrong with each reference that could not be replaced, as a sentence without values.
    pub(crate) unresolved: Vec<String>,
}

/// Replaces the references of `text` by values of `environment`.
pub(crate) fn expand(text: &str, environment: &BTreeMap<String, String>) -> Expanded {
    expand_at(text, environment, 0)
}

fn expand_at(text: &str, environment: &BTreeMap<String, String>, depth: usize) -> Expanded {
    let mut out = Expanded::default();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if rest[..start].ends_with('$') {
            out.text.push_str(&rest[..start - 1]);
            let end = closing_brace(&rest[start..]).unwrap_or(rest.len() - start);
            out.text.push_str(&rest[start..start + end]);
            out.replaced = true;
            rest = &rest[start + end..];
            continue;
        }
        out.text.push_str(&rest[..start]);
        rest = &rest[start..];
        let Some(end) = closing_brace(rest) else {
            out.unresolved.push("`${` has no closing `}`".to_owned());
            break;
        };
        let (reference, after) = rest.split_at(end);
        rest = after;
        let inside = &reference[2..end - 1];
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if !is_name(name) {
            out.unresolved.push(format!("`{reference}` is not a reference to a variable"));
            out.text.push_str(reference);
            continue;
        }
        match (environment.get(name), default) {
            (Some(value), None) => out.text.push_str(value),
            (Some(value), Some(_)) if !value.is_empty() => out.text.push_str(value),
            (_, Some(_)) if depth >= MAX_DEPTH => {
                out.unresolved.push(format!("the default of `{name}` is nested too deep"));
                out.text.push_str(reference);
                continue;
            }
            (_, Some(default)) => {
                let default = expand_at(default, environment, depth + 1);
                out.text.push_str(&default.text);
                out.unresolved.extend(default.unresolved);
            }
            (None, None) => {
                out.unresolved.push(format!("the variable `{name}` is not set"));
                out.text.push_str(reference);
                continue;
            }
        }
        out.replaced = true;
    }
    out.text.push_str(rest);
    out
}

/// The length of the reference at the start of `text`, its braces included.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    let mut previous = '\0';
    for (index, c) in text.char_indices() {
        match c {
            '{' if previous == '$' => open += 1,
            '}' => {
                open = open.saturating_sub(1);
                if open == 0 {
                    return Some(index + 1);
                }
            }
            _ => {}
        }
        previous = c;
    }
    None
}

/// Whether this can name a variable.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> BTreeMap<String, String> {
        [("X", "value"), ("EMPTY", ""), ("x", "lower"), ("DOLLAR", "${X}")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    #[test]
    fn every_documented_form_has_its_result() {
        for (text, wanted) in [
            ("${X}", "value"),
            ("${x}", "lower"),
            ("a-${X}-${X}-b", "a-value-value-b"),
            ("${EMPTY}", ""),
            ("${X:-60}", "value"),
            ("${MISSING:-60}", "60"),
            ("${EMPTY:-60}", "60"),
            ("${MISSING:-}", ""),
            ("${MISSING:-${X}}", "value"),
            ("${MISSING:-${ALSO:-deep}}!", "deep!"),
            ("$X", "$X"),
            ("$", "$"),
            ("$$", "$$"),
            ("$${X}", "${X}"),
            ("a$${X:-${Y}}b", "a${X:-${Y}}b"),
            ("{X}", "{X}"),
            ("${DOLLAR}", "${X}"),
            ("größe ${X}", "größe value"),
        ] {
            let expanded = expand(text, &environment());
            assert_eq!(expanded.text, wanted, "{text}");
            assert_eq!(expanded.unresolved, Vec::<String>::new(), "{text}");
            assert_eq!(expanded.replaced, text != wanted, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_resolved_is_named_and_stays() {
        for (text, problem) in [
            ("${MISSING}", "the variable `MISSING` is not set"),
            ("${}", "`${}` is not a reference to a variable"),
            ("${a b}", "`${a b}` is not a reference to a variable"),
            ("${X-60}", "`${X-60}` is not a reference to a variable"),
            ("${X", "`${` has no closing `}`"),
            ("${MISSING:-${ALSO}}", "the variable `ALSO` is not set"),
        ] {
            let expanded = expand(text, &environment());
            assert_eq!(expanded.unresolved, [problem], "{text}");
        }
        assert_eq!(expand("${MISSING} ${X}", &environment()).text, "${MISSING} value");
    }

    #[test]
    fn nesting_has_a_limit() {
        let deep = "${A:-".repeat(500) + &"}".repeat(500);
        assert!(!expand(&deep, &environment()).unresolved.is_empty());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[${}:XA \\-é]{0,40}") {
            let expanded = expand(&text, &environment());
            if !text.contains("${") {
                proptest::prop_assert_eq!(expanded.text, text);
            }
        }
    }
}
