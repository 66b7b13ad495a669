//! One call of the Bot API, and exactly what became of it.
//!
//! Payloads come from teloxide; the request is made here, because teloxide's own `Bot` sleeps ten seconds on a server
//! error and then hides the status code, so its errors cannot tell "not sent" from "maybe sent". This module is also the
//! only place that sees the token: every text of an error leaves it without address and token.

use std::time::Duration;

use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use teloxide::requests::Payload;

use crate::Proxies;

/// How long a TCP and TLS connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// An idle connection is not kept longer than servers and routers keep theirs: a request on one that died in the
/// meantime would end with an unknown outcome.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Where Telegram, or a server before it, asks to wait for no time at all: retries must not become a loop without a pause.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// No answer of the methods called here comes near this size.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// Why a call failed, by what is known about it. Texts are sentences without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// It did not get to the Bot API: no connection, or something in front of it answered 3xx or 4xx.
    NotSent(String),
    /// The request went out and no readable answer came: it may or may not have had its effect.
    Unknown(String),
    /// The service answered that something in it failed (5xx): it may or may not have had its effect, and goes on failing
    /// for a while.
    Failing(String),
    /// The service answered that it will not do it.
    Refused(Refusal),
}

/// An error answer of the Bot API (`{"ok": false, …}`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// `error_code`, else the HTTP status.
    pub(super) code: u16,
    /// What the service says.
    pub(super) description: String,
    /// `parameters.retry_after`.
    pub(super) retry_after: Option<Duration>,
    /// `parameters.migrate_to_chat_id`.
    pub(super) migrated_to: Option<i64>,
}

impl Refusal {
    /// Whether the description contains a phrase, in any case.
    pub(super) fn says(&self, phrase: &str) -> bool {
        self.description.to_ascii_lowercase().contains(phrase)
    }

    /// The token is wrong (401) or not even shaped like one (404).
    pub(super) fn is_about_the_token(&self) -> bool {
        matches!(self.code, 401 | 404)
    }
}

/// The address and token cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TelegramSetupError {
    /// The token is empty or has characters no token has.
    #[error("the Telegram bot token is not of the form 123456:ABC-DEF; check TELEGRAM_BOT_TOKEN")]
    Token,
    /// The base address is not an `http` or `https` address.
    #[error("the Telegram base_url {0:?} is not an http or https address")]
    BaseUrl(String),
    /// The proxy's address cannot be used.
    #[error("the Telegram proxy is not an http, https or socks address")]
    Proxy,
    /// The HTTP client cannot be built, for example because of an unusable proxy setting.
    #[error("the HTTP client for Telegram cannot be set up: {0}")]
    Client(String),
}

/// The Bot API at one address with one token.
#[derive(Clone)]
pub(super) struct Api {
    http: reqwest::Client,
    base_url: String,
    token: SecretString,
}

#[derive(Deserialize)]
struct Answer<'a> {
    ok: bool,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error_code: Option<u16>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
}

impl Api {
    /// Checks the address (with or without a trailing `/` or `/bot`) and the token. Nothing is sent.
    pub(super) fn new(base_url: &str, token: SecretString, proxies: &Proxies) -> Result<Self, TelegramSetupError> {
        let secret = token.expose_secret();
        if secret.is_empty() || !secret.bytes().all(|b| b.is_ascii_alphanumeric() || b":_-".contains(&b)) {
            return Err(TelegramSetupError::Token);
        }
        let trimmed = base_url.trim().trim_end_matches('/');
        let trimmed = trimmed.strip_suffix("/bot").unwrap_or(trimmed).trim_end_matches('/');
        let usable = Url::parse(trimmed).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.query().is_none()
                && url.fragment().is_none()
        });
        if !usable {
            return Err(TelegramSetupError::BaseUrl(base_url.replace(secret, "<token>")));
        }
        let http = proxies.apply(reqwest::Client::builder()).map_err(|_| TelegramSetupError::Proxy)?;
        let http = http
            .http1_only() // a poll and the sends must not share one connection that may die
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none()) // a redirect would carry the token elsewhere
            .build()
            .map_err(|error| TelegramSetupError::Client(sentence(error)))?;
        Ok(Self { http, base_url: trimmed.to_owned(), token })
    }

    /// Calls the payload's method once and reads its `result`. The whole call, answer included, ends at `deadline`.
    pub(super) async fn call<P, T>(&self, payload: &P, deadline: Duration) -> Result<T, Failure>
    where
        P: Payload + Serialize + Sync,
        T: DeserializeOwned,
    {
        let body = self.post(P::NAME, payload, deadline).await?;
        self.read(&body)
    }

    async fn post<P: Serialize + Sync>(&self, method: &str, payload: &P, deadline: Duration) -> Result<Body, Failure> {
        let url = format!("{}/bot{}/{method}", self.base_url, self.token.expose_secret());
        let mut response =
            self.http.post(url).timeout(deadline).json(payload).send().await.map_err(|e| self.failure(e))?;
        let status = response.status().as_u16();
        let mut text = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| self.failure(e))? {
            if text.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(Failure::Unknown("Telegram's answer is too large".to_owned()));
            }
            text.extend_from_slice(&chunk);
        }
        Ok(Body { status, text })
    }

    fn read<T: DeserializeOwned>(&self, body: &Body) -> Result<T, Failure> {
        let status = body.status;
        let Ok(answer) = serde_json::from_slice::<Answer<'_>>(&body.text) else {
            return Err(match status {
                300..=499 => Failure::NotSent(format!(
                    "HTTP {status} without an answer of the Bot API; check base_url and proxy"
                )),
                500.. => Failure::Failing(format!("Telegram answered HTTP {status}")),
                _ => Failure::Unknown(format!("Telegram answered HTTP {status} with something unreadable")),
            });
        };
        if answer.ok {
            let result = answer.result.map_or("null", RawValue::get);
            return serde_json::from_str(result).map_err(|error| {
                Failure::Unknown(self.without_token(&format!("Telegram's answer is unreadable: {error}")))
            });
        }
        let code = answer.error_code.unwrap_or(status);
        let description = self.without_token(&answer.description.unwrap_or_else(|| format!("error {code}")));
        if code >= 500 || status >= 500 {
            return Err(Failure::Failing(format!("Telegram answered {code}: {description}")));
        }
        let parameter = |name: &str| answer.parameters.as_ref().and_then(|all| all.get(name));
        Err(Failure::Refused(Refusal {
            code,
            description,
            retry_after: parameter("retry_after")
                .and_then(Value::as_f64)
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .map(|wait| wait.max(SHORTEST_WAIT)),
            migrated_to: parameter("migrate_to_chat_id").and_then(Value::as_i64),
        }))
    }

    fn failure(&self, error: reqwest::Error) -> Failure {
        let before_sending = error.is_connect() || error.is_builder();
        let text = if error.is_timeout() && !before_sending {
            "Telegram did not answer in time".to_owned()
        } else {
            self.without_token(&sentence(error))
        };
        if before_sending { Failure::NotSent(text) } else { Failure::Unknown(text) }
    }

    fn without_token(&self, text: &str) -> String {
        let token = self.token.expose_secret();
        let text = text.replace(token, "<token>");
        match token.split_once(':') {
            Some((_, secret)) if secret.len() >= 8 => text.replace(secret, "<token>"),
            _ => text,
        }
    }
}

