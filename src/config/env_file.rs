//! `.env`: `KEY=VALUE` lines as shells and the reference's loader read them. Nothing is exported to this process.

use std::collections::BTreeMap;

use super::expand::{expand, is_name};

/// One assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    pub(crate) value: String,
    /// The line it begins on, from 1.
    pub(crate) line: usize,
    /// Whether `${…}` in it is a reference; not inside single quotes.
    pub(crate) expands: bool,
}

/// A line that is not an assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadLine {
    pub(crate) line: usize,
    pub(crate) message: &'static str,
}

/// Reads the lines. Quoted values may span lines; a line that cannot be read is told and passed over.
pub(crate) fn parse(text: &str) -> (Vec<Assignment>, Vec<BadLine>) {
    let mut assignments = Vec::new();
    let mut bad = Vec::new();
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut line = 1;
    while !rest.is_empty() {
        let (used, result) = assignment(rest);
        match result {
            Ok(Some((name, value, expands))) => assignments.push(Assignment { name, value, line, expands }),
            Ok(None) => {}
            Err(message) => bad.push(BadLine { line, message }),
        }
        line += rest[..used].matches('\n').count();
        rest = &rest[used..];
    }
    (assignments, bad)
}

type Parsed = Result<Option<(String, String, bool)>, &'static str>;

/// Reads one assignment from the start of `text`; also how many bytes it took, its line end included.
fn assignment(text: &str) -> (usize, Parsed) {
    let line_end = text.find('\n').map_or(text.len(), |end| end + 1);
    let line = text[..line_end].trim();
    if line.is_empty() || line.starts_with('#') {
        return (line_end, Ok(None));
    }
    let Some(equals) = text[..line_end].find('=') else {
        return (line_end, Err("this line is not `NAME=value`"));
    };
    let name = text[..equals].trim();
    let name = name.strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t'])).map_or(name, str::trim);
    if !is_name(name) {
        return (line_end, Err("the name before `=` may only hold letters, digits and `_`"));
    }
    let after = &text[equals + 1..];
    let blank = after.len() - after.trim_start_matches([' ', '\t']).len();
    let value_start = equals + 1 + blank;
    let value = &text[value_start..];
    match value.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let Some((content, used)) = quoted(&value[1..], quote) else {
                return (line_end, Err("the value's quote is never closed"));
            };
            let tail_start = value_start + 1 + used;
            let tail_end = text[tail_start..].find('\n').map_or(text.len(), |end| tail_start + end + 1);
            let tail = text[tail_start..tail_end].trim();
            if tail.is_empty() || tail.starts_with('#') {
                (tail_end, Ok(Some((name.to_owned(), content, quote == '"'))))
            } else {
                (tail_end, Err("something follows the value's closing quote"))
            }
        }
        _ => {
            let value = text[equals + 1..line_end].trim_end();
            let comment = value
                .char_indices()
                .find(|&(index, c)| c == '#' && value[..index].ends_with([' ', '\t']))
                .map_or(value.len(), |(index, _)| index);
            (line_end, Ok(Some((name.to_owned(), value[..comment].trim().to_owned(), true))))
        }
    }
}

/// The text up to the closing quote with its escapes undone, and how many bytes that took with the quote.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '\\' => match (chars.next()?.1, quote) {
                (c @ ('\\' | '\''), '\'') => out.push(c),
                (c, '\'') => out.extend(['\\', c]),
                ('n', _) => out.push('\n'),
                ('r', _) => out.push('\r'),
                ('t', _) => out.push('\t'),
                (c @ ('\\' | '"' | '\'' | '`'), _) => out.push(c),
                // An escaped dollar keeps `${` from being a reference, the way `$${` does.
                ('$', _) => out.push_str(if chars.as_str().starts_with('{') { "$$" } else { "$" }),
                (c, _) => out.extend(['\\', c]),
            },
            '\r' if text[index..].starts_with("\r\n") => {}
            c if c == quote => return Some((out, index + c.len_utf8())),
            c => out.push(c),
        }
    }
    None
}

