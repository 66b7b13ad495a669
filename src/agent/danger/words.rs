//! The words of a command, as far as they can be known without running anything.

use std::collections::HashMap;

use brush_parser::ParserOptions;
use brush_parser::word::{self, Parameter, ParameterExpr, WordPiece, WordPieceWithSource};

use super::walk::quietly;

/// Stands for what is only known when the line runs.
pub(super) const UNKNOWN: char = '\u{fffc}';
/// Where an unquoted expansion is cut into words.
const CUT: char = '\u{1}';
/// A longer text counts as unknown: variables can double each other.
const LONGEST_TEXT: usize = 64 << 10;
/// The most words that braces make of one.
const MOST_WORDS: usize = 256;

/// What the parser is told.
pub(super) fn options() -> ParserOptions {
    ParserOptions { enable_extended_globbing: true, posix_mode: false, sh_mode: false, tilde_expansion: true }
}

/// Makes texts of words. Scripts in substitutions are collected on the way, to be looked at.
pub(super) struct Reader<'w> {
    pub(super) vars: &'w HashMap<String, String>,
    /// What a substitution gives, if it can be known; it also looks at what the substitution runs.
    pub(super) substitute: &'w mut dyn FnMut(&str) -> Option<String>,
}

impl Reader<'_> {
    /// The words that one word of the line becomes.
    pub(super) fn words(&mut self, raw: &str) -> Vec<String> {
        let mut words = Vec::new();
        for raw in braces(raw) {
            let text = self.text(&raw, false);
            if text.contains(CUT) {
                words.extend(text.split(CUT).filter(|word| !word.is_empty()).map(str::to_owned));
            } else {
                words.push(text);
            }
        }
        words
    }

    /// The text of a word that is not cut: an assignment, a redirect, a here-document.
    pub(super) fn whole(&mut self, raw: &str) -> String {
        self.text(raw, true).replace(CUT, " ")
    }

    fn text(&mut self, raw: &str, is_quoted: bool) -> String {
        // Its own expansions are nested as the line is; a value of a variable may be anything.
        if raw.len() > LONGEST_TEXT || super::depth_of(raw) > super::DEEPEST {
            return UNKNOWN.to_string();
        }
        match quietly(|| word::parse(raw, &options())) {
            Ok(pieces) => self.pieces(&pieces, is_quoted),
            Err(_) => UNKNOWN.to_string(),
        }
    }

    fn pieces(&mut self, pieces: &[WordPieceWithSource], is_quoted: bool) -> String {
        let mut text = String::new();
        for piece in pieces {
            match &piece.piece {
                WordPiece::Text(plain) => text.push_str(plain),
                WordPiece::SingleQuotedText(plain) => text.push_str(plain),
                WordPiece::AnsiCQuotedText(escaped) => text.push_str(&ansi_c(escaped)),
                WordPiece::DoubleQuotedSequence(inner) | WordPiece::GettextDoubleQuotedSequence(inner) => {
                    text.push_str(&self.pieces(inner, true));
                }
                WordPiece::TildePrefix(user) => {
                    text.push('~');
                    text.push_str(user);
                }
                WordPiece::ParameterExpansion(expression) => {
                    let value = self.parameter(expression);
                    text.push_str(&if is_quoted { value.replace(CUT, " ") } else { cut(&value) });
                }
                WordPiece::CommandSubstitution(script) => {
                    let given = (self.substitute)(script).unwrap_or_else(|| UNKNOWN.to_string());
                    text.push_str(&if is_quoted { given } else { cut(&given) });
                }
                WordPiece::BackquotedCommandSubstitution(script) => {
                    let script = script.replace("\\`", "`").replace("\\\\", "\\").replace("\\$", "$");
                    let given = (self.substitute)(&script).unwrap_or_else(|| UNKNOWN.to_string());
                    text.push_str(&if is_quoted { given } else { cut(&given) });
                }
                WordPiece::EscapeSequence(sequence) => match sequence.strip_prefix('\\') {
                    Some("\n") => {}
                    Some(c) => text.push_str(c),
                    None => text.push_str(sequence),
                },
                WordPiece::ArithmeticExpression(expression) => {
                    // Substitutions in it run, whatever it gives.
                    let _ = self.text(&expression.value, true);
                    text.push(UNKNOWN);
                }
            }
            if text.len() > LONGEST_TEXT {
                return UNKNOWN.to_string();
            }
        }
        text
    }

    fn parameter(&mut self, expression: &ParameterExpr) -> String {
        match expression {
            ParameterExpr::Parameter { parameter, indirect: false } => self.variable(parameter),
            ParameterExpr::UseDefaultValues { parameter, default_value, .. }
            | ParameterExpr::AssignDefaultValues { parameter, default_value, .. } => {
                let default = default_value.as_ref().map(|raw| self.text(raw, true)).unwrap_or_default();
                let value = self.variable(parameter);
                if value.contains(UNKNOWN) { default } else { value }
            }
            ParameterExpr::UseAlternativeValue { alternative_value, .. } => {
                alternative_value.as_ref().map(|raw| self.text(raw, true)).unwrap_or_default()
            }
            _ => UNKNOWN.to_string(),
        }
    }

    fn variable(&self, parameter: &Parameter) -> String {
        match parameter {
            Parameter::Named(name) => match (self.vars.get(name), name.as_str()) {
                (Some(value), _) => value.clone(),
                (None, "HOME") => "~".to_owned(),
                (None, "PWD") => ".".to_owned(),
                (None, "IFS") => CUT.to_string(),
                _ => UNKNOWN.to_string(),
            },
            _ => UNKNOWN.to_string(),
        }
    }
}

