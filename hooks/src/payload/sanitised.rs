//! Requests to and answers of a model, as hooks may see them: without keys and cookies, and of bounded size
//! (`spec/hermes-hooks.md` §2.5).

use serde::Serialize;
use serde_json::{Map, Value, json};

/// A JSON value without credentials, of at most about 50,000 characters.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Sanitised(Value);

impl Sanitised {
    /// `{"method": "POST", "body": …}`.
    pub fn request(body: &Value) -> Self {
        Self::of(&json!({ "method": "POST", "body": body }))
    }

    /// `{"model", "finish_reason", "assistant_message": {"role", "content", "tool_calls"}, "usage"}`.
    pub fn response(model: Option<&str>, finish_reason: &str, assistant_message: &Value, usage: &Value) -> Self {
        Self::of(&json!({
            "model": model,
            "finish_reason": finish_reason,
            "assistant_message": assistant_message,
            "usage": usage,
        }))
    }

    fn of(value: &Value) -> Self {
        for limits in [Limits { text: 8_000, items: 200 }, Limits { text: 1_000, items: 50 }] {
            let reduced = limits.reduce(value, 0);
            if reduced.to_string().chars().count() <= TOTAL {
                return Self(reduced);
            }
        }
        let reduced = Limits { text: 1_000, items: 50 }.reduce(value, 0).to_string();
        let preview: String = reduced.chars().take(1_000).collect();
        Self(json!({ "_truncated": true, "original_type": type_name(value), "preview": preview }))
    }
}

/// Characters of the JSON text.
const TOTAL: usize = 50_000;
/// Levels of nesting that are shown.
const DEPTH: usize = 8;

struct Limits {
    /// Characters of a string.
    text: usize,
    /// Items of a list.
    items: usize,
}

impl Limits {
    fn reduce(&self, value: &Value, depth: usize) -> Value {
        match value {
            Value::Array(_) | Value::Object(_) if depth > DEPTH => json!("<nested too deeply>"),
            Value::String(text) => Value::String(self.cut(text)),
            Value::Array(items) => {
                let mut shown: Vec<Value> =
                    items.iter().take(self.items).map(|item| self.reduce(item, depth + 1)).collect();
                if items.len() > self.items {
                    shown.push(json!({ "_truncated_items": items.len() - self.items }));
                }
                Value::Array(shown)
            }
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(key, value)| {
                        let shown =
                            if is_credential(key) { json!("<redacted>") } else { self.reduce(value, depth + 1) };
                        (key.clone(), shown)
                    })
                    .collect::<Map<_, _>>(),
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn cut(&self, text: &str) -> String {
        match text.char_indices().nth(self.text) {
            Some((end, _)) => {
                format!("{}… [{} more characters]", &text[..end], text[end..].chars().count())
            }
            None => text.to_owned(),
        }
    }
}

fn is_credential(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace('-', "_");
    ["api_key", "authorization", "proxy_authorization", "cookie", "set_cookie"].contains(&key.as_str())
        || key.ends_with("_api_key")
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_redacted_at_every_level() {
        let body = json!({ "api_key": "k", "headers": [{ "X-Api-Key": "k", "Set-Cookie": "c", "Accept": "a" }],
            "AUTHORIZATION": {"scheme": "b"}, "openai_api_key": null, "api_keys_note": "kept" });
        assert_eq!(
            Sanitised::request(&body).0,
            json!({ "method": "POST", "body": { "api_key": "<redacted>",
                "headers": [{ "X-Api-Key": "<redacted>", "Set-Cookie": "<redacted>", "Accept": "a" }],
                "AUTHORIZATION": "<redacted>", "openai_api_key": "<redacted>", "api_keys_note": "kept" } })
        );
    }

    #[test]
    fn long_texts_and_lists_are_cut_and_say_so() {
        let body = json!({ "text": "é".repeat(8_001), "whole": "x".repeat(8_000), "list": vec![0; 203] });
        let shown = Sanitised::request(&body).0;
        assert_eq!(shown["body"]["text"], format!("{}… [1 more characters]", "é".repeat(8_000)));
        assert_eq!(shown["body"]["whole"], "x".repeat(8_000));
        let list = shown["body"]["list"].as_array().unwrap();
        assert_eq!((list.len(), &list[200]), (201, &json!({ "_truncated_items": 3 })));
    }

    #[test]
    fn deep_values_are_cut() {
        let mut value = json!("leaf");
        for _ in 0..20 {
            value = json!([value]);
        }
        assert_eq!(Sanitised::of(&value).0.to_string(), r#"[[[[[[[[["<nested too deeply>"]]]]]]]]]"#);
    }

    #[test]
    fn what_is_too_large_is_cut_harder_and_then_previewed() {
        let harder = Sanitised::of(&json!({ "a": vec!["x".repeat(7_000); 10] })).0;
        assert_eq!(harder["a"][9], format!("{}… [6000 more characters]", "x".repeat(1_000)));

        let huge = Sanitised::of(&json!({ "a": vec![vec!["x".repeat(1_000); 50]; 50] })).0;
        assert_eq!((&huge["_truncated"], &huge["original_type"]), (&json!(true), &json!("object")));
        assert_eq!(huge["preview"].as_str().map(|text| text.chars().count()), Some(1_000));
    }
}
