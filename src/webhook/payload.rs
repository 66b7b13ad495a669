//! What a delivery says: its body as checked JSON text, and the name of its event.
//!
//! The body may be any JSON value, or a form (`spec/decisions.md` §5). Everything happens after the signature was
//! verified over the bytes as they came; nothing here changes or re-reads those.

use std::ops::Range;

use axum::http::HeaderMap;

use crate::webhook::json::{Json, Kind, unescape};

/// Headers in which providers name the event, by precedence.
const EVENT_HEADERS: [&str; 9] = [
    "x-github-event",
    "x-gitlab-event",
    "x-gitea-event",
    "x-forgejo-event",
    "x-gogs-event",
    "x-event-key",
    "x-shopify-topic",
    "linear-event",
    "sentry-hook-resource",
];

/// Members of the body that name the event, by precedence.
const EVENT_KEYS: [&str; 4] = ["event_type", "type", "object_kind", "event"];

/// The body is neither JSON nor a form: 400 `{"error":"Cannot parse body"}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Cannot parse body")]
pub struct CannotParse;

/// A body that is JSON, kept as text, with the places of its top-level members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    text: String,
    /// Key (with its quotes) and value; a lookup need not pass what it does not want.
    members: Vec<(Range<usize>, Range<usize>)>,
}

impl Payload {
    /// Reads a body: JSON whatever the content type says (a UTF-8 byte order mark is skipped), else a form.
    ///
    /// A form whose `payload` is a JSON object or list becomes that value; any other becomes a flat object of strings, in
    /// which the last of several equal names wins. Text counts as a form when the content type says so or nothing in it
    /// contradicts; either way it needs a `=`. JSON nested deeper than [`crate::webhook::json::MAX_DEPTH`] is refused.
    pub fn parse(content_type: Option<&str>, body: &[u8]) -> Result<Self, CannotParse> {
        let text = std::str::from_utf8(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)).map_err(|_| CannotParse)?;
        if let Some(payload) = Self::of(text) {
            return Ok(payload);
        }
        let is_declared = content_type
            .and_then(|value| value.split(';').next())
            .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"));
        let text = text.trim_matches(['\r', '\n', ' ']);
        if !is_form(text, is_declared) {
            return Err(CannotParse);
        }
        let mut members = serde_json::Map::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            if name == "payload" && value.trim_start().starts_with(['{', '[']) {
                return Self::of(&value).ok_or(CannotParse);
            }
            members.insert(name.into_owned(), value.into_owned().into());
        }
        Self::of(&serde_json::Value::Object(members).to_string()).ok_or(CannotParse)
    }

    /// Reads JSON.
    fn of(text: &str) -> Option<Self> {
        let (json, members) = Json::parse_with_members(text)?;
        let text = json.text();
        let place = |part: &str| {
            let start = part.as_ptr().addr() - text.as_ptr().addr();
            start..start + part.len()
        };
        let members = members.iter().map(|(key, value)| (place(key), place(value.text()))).collect();
        Some(Self { text: text.to_owned(), members })
    }

    /// The JSON text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The whole value.
    pub fn json(&self) -> Json<'_> {
        Json::of_checked(&self.text)
    }

    /// A member of the body, if it is an object; the last one when the key is there more than once.
    pub fn member(&self, key: &str) -> Option<Json<'_>> {
        let mut named = self.members.iter().rev();
        let (_, value) = named.find(|(name, _)| unescape(&self.text[name.clone()]) == key)?;
        Some(Json::of_checked(&self.text[value.clone()]))
    }

    /// The value at a path, see [`Json::get`].
    pub fn get(&self, path: &str) -> Option<Json<'_>> {
        if self.json().kind() != Kind::Object {
            return self.json().get(path);
        }
        let (first, rest) = match path.find(['.', '[']) {
            Some(at) if path[at..].starts_with('.') => (&path[..at], Some(&path[at + 1..])),
            Some(at) => (&path[..at], Some(&path[at..])),
            None => (path, None),
        };
        if first.is_empty() {
            return self.json().get(path);
        }
        match rest {
            Some(rest) => self.member(first)?.get(rest),
            None => self.member(first),
        }
    }
}

/// Whether text that is not JSON can be a form. A broken JSON document sent by a client that always declares a form
/// must not pass as one strange field.
fn is_form(text: &str, is_declared: bool) -> bool {
    let foreign = |character: char| {
        character.is_control()
            || (!is_declared && (character.is_whitespace() || matches!(character, '"' | '{' | '}' | '<' | '>' | '\\')))
    };
    text.contains('=')
        && !text.starts_with(['{', '[', '"', '<', '=', '&'])
        && !text
            .chars()
            .any(|character| foreign(character) && !(is_declared && matches!(character, '\n' | '\r' | '\t')))
}

