//! Whether a whole reply means "say nothing" (`spec/hermes-gateway.md` §2.11; binding: `vectors/silence.json`).

/// At most so many characters; anything longer is said.
const LONGEST: usize = 64;

/// `[SILENT]`, `SILENT`, `NO_REPLY` or `NO REPLY`, in any case, with punctuation around it. Backticks are not
/// punctuation here: a quoted marker is talk about the marker.
pub(super) fn is_silent(reply: &str) -> bool {
    let trimmed = reply.trim();
    if trimmed.chars().count() > LONGEST || trimmed.lines().count() > 1 {
        return false;
    }
    let edge = |c: char| !c.is_alphanumeric() && !matches!(c, '[' | ']' | '`' | '_') && !c.is_whitespace();
    let core = trimmed.trim_matches(edge).trim();
    let words: Vec<String> = core.split_whitespace().map(str::to_uppercase).collect();
    matches!(
        words.iter().map(String::as_str).collect::<Vec<_>>().as_slice(),
        ["[SILENT]"] | ["SILENT"] | ["NO_REPLY"] | ["NO", "REPLY"]
    )
}

#[cfg(test)]
mod tests {
    #[derive(serde::Deserialize)]
    struct Case {
        reply: String,
        silent: bool,
    }

    #[test]
    fn the_vectors_hold() {
        #[derive(serde::Deserialize)]
        struct File {
            cases: Vec<Case>,
        }
        let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/silence.json"));
        let file: File = serde_json::from_str(text).unwrap();
        assert!(file.cases.len() > 20);
        for case in file.cases {
            assert_eq!(super::is_silent(&case.reply), case.silent, "{:?}", case.reply);
        }
    }
}
