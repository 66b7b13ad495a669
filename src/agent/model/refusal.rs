//! Turns what a provider says when it does not answer into a [`ModelError`]: which kind it is, whether to try again, and
//! what the person is told. Pure; the sentences of all dialects are here.

use std::time::Duration;

use serde_json::Value;

use super::{ModelError, Reason, Retry};

/// What the sentences need to know of the model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// The model's name.
    pub(super) model: &'a str,
    /// Whether a key was sent.
    pub(super) with_key: bool,
    /// The environment variable that may hold the key.
    pub(super) key_variable: &'a str,
}

/// An HTTP answer other than success. `body` is its beginning, of any type.
pub(super) fn of_status(status: u16, body: &str, retry_after: Option<Duration>, asked: Asked<'_>) -> ModelError {
    let about = serde_json::from_str::<Value>(body).map_or_else(|_| String::new(), |body| told(&body));
    let reason = by_words(&about, Some(status)).unwrap_or_else(|| by_status(status));
    refused(reason, Some(status), retry_after, asked, format!("the model's server answered {status}: {body}"))
}

/// An error object in an answer whose HTTP status said success: inside the stream, or instead of a completion.
pub(super) fn of_error_object(error: &Value, asked: Asked<'_>) -> ModelError {
    let status = ["code", "status", "status_code"]
        .iter()
        .filter_map(|key| error.get(key))
        .find_map(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()))
        .and_then(|code| u16::try_from(code).ok())
        .filter(|code| (400..600).contains(code));
    let reason = by_words(&told(error), status).or(status.map(by_status)).unwrap_or(Reason::ServerError);
    refused(reason, status, None, asked, format!("the model's server reported an error: {error}"))
}

/// Code, type and message of an error, in lower case; the places where providers put them.
fn told(body: &Value) -> String {
    let body = body.get(0).unwrap_or(body); // some put their errors into a list
    let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
    if let Some(text) = error.as_str() {
        return text.to_lowercase();
    }
    ["code", "type", "message", "detail"]
        .iter()
        .filter_map(|key| error.get(key)?.as_str())
        .collect::<Vec<_>>()
        .join("\n")
        .to_lowercase()
}

/// What the provider's own words tell better than the status does.
fn by_words(told: &str, status: Option<u16>) -> Option<Reason> {
    let says = |words: &[&str]| words.iter().any(|word| told.contains(word));
    let is_about_the_request = status.is_none_or(|status| matches!(status, 400 | 413 | 422));
    if is_about_the_request
        && says(&[
            "context_length",
            "context length",
            "context window",
            "context size",
            "maximum context",
            "too many tokens",
            "prompt is too long",
            "input is too long",
            "exceed context limit",
            "request_too_large",
        ])
    {
        return Some(Reason::ContextLength);
    }
    if says(&[
        "insufficient_quota",
        "billing_hard_limit",
        "insufficient credit",
        "insufficient_balance",
        "credit balance",
        "billing_error",
    ]) {
        return Some(Reason::Quota);
    }
    if is_about_the_request && says(&["model_not_found", "model not found", "invalid model"]) {
        return Some(Reason::NotFound);
    }
    if is_about_the_request && says(&["invalid_api_key", "invalid api key", "api key not valid", "authentication"]) {
        return Some(Reason::Auth);
    }
    if status.is_some() {
        return None;
    }
    if says(&["rate_limit", "rate limit", "too many requests"]) {
        return Some(Reason::RateLimit);
    }
    if says(&["permission"]) {
        return Some(Reason::Auth);
    }
    if says(&["not_found"]) {
        return Some(Reason::NotFound);
    }
    if says(&["timeout_error"]) {
        return Some(Reason::Timeout);
    }
    says(&["invalid_request"]).then_some(Reason::BadRequest)
}

fn by_status(status: u16) -> Reason {
    match status {
        401 | 403 => Reason::Auth,
        402 => Reason::Quota,
        404 | 410 => Reason::NotFound,
        408 | 504 => Reason::Timeout,
        413 => Reason::ContextLength,
        429 => Reason::RateLimit,
        409 | 425 | 500.. => Reason::ServerError,
        _ => Reason::BadRequest,
    }
}