struct Body {
    status: u16,
    text: Vec<u8>,
}

/// The error and its causes in one line, without the address (which holds the token).
fn sentence(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "123456:AAbbCCddEEff";

    fn api() -> Api {
        Api::new("http://127.0.0.1:1", TOKEN.into(), &Proxies::default()).unwrap()
    }

    fn read(status: u16, text: &str) -> Result<i64, Failure> {
        api().read(&Body { status, text: text.as_bytes().to_vec() })
    }

    #[test]
    fn addresses_are_taken_with_and_without_their_tails() {
        for good in [
            "https://api.telegram.org",
            "https://api.telegram.org/",
            "https://api.telegram.org/bot/",
            " http://h:1/x/bot",
        ] {
            let api = Api::new(good, TOKEN.into(), &Proxies::default()).unwrap();
            assert!(!api.base_url.ends_with('/') && !api.base_url.ends_with("bot"), "{good} -> {}", api.base_url);
        }
        for bad in ["", "api.telegram.org", "ftp://h", "http://h/?a=b", "http://"] {
            assert!(
                matches!(Api::new(bad, TOKEN.into(), &Proxies::default()), Err(TelegramSetupError::BaseUrl(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_token_that_would_change_the_address_is_refused() {
        for bad in ["", "1:a/../b", "1:a b", "1:a?x", "1:a\n", "1:é"] {
            assert_eq!(
                Api::new("http://h", bad.into(), &Proxies::default()).err(),
                Some(TelegramSetupError::Token),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn answers_are_told_apart() {
        assert_eq!(read(200, r#"{"ok":true,"result":5}"#), Ok(5));
        for (status, text) in [
            (200, "{"),
            (200, "<html>"),
            (200, ""),
            (200, r#"{"ok":true,"result":"x"}"#),
            (502, "<html>"),
            (500, r#"{"ok":false,"error_code":500,"description":"Internal Server Error"}"#),
        ] {
            assert!(matches!(read(status, text), Err(Failure::Unknown(_) | Failure::Failing(_))), "{status} {text}");
        }
        let Err(Failure::Refused(refusal)) = read(
            429,
            r#"{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 7","parameters":{"retry_after":7}}"#,
        ) else {
            panic!()
        };
        assert_eq!((refusal.code, refusal.retry_after), (429, Some(Duration::from_secs(7))));
        for none in ["0", "0.0", "0.001"] {
            let answer = format!(r#"{{"ok":false,"error_code":429,"parameters":{{"retry_after":{none}}}}}"#);
            let Err(Failure::Refused(refusal)) = read(429, &answer) else { panic!() };
            assert_eq!(refusal.retry_after, Some(Duration::from_secs(1)), "no loop without a pause");
        }
        assert!(matches!(read(404, "nginx"), Err(Failure::NotSent(_))));
        let Err(Failure::Refused(refusal)) = read(401, r#"{"ok":false,"error_code":401,"description":"Unauthorized"}"#)
        else {
            panic!()
        };
        assert!(refusal.is_about_the_token() && refusal.says("unauth"));
    }

    #[tokio::test]
    async fn errors_do_not_hold_the_token() {
        let failure =
            api().call::<_, Value>(&teloxide::payloads::GetMe::new(), Duration::from_secs(5)).await.unwrap_err();
        let Failure::NotSent(text) = failure else { panic!("{failure:?}") };
        assert!(!text.contains("AAbbCCddEEff") && text.contains("onnect"), "{text}");
        assert_eq!(api().without_token(&format!("{TOKEN} and AAbbCCddEEff")), "<token> and <token>");
    }
}
