//! The tool `todo`: the model's own list of what is to be done, kept for the session while the gateway runs.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Tool, ToolCall, ToolError};

const MOST_ENTRIES: usize = 256;
const LONGEST_ENTRY: usize = 2_000;
/// Sessions whose lists are kept; the oldest go first.
const SESSIONS: usize = 10_000;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    id: String,
    content: String,
    status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Completed,
    Cancelled,
}

#[derive(Debug, Default)]
struct Lists {
    by_session: HashMap<String, Vec<Entry>>,
    order: VecDeque<String>,
}

/// The tool.
#[derive(Debug, Default)]
pub struct Todo(Mutex<Lists>);

#[async_trait]
impl Tool for Todo {
    fn name(&self) -> &str {
        "todo"
    }

    fn description(&self) -> &str {
        "Your own list of what is to be done in this conversation. With `todos` it is replaced, or with `merge` its entries of \
         the same id are; without, it is read."
    }

    fn parameters(&self) -> Value {
        let entry = json!({
            "type": "object",
            "properties": {
                "id": { "type": "string" },
                "content": { "type": "string" },
                "status": { "type": "string", "enum": ["pending", "in_progress", "completed", "cancelled"] }
            },
            "required": ["id", "content", "status"]
        });
        json!({
            "type": "object",
            "properties": { "todos": { "type": "array", "items": entry }, "merge": { "type": "boolean" } }
        })
    }

    fn has_effects(&self) -> bool {
        false
    }

    async fn call(&self, call: &ToolCall<'_>) -> Result<Value, ToolError> {
        let given: Option<Vec<Entry>> = match call.args.get("todos") {
            None | Some(Value::Null) => None,
            Some(todos) => Some(serde_json::from_value(todos.clone()).map_err(|error| {
                ToolError::Failed(format!("`todos` must be a list of {{id, content, status}}: {error}"))
            })?),
        };
        let merges = call.flag("merge", false)?;
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = &call.turn.session_id;
        if let Some(given) = given {
            let mut list = if merges { lists.by_session.get(session).cloned().unwrap_or_default() } else { Vec::new() };
            for entry in given {
                match list.iter_mut().find(|known| known.id == entry.id) {
                    Some(known) => *known = entry,
                    None => list.push(entry),
                }
            }
            if list.len() > MOST_ENTRIES || list.iter().any(|entry| entry.content.len() > LONGEST_ENTRY) {
                let why = format!("at most {MOST_ENTRIES} entries of {LONGEST_ENTRY} bytes are kept; shorten the list");
                return Err(ToolError::Failed(why));
            }
            if lists.by_session.insert(session.clone(), list).is_none() {
                lists.order.push_back(session.clone());
                if lists.order.len() > SESSIONS
                    && let Some(oldest) = lists.order.pop_front()
                {
                    lists.by_session.remove(&oldest);
                }
            }
        }
        let list = lists.by_session.get(session).cloned().unwrap_or_default();
        let count = |status: Status| list.iter().filter(|entry| entry.status == status).count();
        let summary = json!({
            "total": list.len(),
            "pending": count(Status::Pending),
            "in_progress": count(Status::InProgress),
            "completed": count(Status::Completed),
            "cancelled": count(Status::Cancelled),
        });
        Ok(json!({ "todos": list, "summary": summary }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{call, turn};
    use super::*;

    #[tokio::test]
    async fn a_list_is_replaced_merged_and_read() {
        let (tool, turn) = (Todo::default(), turn("/"));
        let entry = |id: &str, status: &str| json!({ "id": id, "content": format!("do {id}"), "status": status });
        let empty = call(&tool, &turn, json!({})).await.unwrap();
        assert_eq!((&empty["todos"], &empty["summary"]["total"]), (&json!([]), &json!(0)));
        call(&tool, &turn, json!({ "todos": [entry("1", "pending"), entry("2", "in_progress")] })).await.unwrap();
        let merged =
            call(&tool, &turn, json!({ "todos": [entry("1", "completed"), entry("3", "cancelled")], "merge": true }));
        let merged = merged.await.unwrap();
        let summary = json!({ "total": 3, "pending": 0, "in_progress": 1, "completed": 1, "cancelled": 1 });
        assert_eq!(merged["summary"], summary);
        let replaced = call(&tool, &turn, json!({ "todos": [entry("9", "pending")] })).await.unwrap();
        assert_eq!(replaced["todos"], json!([entry("9", "pending")]));
        let mut other = turn.clone();
        other.session_id = "s-2".to_owned();
        assert_eq!(call(&tool, &other, json!({})).await.unwrap()["summary"]["total"], 0, "each session has its own");
        for wrong in [json!("x"), json!([{ "id": "1" }]), json!([entry("1", "done")])] {
            assert!(call(&tool, &turn, json!({ "todos": wrong })).await.is_err());
        }
        let many: Vec<Value> = (0..300).map(|n| entry(&n.to_string(), "pending")).collect();
        assert!(call(&tool, &turn, json!({ "todos": many })).await.unwrap_err().to_string().contains("at most 256"));
    }
}
