//! The known name that somebody probably meant.

/// How alike two names must be (0 to 1).
const ALIKE: f64 = 0.6;

/// The candidate nearest to `name`, if any is near: few edits, or mostly the same pairs of letters.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut best = None;
    for candidate in candidates {
        let alike = strsim::normalized_damerau_levenshtein(name, candidate).max(strsim::sorensen_dice(name, candidate));
        if alike >= ALIKE && best.is_none_or(|(most, _)| alike > most) {
            best = Some((alike, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHELL_HOOK_EVENTS: [&str; 23] = [
        "pre_tool_call",
        "post_tool_call",
        "pre_llm_call",
        "post_llm_call",
        "on_session_start",
        "on_session_end",
        "on_session_finalize",
        "on_session_reset",
        "subagent_stop",
        "pre_gateway_dispatch",
        "pre_approval_request",
        "post_approval_response",
        "transform_tool_result",
        "transform_terminal_output",
        "transform_llm_output",
        "pre_api_request",
        "post_api_request",
        "api_request_error",
        "subagent_start",
        "pre_verify",
        "kanban_task_claimed",
        "kanban_task_completed",
        "kanban_task_blocked",
    ];

    #[test]
    fn typos_get_the_suggestions_people_know() {
        let vectors = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/did_you_mean.json")).unwrap();
        let vectors: serde_json::Value = serde_json::from_slice(&vectors).unwrap();
        let cases = vectors["cases"].as_array().unwrap();
        assert!(cases.len() > 10);
        for case in cases {
            let name = case["name"].as_str().unwrap();
            assert_eq!(nearest(name, SHELL_HOOK_EVENTS), case["suggestion"].as_str(), "{name}");
        }
    }

    #[test]
    fn transposed_and_dropped_letters_are_near_and_other_words_are_not() {
        let keys = ["host", "port", "token", "enabled"];
        for (name, meant) in [("prot", Some("port")), ("tokn", Some("token")), ("enable", Some("enabled"))] {
            assert_eq!(nearest(name, keys), meant, "{name}");
        }
        for name in ["", "retention", "x"] {
            assert_eq!(nearest(name, keys), None, "{name}");
        }
    }
}