/// The name of the event: a provider's header, else `event_type`, `type`, `object_kind` or `event` of the body, else
/// `unknown`. Empty and zero values, `null`, `false`, objects and lists are passed over; numbers become their text.
pub fn event_type(headers: &HeaderMap, payload: &Payload) -> String {
    if let Some(event) = event_headers(headers).next() {
        return event.to_owned();
    }
    EVENT_KEYS.iter().find_map(|key| event_name(payload.member(key)?)).unwrap_or_else(|| "unknown".to_owned())
}

/// Whether a route that lists `events` wants this delivery; an empty list wants all. A listed name may be the event type,
/// the value of any event header, GitLab's `object_kind`, or one of them with the action: `issues.opened`.
pub fn matches_events(events: &[String], event_type: &str, headers: &HeaderMap, payload: &Payload) -> bool {
    if events.is_empty() {
        return true;
    }
    let object_kind = payload.member("object_kind").and_then(event_name);
    let action = payload.get("action").or_else(|| payload.get("object_attributes.action")).and_then(event_name);
    let mut names = std::iter::once(event_type).chain(event_headers(headers)).chain(object_kind.as_deref());
    names.any(|name| {
        let with_action = action.as_ref().map(|action| format!("{name}.{action}"));
        events.iter().any(|event| event == name || with_action.as_ref() == Some(event))
    })
}

fn event_headers(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    EVENT_HEADERS
        .iter()
        .filter_map(|name| headers.get(*name)?.to_str().ok())
        .map(str::trim)
        .filter(|value| !value.is_empty())
}