fn refused(
    reason: Reason,
    status: Option<u16>,
    retry_after: Option<Duration>,
    asked: Asked<'_>,
    cause: String,
) -> ModelError {
    let when = retry_after.map_or_else(|| "in a minute".to_owned(), |wait| format!("in {}", in_words(wait)));
    let for_user = match reason {
        Reason::RateLimit => format!("The model is busy (rate limit); try again {when}."),
        Reason::ServerError => format!("The model's server has trouble of its own; try again {when}."),
        Reason::Timeout => format!("The model's server gave up waiting for an answer; try again {when}."),
        Reason::Auth if asked.with_key => format!(
            "The model's provider refused the key; check model.api_key (or {}) in the gateway's configuration.",
            asked.key_variable
        ),
        Reason::Auth => format!(
            "The model's provider wants a key; set model.api_key (or {}) in the gateway's configuration.",
            asked.key_variable
        ),
        Reason::Quota => "The account at the model's provider has no credit left; \
                          top it up or raise its limit, then try again."
            .to_owned(),
        Reason::NotFound => format!(
            "The model \"{}\" was not found at the configured address; \
             check model.default and model.base_url in the gateway's configuration.",
            asked.model
        ),
        Reason::ContextLength => "This conversation is too long for the model; \
                                  start a new one with /new, or send a shorter message."
            .to_owned(),
        Reason::Unreachable | Reason::Broken | Reason::BadRequest | Reason::TooLong => {
            "The model's server did not accept the request; its reason is in the gateway's log.".to_owned()
        }
    };
    let retry = match (reason, retry_after) {
        (Reason::RateLimit | Reason::ServerError | Reason::Timeout, Some(wait)) => Retry::After(wait),
        (Reason::RateLimit | Reason::ServerError | Reason::Timeout, None) => Retry::BackOff,
        _ => Retry::Never,
    };
    ModelError { reason, status, retry, for_user, cause }
}

/// The address answers with a redirect, which we do not follow: the key must not travel.
pub(super) fn redirected(status: u16) -> ModelError {
    ModelError {
        reason: Reason::NotFound,
        status: Some(status),
        retry: Retry::Never,
        for_user: "The model's address redirects to another one; \
                   set model.base_url in the gateway's configuration to the final address."
            .to_owned(),
        cause: format!("the model's server answered {status}, a redirect, which is not followed"),
    }
}

/// No connection, or it broke before the answer began.
pub(super) fn unreachable(cause: String) -> ModelError {
    ModelError {
        reason: Reason::Unreachable,
        status: None,
        retry: Retry::BackOff,
        for_user: "The model's server cannot be reached; try again in a minute. \
                   If it stays so, check model.base_url and the network."
            .to_owned(),
        cause,
    }
}

/// No byte for the time the configuration gives.
pub(super) fn silent(timeout: Duration) -> ModelError {
    ModelError {
        reason: Reason::Timeout,
        status: None,
        retry: Retry::BackOff,
        for_user: format!(
            "The model was silent for {}; try again, or raise model.timeout if it is a slow one.",
            in_words(timeout)
        ),
        cause: format!("no byte from the model's server for {} s", timeout.as_secs_f64()),
    }
}

/// One attempt took longer than we allow in all.
pub(super) fn endless(limit: Duration) -> ModelError {
    ModelError {
        reason: Reason::Timeout,
        status: None,
        retry: Retry::Never,
        for_user: format!("The model was not done after {}; ask for something smaller.", in_words(limit)),
        cause: format!("the model's answer was not complete after {} s", limit.as_secs()),
    }
}

/// The answer stopped midway, or was not what the dialect promises.
pub(super) fn broken(cause: String) -> ModelError {
    ModelError {
        reason: Reason::Broken,
        status: None,
        retry: Retry::BackOff,
        for_user: "The model's answer broke off or could not be read; try again in a minute.".to_owned(),
        cause,
    }
}

/// A web page where a model was expected.
pub(super) fn web_page(beginning: &str) -> ModelError {
    ModelError {
        reason: Reason::NotFound,
        status: None,
        retry: Retry::Never,
        for_user: "What answers at the model's address is a web page and no model; \
                   check model.base_url in the gateway's configuration."
            .to_owned(),
        cause: format!("the model's server sent a web page: {beginning}"),
    }
}

/// The answer was longer than we take.
pub(super) fn too_long(cause: String) -> ModelError {
    ModelError {
        reason: Reason::TooLong,
        status: None,
        retry: Retry::Never,
        for_user: "The model's answer grew too long and was dropped; ask for something shorter.".to_owned(),
        cause,
    }
}