/// An unquoted value is cut at blanks.
fn cut(value: &str) -> String {
    value.chars().map(|c| if c.is_whitespace() { CUT } else { c }).collect()
}

/// `$'…'`.
fn ansi_c(escaped: &str) -> String {
    let chars: Vec<char> = escaped.chars().collect();
    let (mut out, mut at) = (String::new(), 0);
    while at < chars.len() {
        if chars[at] != '\\' || at + 1 == chars.len() {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        let (radix, most, skipped) = match chars[at + 1] {
            'x' => (16, 2, 2),
            'u' => (16, 4, 2),
            'U' => (16, 8, 2),
            '0'..='7' => (8, 3, 1),
            _ => (0, 0, 2),
        };
        let digits: String =
            chars[at + skipped..].iter().take(most).take_while(|c| radix > 0 && c.is_digit(radix)).collect();
        let c = match chars[at + 1] {
            _ if radix > 0 => u32::from_str_radix(&digits, radix).ok().and_then(char::from_u32).unwrap_or(UNKNOWN),
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' | 'b' | 'c' | 'e' | 'E' | 'f' | 'v' => UNKNOWN,
            other => other,
        };
        out.push(c);
        at += skipped + digits.chars().count();
    }
    out
}

/// `{a,b}` outside of quotes; what is not closed stays.
fn braces(raw: &str) -> Vec<String> {
    let mut done = Vec::new();
    let mut to_do = vec![raw.to_owned()];
    while let Some(word) = to_do.pop() {
        match first_brace(&word) {
            Some((start, end, parts))
                if done.len() + to_do.len() + parts.len() <= MOST_WORDS
                    && (to_do.len() + parts.len()) * word.len() <= LONGEST_TEXT / 4 =>
            {
                let made = parts.iter().rev().map(|part| format!("{}{part}{}", &word[..start], &word[end..]));
                to_do.extend(made);
            }
            _ => done.push(word),
        }
    }
    done
}

/// The first list in braces: where it begins and ends, and its members.
fn first_brace(word: &str) -> Option<(usize, usize, Vec<String>)> {
    let bytes = word.as_bytes();
    let (mut at, mut quote) = (0, None);
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (None | Some(b'"'), b'\\') => at += 1,
            (None, b'\'' | b'"' | b'`') => quote = Some(bytes[at]),
            (Some(kind), byte) if kind == byte => quote = None,
            (None, b'$') if bytes.get(at + 1) == Some(&b'{') => {
                // A parameter: its own braces are no list.
                at = word[at..].find('}').map_or(bytes.len(), |end| at + end);
            }
            (None, b'{') => open.push((at, Vec::new())),
            (None, b',') => {
                if let Some((_, commas)) = open.last_mut() {
                    commas.push(at);
                }
            }
            (None, b'}') => {
                if let Some((start, commas)) = open.pop()
                    && !commas.is_empty()
                {
                    let mut parts = Vec::new();
                    let mut from = start + 1;
                    for comma in commas.into_iter().chain([at]) {
                        parts.push(word[from..comma].to_owned());
                        from = comma + 1;
                    }
                    return Some((start, at + 1, parts));
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}