/// The variables `.env` adds to the process environment, which wins, with references expanded; and the assignments
/// whose references cannot be resolved (left out of the variables), each with what is wrong.
pub(crate) fn merge(
    process: &BTreeMap<String, String>,
    assignments: &[Assignment],
) -> (BTreeMap<String, String>, Vec<(Assignment, String)>) {
    let mut merged = process.clone();
    let mut unresolved = Vec::new();
    for assignment in assignments {
        if process.get(&assignment.name).is_some_and(|value| !value.is_empty()) {
            continue;
        }
        let value = if assignment.expands {
            let expanded = expand(&assignment.value, &merged);
            if !expanded.unresolved.is_empty() {
                merged.remove(&assignment.name);
                unresolved.push((assignment.clone(), expanded.unresolved.join("; ")));
                continue;
            }
            expanded.text
        } else {
            assignment.value.clone()
        };
        merged.insert(assignment.name.clone(), value);
    }
    (merged, unresolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let (assignments, bad) = parse(text);
        assert_eq!(bad, [], "{text:?}");
        assignments.into_iter().map(|assignment| (assignment.name, assignment.value)).collect()
    }

    #[test]
    fn every_form_of_a_value_is_read() {
        for (line, value) in [
            ("A=1", "1"),
            ("A=", ""),
            ("A = 1 ", "1"),
            ("export A=1", "1"),
            ("export\tA=1", "1"),
            ("A=1 # comment", "1"),
            ("A= # comment", ""),
            ("A=1#2", "1#2"),
            ("A=#2", "#2"),
            ("A=a=b=c", "a=b=c"),
            ("A='1 # 2' # comment", "1 # 2"),
            ("A='it\\'s \\n'", "it's \\n"),
            (r#"A="a\nb\t\"c\" \\ \$X""#, "a\nb\t\"c\" \\ $X"),
            (r#"A="\x""#, "\\x"),
            (r#"A="\${X}""#, "$${X}"),
            ("A=\"two\nlines\"", "two\nlines"),
            ("A=\"two\r\nlines\"\r\n", "two\nlines"),
            ("A=1\r\n", "1"),
            ("\u{feff}A=1", "1"),
            ("A=it's", "it's"),
            ("A=größe", "größe"),
        ] {
            assert_eq!(pairs(line), [("A".to_owned(), value.to_owned())], "{line:?}");
        }
        assert_eq!(pairs("# only\n\n  # comments\n\n"), []);
    }

    #[test]
    fn lines_are_counted_through_quotes_and_bad_lines_are_passed_over() {
        let (assignments, bad) = parse("A=\"1\n2\"\nB=3\nno assignment\n=x\n1A=2\nC='open\nD=4\nE=\"x\"y\nF=5");
        let lines: Vec<_> = assignments.iter().map(|one| (one.name.as_str(), one.line)).collect();
        assert_eq!(lines, [("A", 1), ("B", 3), ("D", 8), ("F", 10)]);
        let bad: Vec<_> = bad.iter().map(|one| (one.line, one.message)).collect();
        assert_eq!(
            bad,
            [
                (4, "this line is not `NAME=value`"),
                (5, "the name before `=` may only hold letters, digits and `_`"),
                (6, "the name before `=` may only hold letters, digits and `_`"),
                (7, "the value's quote is never closed"),
                (9, "something follows the value's closing quote"),
            ]
        );
    }

    #[test]
    fn the_process_wins_and_references_see_what_stands_above() {
        let process = BTreeMap::from([("A".to_owned(), "process".to_owned()), ("EMPTY".to_owned(), String::new())]);
        let (assignments, _) = parse("A=file\nEMPTY=file\nB=${A}!\nC='${A}'\nD=${NONE}\nE=\"\\${A}\"\n");
        let (merged, unresolved) = merge(&process, &assignments);
        assert_eq!(merged["A"], "process");
        assert_eq!(merged["EMPTY"], "file");
        assert_eq!(merged["B"], "process!");
        assert_eq!(merged["C"], "${A}");
        assert_eq!(merged["E"], "${A}");
        assert!(!merged.contains_key("D"));
        assert_eq!(unresolved.len(), 1);
        assert_eq!((unresolved[0].0.line, unresolved[0].1.as_str()), (5, "the variable `NONE` is not set"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[A='\"\\\\#\n\r $é]{0,40}") {
            parse(&text);
        }
    }
}