/// A time span as people say it, rounded up.
fn in_words(span: Duration) -> String {
    let seconds = span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0));
    match seconds {
        0..=99 => format!("{} s", seconds.max(1)),
        100..=5_999 => format!("{} minutes", seconds.div_ceil(60)),
        6_000..=172_799 => format!("{} hours", seconds.div_ceil(3_600)),
        _ => format!("{} days", seconds.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ASKED: Asked<'_> = Asked { model: "m-1", with_key: true, key_variable: "OPENAI_API_KEY" };

    fn of(status: u16, body: &str) -> (Reason, Retry) {
        let error = of_status(status, body, None, ASKED);
        assert_eq!(error.status, Some(status));
        (error.reason, error.retry)
    }

    #[test]
    fn statuses() {
        for status in [408, 409, 425, 429, 500, 502, 503, 504, 520, 529] {
            assert_eq!(of(status, "").1, Retry::BackOff, "{status}");
        }
        for status in [400, 401, 402, 403, 404, 405, 413, 415, 422] {
            assert_eq!(of(status, "<html>no</html>").1, Retry::Never, "{status}");
        }
        assert_eq!(of(401, "").0, Reason::Auth);
        assert_eq!(of(404, "").0, Reason::NotFound);
        assert_eq!(of(400, "").0, Reason::BadRequest);
    }

    #[test]
    fn words_that_tell_more_than_the_status() {
        let context = json!({"error": {"code": "context_length_exceeded", "message": "This model's maximum context…"}});
        assert_eq!(of(400, &context.to_string()).0, Reason::ContextLength);
        assert_eq!(of(400, r#"{"error":"the prompt exceeds the context window"}"#).0, Reason::ContextLength);
        assert_eq!(of(400, r#"{"object":"error","message":"too many tokens","code":null}"#).0, Reason::ContextLength);
        let quota = json!({"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}).to_string();
        assert_eq!(of(429, &quota), (Reason::Quota, Retry::Never));
        let credit = json!({"type": "error", "error": {
            "type": "invalid_request_error", "message": "Your credit balance is too low to access the API.",
        }});
        assert_eq!(of(400, &credit.to_string()).0, Reason::Quota);
        let long = json!({"error": {"message": "input length and `max_tokens` exceed context limit: 190000 + 64000"}});
        assert_eq!(of(400, &long.to_string()).0, Reason::ContextLength);
        assert_eq!(of(400, r#"{"error":{"code":"model_not_found"}}"#).0, Reason::NotFound);
        assert_eq!(of(400, r#"[{"error":{"code":400,"message":"API key not valid."}}]"#).0, Reason::Auth);
        assert_eq!(of(503, r#"{"error":{"message":"context length service is down"}}"#).0, Reason::ServerError);
    }

    #[test]
    fn a_wait_is_told_and_kept() {
        let error = of_status(429, "", Some(Duration::from_secs(20)), ASKED);
        assert_eq!(error.retry, Retry::After(Duration::from_secs(20)));
        assert_eq!(error.for_user, "The model is busy (rate limit); try again in 20 s.");
        let error = of_status(400, "", Some(Duration::from_secs(20)), ASKED);
        assert_eq!(error.retry, Retry::Never);
    }

    #[test]
    fn a_missing_key_is_told_from_a_refused_one() {
        let sentence = |with_key| of_status(401, "", None, Asked { with_key, ..ASKED }).for_user;
        assert!(sentence(false).starts_with("The model's provider wants a key; set model.api_key (or OPENAI_API_KEY)"));
        assert!(sentence(true).starts_with("The model's provider refused the key; check model.api_key"));
    }

    #[test]
    fn error_objects_inside_a_successful_answer() {
        let of = |error: Value| {
            let error = of_error_object(&error, ASKED);
            (error.reason, error.status, error.retry == Retry::BackOff)
        };
        assert_eq!(of(json!({"code": 429, "message": "slow down"})), (Reason::RateLimit, Some(429), true));
        assert_eq!(of(json!({"code": "502"})), (Reason::ServerError, Some(502), true));
        assert_eq!(of(json!({"type": "rate_limit_error"})), (Reason::RateLimit, None, true));
        assert_eq!(of(json!({"type": "invalid_request_error"})), (Reason::BadRequest, None, false));
        assert_eq!(of(json!({"message": "authentication failed"})), (Reason::Auth, None, false));
        assert_eq!(of(json!("the machine is on fire")), (Reason::ServerError, None, true));
        assert_eq!(of(json!({"code": 7})), (Reason::ServerError, None, true));
    }

    #[test]
    fn sentences_never_quote_the_provider() {
        for status in 400..600 {
            let error = of_status(status, r#"{"error":{"message":"sk-123 is bad"}}"#, None, ASKED);
            assert!(!error.for_user.contains("sk-123"), "{}", error.for_user);
            assert!(error.for_user.ends_with('.') && error.cause.contains("sk-123"));
        }
    }

    #[test]
    fn spans_in_words() {
        let words = |millis| in_words(Duration::from_millis(millis));
        assert_eq!(words(0), "1 s");
        assert_eq!(words(1_200), "2 s");
        assert_eq!(words(61_000), "61 s");
        assert_eq!(words(300_000), "5 minutes");
        assert_eq!(words(7_200_000), "2 hours");
        assert_eq!(words(400_000_000), "5 days");
        assert!(in_words(Duration::MAX).ends_with("days"));
    }
}