fn event_name(value: Json<'_>) -> Option<String> {
    match value.kind() {
        Kind::String => value.as_str().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()),
        Kind::Number => {
            Some(value.text().to_owned()).filter(|text| text.parse::<f64>().is_ok_and(|number| number != 0.0))
        }
        Kind::Bool => Some(value.text().to_owned()).filter(|text| text == "true"),
        Kind::Null | Kind::List | Kind::Object => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FORM: Option<&str> = Some("application/x-www-form-urlencoded; charset=utf-8");

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.parse().expect("name"), value.parse().expect("value"))).collect()
    }

    #[test]
    fn any_json_value_is_a_payload() {
        for (body, text) in [
            ("{\"a\": 1}\n", "{\"a\": 1}"),
            ("\u{feff} [1,2] ", "[1,2]"),
            ("\"abc\"", "\"abc\""),
            ("5", "5"),
            ("1.50", "1.50"),
            ("null", "null"),
            ("\"a=b\"", "\"a=b\""),
        ] {
            for content_type in [None, FORM, Some("application/json"), Some("text/plain")] {
                assert_eq!(Payload::parse(content_type, body.as_bytes()).expect(body).text(), text);
            }
        }
    }

    #[test]
    fn forms_become_flat_objects_of_strings() {
        for (content_type, body, text) in [
            (None, "a=1&type=ft", r#"{"a":"1","type":"ft"}"#),
            (Some("text/plain"), "a=1&type=ft\r\n", r#"{"a":"1","type":"ft"}"#),
            (FORM, "a=1&type=ft", r#"{"a":"1","type":"ft"}"#),
            (FORM, "text=two words&empty=", r#"{"text":"two words","empty":""}"#),
            (FORM, "Body=%22hi%22+there%F0%9F%98%80&a=1&a=2", r#"{"Body":"\"hi\" there😀","a":"2"}"#),
            (FORM, "payload=plain&x=1", r#"{"payload":"plain","x":"1"}"#),
        ] {
            assert_eq!(Payload::parse(content_type, body.as_bytes()).expect(body).text(), text);
        }
    }

    #[test]
    fn the_json_in_a_payload_field_is_the_payload() {
        let body = "payload=%7B%22action%22%3A+%22opened%22%2C%22n%22%3A1.50%7D";
        for content_type in [None, FORM] {
            let payload = Payload::parse(content_type, body.as_bytes()).expect("form");
            assert_eq!(payload.text(), r#"{"action": "opened","n":1.50}"#);
        }
        assert_eq!(Payload::parse(FORM, b"payload=%7B%22broken"), Err(CannotParse), "never a run with empty fields");
    }

    #[test]
    fn anything_else_is_refused() {
        let deep = "[".repeat(400_000);
        let deep_form = format!("payload={deep}");
        for body in [
            &b""[..],
            b"   ",
            b"\xef\xbb\xbf",
            b"not json",
            b"{\"a\": \"x=1\"",
            b"{a=1}",
            b"<xml a=\"1\"/>",
            b"\xff\xfe\x00",
            b"\xff\xfe{\x00}\x00",
            b"{\x00\"\x00a\x00\"\x00:\x001\x00}\x00",
            b"a\x00=\x001\x00",
            b"{\"a\":\"\xe9\"}",
            b"a=\xe9",
            b"{} {}",
            b"NaN",
            b"=",
            b"&a=1",
            deep.as_bytes(),
            deep_form.as_bytes(),
        ] {
            for content_type in [None, FORM, Some("application/json"), Some(""), Some(";")] {
                assert_eq!(Payload::parse(content_type, body), Err(CannotParse), "{:?}", String::from_utf8_lossy(body));
            }
        }
        assert_eq!(Payload::parse(None, b"two words = here"), Err(CannotParse), "prose with no content type");
    }

    #[test]
    fn the_event_type_comes_from_the_header_then_the_body() {
        for (list, body, event) in [
            (&[("x-github-event", "push")][..], r#"{"type":"t"}"#, "push"),
            (&[("X-Gitlab-Event", "Push Hook")], r#"{"object_kind":"push"}"#, "Push Hook"),
            (&[("x-gitlab-event", "b"), ("x-github-event", "a")], "{}", "a"),
            (&[("x-github-event", " ")], r#"{"type":"t"}"#, "t"),
            (&[("x-github-event", "é")], r#"{"type":"t"}"#, "t"),
            (&[("x-event-key", "repo:push")], "{}", "repo:push"),
            (&[], r#"{"type":"t","event_type":"e"}"#, "e"),
            (&[], r#"{"type":"","object_kind":"push"}"#, "push"),
            (&[], r#"{"type":null,"event":"x"}"#, "x"),
            (&[], r#"{"type":0,"event":{"type":"deep"}}"#, "unknown"),
            (&[], r#"{"type":"a","type":"b"}"#, "b"),
            (&[], r#"{"event_type":42.0}"#, "42.0"),
            (&[], r#"{"event_type":true}"#, "true"),
            (&[], "[1]", "unknown"),
            (&[], "5", "unknown"),
        ] {
            let payload = Payload::parse(None, body.as_bytes()).expect(body);
            let headers: HeaderMap = list
                .iter()
                .map(|(name, value)| {
                    let value = axum::http::HeaderValue::from_bytes(value.as_bytes()).expect("value");
                    (name.parse::<axum::http::HeaderName>().expect("name"), value)
                })
                .collect();
            assert_eq!(event_type(&headers, &payload), event, "{list:?} {body}");
        }
    }

    #[test]
    fn events_match_by_every_name_an_event_has() {
        let merge = Payload::parse(None, br#"{"object_kind":"merge_request","object_attributes":{"action":"open"}}"#);
        let merge = merge.expect("json");
        let gitlab = headers(&[("x-gitlab-event", "Merge Request Hook")]);
        let issue = Payload::parse(None, br#"{"action":"opened","type":"other"}"#).expect("json");
        let github = headers(&[("x-github-event", "issues")]);
        for (event, headers, payload, wanted) in [
            ("issues", &github, &issue, true),
            ("issues.opened", &github, &issue, true),
            ("issues.closed", &github, &issue, false),
            ("Issues", &github, &issue, false),
            ("opened", &github, &issue, false),
            ("other", &github, &issue, false),
            ("Merge Request Hook", &gitlab, &merge, true),
            ("merge_request", &gitlab, &merge, true),
            ("merge_request.open", &gitlab, &merge, true),
            ("merge_request.close", &gitlab, &merge, false),
        ] {
            let events = ["never".to_owned(), event.to_owned()];
            assert_eq!(matches_events(&events, &event_type(headers, payload), headers, payload), wanted, "{event}");
        }
        assert!(matches_events(&[], "anything", &github, &issue));
        let unknown = Payload::parse(None, b"{}").expect("json");
        assert!(!matches_events(&["push".to_owned()], "unknown", &HeaderMap::new(), &unknown));
    }

    /// Bodies from octokit/webhooks and stripe/openapi (MIT).
    #[test]
    fn recorded_payloads_are_read() {
        for (file, path, value) in [
            ("github.push.json", "repository.full_name", "Codertocat/Hello-World"),
            ("github.push.json", "commits[0].added.0", "README.md"),
            ("github.pull_request_review.submitted.json", "review.body", "null"),
            ("github.issue_comment.created.json", "issue.labels.0.name", "bug"),
            ("stripe.payment_intent.succeeded.json", "type", "payment_intent.succeeded"),
        ] {
            let body = std::fs::read(format!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/{}"), file)).expect(file);
            let payload = Payload::parse(Some("application/json"), &body).expect(file);
            assert_eq!(payload.get(path).expect(file).plain(), value, "{file}");
            let tree: serde_json::Value = serde_json::from_slice(&body).expect(file);
            let again: serde_json::Value = serde_json::from_str(&payload.json().pretty()).expect(file);
            assert_eq!(tree, again, "{file}");
            serde_json::from_str::<serde_json::Value>(&payload.json().shortened(4_000)).expect(file);
        }
    }

    proptest! {
        #[test]
        fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..200), form in any::<bool>()) {
            if let Ok(payload) = Payload::parse(if form { FORM } else { None }, &body) {
                prop_assert!(serde_json::from_str::<&serde_json::value::RawValue>(payload.text()).is_ok());
                let _ = event_type(&HeaderMap::new(), &payload);
            }
        }

        #[test]
        fn no_form_panics(body in "[a-z=&%+{}\\[\\]\"0-9 ]{0,60}") {
            let _ = Payload::parse(FORM, body.as_bytes());
            let _ = Payload::parse(None, body.as_bytes());
        }
    }
}
