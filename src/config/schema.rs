//! The JSON Schema of `config.yaml`, made from the commented example, which a test holds to the code: editors complete and
//! check with it. Values are taken as leniently as the reader takes them.

use serde_json::{Map, Value, json};

use super::yaml::{Typed, resolve};

const EXAMPLE: &str = include_str!("../../config.example.yaml");

/// One key of the example.
struct Row<'e> {
    path: Vec<&'e str>,
    description: String,
    /// What stands behind the colon, without a comment.
    value: &'e str,
    /// It is in force in the example, so its value is the default.
    is_default: bool,
}

/// The schema (draft 2020-12). Other keys are allowed: the reference has many that change nothing here.
pub fn json_schema() -> Value {
    let mut root = object("hookgate's config.yaml");
    root.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    root.insert("title".into(), "hookgate".into());
    for row in rows() {
        let mut here = &mut root;
        let (last, sections) = row.path.split_last().expect("a key has a name");
        for section in sections {
            here = properties(here)
                .entry(*section)
                .or_insert_with(|| object("").into())
                .as_object_mut()
                .expect("an object");
        }
        properties(here).insert((*last).to_owned(), of_row(&row));
    }
    Value::Object(root)
}

fn object(description: &str) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("type".into(), json!(["object", "null"])); // a section without keys is nothing
    if !description.is_empty() {
        map.insert("description".into(), description.into());
    }
    map
}

fn properties(object: &mut Map<String, Value>) -> &mut Map<String, Value> {
    object
        .entry("properties")
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
        .expect("properties are an object")
}

fn of_row(row: &Row<'_>) -> Value {
    let text = row.value.trim_matches(['"', '\'']);
    let (types, default) = match row.value {
        "" | "{}" => (json!(["object", "null"]), None),
        list if list.starts_with('[') => (json!(["array", "string", "number"]), Some(json!([]))),
        quoted if quoted.starts_with(['"', '\'']) => (json!(["string", "number", "null"]), Some(json!(text))),
        plain => match resolve(plain) {
            // `${NAME}` may stand for any value, so text is always taken.
            Typed::Bool(value) => (json!(["boolean", "string"]), Some(json!(value))),
            Typed::Int(value) => (json!(["integer", "string"]), i64::try_from(value).ok().map(|value| json!(value))),
            Typed::Float(value) => (json!(["number", "string"]), Some(json!(value))),
            Typed::Null | Typed::Date | Typed::Text => (json!(["string", "number", "null"]), Some(json!(text))),
        },
    };
    let mut schema = Map::new();
    schema.insert("type".into(), types);
    if !row.description.is_empty() {
        schema.insert("description".into(), row.description.as_str().into());
    }
    if let Some(default) = default.filter(|_| row.is_default) {
        schema.insert("default".into(), default);
    }
    Value::Object(schema)
}

/// The keys of the example in order, each with the comment above it.
fn rows() -> Vec<Row<'static>> {
    let mut rows = Vec::new();
    let mut above: Vec<(usize, &str)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in EXAMPLE.lines() {
        let indent = line.len() - line.trim_start().len();
        let body = line.trim();
        let key = body.strip_prefix('#').unwrap_or(body);
        let name = key.split(':').next().unwrap_or_default();
        let is_key = key.contains(':')
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if !is_key {
            match body.strip_prefix("# ") {
                Some(text) if !text.starts_with(['-', ' ']) => comment.push(text),
                _ => comment.clear(),
            }
            continue;
        }
        above.retain(|(column, _)| *column < indent);
        let value = key[name.len() + 1..].trim();
        let value =
            if value.starts_with(['"', '\'']) { value } else { value.split(" #").next().unwrap_or_default().trim() };
        let path = above.iter().map(|(_, name)| *name).chain([name]).collect();
        rows.push(Row { path, description: comment.join(" "), value, is_default: !body.starts_with('#') });
        comment.clear();
        above.push((indent, name));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys;

    #[test]
    fn every_key_is_in_the_schema_with_a_type() {
        let schema = json_schema();
        for key in keys::KEYS {
            let pointer: String = key.path.split('.').map(|name| format!("/properties/{name}")).collect();
            let found = schema.pointer(&pointer).unwrap_or_else(|| panic!("{} is missing", key.path));
            assert!(found.get("type").is_some(), "{}", key.path);
        }
        let port = &schema["properties"]["console"]["properties"]["port"];
        assert_eq!((&port["type"], &port["default"]), (&json!(["integer", "string"]), &json!(8642)));
        assert!(schema["properties"]["drain_timeout"]["description"].is_string());
        let token = &schema["properties"]["platforms"]["properties"]["telegram"]["properties"]["token"];
        assert!(token.get("default").is_none(), "an example is no default");
    }
}
