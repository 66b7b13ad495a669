//! Puts the tool calls of an answer together from the pieces of a stream. Pure. Servers that call themselves compatible
//! differ most here: calls without an index, all with the same one, whole in every event, without ids.

use serde_json::Value;

use super::message::RequestedCall;

/// The longest all calls of an answer may be together, in bytes.
const LONGEST_CALLS: usize = 1 << 20;
/// The most calls of an answer.
const MOST_CALLS: usize = 128;

/// The calls of an answer in the making. What is wrong with one is told to the model in answer to it; the turn goes on.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Growing>,
    /// What all of them have, in bytes.
    length: usize,
    /// There were more than [`MOST_CALLS`].
    are_too_many: bool,
}

#[derive(Debug, Default)]
struct Growing {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// Arguments were given, perhaps empty ones.
    has_begun: bool,
    /// A piece was left out, for it was too long.
    is_cut: bool,
}

/// What one item of a list of calls brings.
struct Piece<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    arguments: Option<String>,
}

impl<'a> Piece<'a> {
    /// `{"index", "id", "function": {"name", "arguments"}}`; some leave out the `function` around the last two.
    fn of(item: &'a Value) -> Self {
        let function = item.get("function").filter(|function| function.is_object()).unwrap_or(item);
        let text = |value: Option<&'a Value>| value.and_then(Value::as_str).unwrap_or_default();
        Self {
            index: item.get("index").and_then(Value::as_u64),
            id: text(item.get("id")),
            name: text(function.get("name")),
            arguments: match function.get("arguments") {
                None | Some(Value::Null) => None,
                Some(Value::String(text)) => Some(text.clone()),
                Some(whole) => Some(whole.to_string()),
            },
        }
    }

    /// Whether this begins a call of its own and is no further piece of `call`.
    fn is_another(&self, call: &Growing) -> bool {
        if self.name.is_empty() || !call.has_begun || self.arguments.is_none() {
            let brings_another_id = self.index.is_none() && !self.id.is_empty() && self.id != call.id;
            return brings_another_id && !self.name.is_empty() && !call.id.is_empty() && !call.name.is_empty();
        }
        if !self.id.is_empty() && !call.id.is_empty() {
            return self.id != call.id;
        }
        !call.name.is_empty() && (self.name != call.name || is_object(&call.arguments))
    }
}

fn is_object(arguments: &str) -> bool {
    arguments.trim_end().ends_with('}') && serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object())
}

impl Calls {
    /// Takes the `tool_calls` of one event, or of a whole answer.
    pub(super) fn take(&mut self, items: &[Value]) {
        let before = self.calls.len();
        for (position, item) in items.iter().enumerate().filter(|(_, item)| item.is_object()) {
            let piece = Piece::of(item);
            let known = match piece.index {
                Some(index) => self.calls.iter().rposition(|call| call.index == Some(index)),
                None if !piece.id.is_empty() && self.calls.iter().any(|call| call.id == piece.id) => {
                    self.calls.iter().rposition(|call| call.id == piece.id)
                }
                // The last of the list is about the last call so far, the one before it about that before.
                None => (before + position).checked_sub(items.len()),
            };
            match known.and_then(|known| self.calls.get_mut(known)).filter(|call| !piece.is_another(call)) {
                Some(call) => call.take(&piece, &mut self.length),
                None => self.begin(&piece),
            }
        }
    }

    fn begin(&mut self, piece: &Piece<'_>) {
        if self.calls.len() == MOST_CALLS {
            self.are_too_many = true;
            return;
        }
        let mut call = Growing { index: piece.index, ..Growing::default() };
        call.take(piece, &mut self.length);
        self.calls.push(call);
    }

    /// Begins the call at `index` (of Anthropic's content blocks).
    pub(super) fn start(&mut self, index: Option<u64>, id: &str, name: &str) {
        self.begin(&Piece { index, id, name, arguments: None });
    }

    /// Adds to the arguments of the call at `index`; there may be none.
    pub(super) fn add_arguments(&mut self, index: Option<u64>, piece: &str) {
        if let Some(call) = self.calls.iter_mut().rev().find(|call| call.index == index) {
            let arguments = Some(piece.to_owned());
            call.take(&Piece { index, id: "", name: "", arguments }, &mut self.length);
        }
    }

    /// The calls by their indexes. One without an id, or with one that another has, gets one made from `round`, which
    /// differs from request to request of a turn, and its place.
    pub(super) fn finish(mut self, round: usize) -> Vec<RequestedCall> {
        self.calls.sort_by_key(|call| call.index);
        let mut calls: Vec<RequestedCall> = Vec::with_capacity(self.calls.len());
        for (position, call) in self.calls.into_iter().enumerate() {
            let is_taken = call.id.is_empty() || calls.iter().any(|before| before.id == call.id);
            let fault = if self.are_too_many {
                Some(format!("none of these calls was made: ask for at most {MOST_CALLS} at once"))
            } else if call.is_cut {
                Some(format!("not made: all calls of an answer may have {LONGEST_CALLS} bytes; ask for less at once"))
            } else if call.name.trim().is_empty() {
                Some("not made: the call names no tool".to_owned())
            } else {
                None
            };
            calls.push(RequestedCall {
                id: if is_taken { format!("call_{round}_{position}") } else { call.id },
                name: call.name,
                // Of what was cut, the rest says nothing.
                arguments: if call.is_cut { String::new() } else { call.arguments },
                fault,
            });
        }
        calls
    }
}

impl Growing {
    /// Some servers repeat id and name in every event: what is there already is not added again. `length` is what all
    /// calls have by now.
    fn take(&mut self, piece: &Piece<'_>, length: &mut usize) {
        let arguments = piece.arguments.as_deref();
        let more = piece.id.len() + piece.name.len() + arguments.map_or(0, str::len);
        self.has_begun |= arguments.is_some();
        if *length + more > LONGEST_CALLS {
            self.is_cut = true;
            return;
        }
        *length += more;
        if piece.id != self.id {
            self.id.push_str(piece.id);
        }
        if piece.name != self.name {
            self.name.push_str(piece.name);
        }
        self.arguments.push_str(arguments.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The calls of a stream with these lists, as `id name arguments`.
    fn of(events: &[Value]) -> Vec<String> {
        let mut calls = Calls::default();
        for event in events {
            calls.take(event.as_array().unwrap());
        }
        let calls = calls.finish(3);
        calls.into_iter().map(|call| format!("{} {} {}", call.id, call.name, call.arguments)).collect()
    }

    #[test]
    fn pieces_by_their_index() {
        let stream = [
            json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "read", "arguments": ""}}]),
            json!([{"index": 0, "function": {"arguments": "{\"p\":"}}]),
            json!([{"index": 1, "id": "b", "function": {"name": "list", "arguments": ""}}]),
            json!([{"index": 0, "function": {"arguments": "1}"}}, {"index": 1, "function": {"arguments": "{}"}}]),
        ];
        assert_eq!(of(&stream), [r#"a read {"p":1}"#, "b list {}"]);
        let turned_round = [
            json!([{"index": 1, "id": "b", "function": {"name": "y", "arguments": "{}"}}]),
            json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}]),
        ];
        assert_eq!(of(&turned_round), ["a x {}", "b y {}"]);
    }

    #[test]
    fn ids_and_names_that_come_late_or_in_pieces() {
        let late = [
            json!([{"index": 0, "function": {"arguments": "{"}}]),
            json!([{"index": 0, "function": {"name": "read"}}]),
            json!([{"index": 0, "id": "a", "function": {"arguments": "}"}}]),
        ];
        assert_eq!(of(&late), ["a read {}"]);
        let in_pieces = [
            json!([{"index": 0, "id": "call_", "function": {"name": "read_"}}]),
            json!([{"index": 0, "id": "1", "function": {"name": "file"}}]),
            json!([{"index": 0, "function": {"arguments": "{}"}}]),
        ];
        assert_eq!(of(&in_pieces), ["call_1 read_file {}"]);
        let repeated = [
            json!([{"index": 0, "id": "a", "function": {"name": "read", "arguments": "{\"p\""}}]),
            json!([{"index": 0, "id": "a", "function": {"name": "read", "arguments": ":1}"}}]),
        ];
        assert_eq!(of(&repeated), [r#"a read {"p":1}"#]);
    }

    #[test]
    fn without_an_index() {
        let whole = json!([
            {"id": "a", "function": {"name": "x", "arguments": {"p": 1}}},
            {"id": "b", "function": {"name": "x", "arguments": "{}"}},
        ]);
        assert_eq!(of(&[whole]), [r#"a x {"p":1}"#, "b x {}"]);
        let one_by_one = [
            json!([{"id": "a", "function": {"name": "x"}}]),
            json!([{"function": {"arguments": "{\"p\":"}}]),
            json!([{"function": {"arguments": "1}"}}]),
            json!([{"id": "b", "function": {"name": "y", "arguments": ""}}]),
            json!([{"id": "b", "function": {"arguments": "{}"}}]),
        ];
        assert_eq!(of(&one_by_one), [r#"a x {"p":1}"#, "b y {}"]);
        let without_ids = [
            json!([{"function": {"name": "x", "arguments": {}}}]),
            json!([{"function": {"name": "x", "arguments": {"p": 2}}}, {"function": {"name": "y", "arguments": {}}}]),
        ];
        assert_eq!(of(&without_ids), ["call_3_0 x {}", r#"call_3_1 x {"p":2}"#, "call_3_2 y {}"]);
        let in_step = [
            json!([{"id": "a", "function": {"name": "x"}}, {"id": "b", "function": {"name": "y"}}]),
            json!([{"function": {"arguments": "{\"p\":1}"}}, {"function": {"arguments": "{\"p\":2}"}}]),
        ];
        assert_eq!(of(&in_step), [r#"a x {"p":1}"#, r#"b y {"p":2}"#]);
    }

    #[test]
    fn the_same_index_for_all() {
        let stream = [
            json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": ""}}]),
            json!([{"index": 0, "id": "b", "function": {"name": "x", "arguments": "{\"p\":1}"}}]),
            json!([{"index": 0, "function": {"name": "y", "arguments": "{}"}}]),
        ];
        assert_eq!(of(&stream), ["a x ", r#"b x {"p":1}"#, "call_3_2 y {}"]);
    }

    #[test]
    fn ids_are_never_the_same() {
        let stream = json!([
            {"index": 0, "id": "", "function": {"name": "x", "arguments": null}},
            {"index": 1, "id": "same", "name": "y", "arguments": "{}"},
            {"index": 2, "id": "same", "function": {"name": "z"}},
        ]);
        assert_eq!(of(&[stream]), ["call_3_0 x ", "same y {}", "call_3_2 z "]);
    }

    #[test]
    fn what_is_wrong_with_a_call_is_told_in_answer_to_it() {
        let faults = |events: &[Value]| -> Vec<Option<String>> {
            let mut calls = Calls::default();
            events.iter().for_each(|event| calls.take(event.as_array().unwrap()));
            calls.finish(0).into_iter().map(|call| call.parsed().err()).collect()
        };
        let is = |fault: &Option<String>, part: &str| fault.as_ref().is_some_and(|fault| fault.contains(part));

        let nameless = json!([null, {"index": 0, "function": {"arguments": "{}"}}, {"index": 1, "name": "x"}]);
        let told = faults(&[nameless]);
        assert!(is(&told[0], "names no tool") && told[1].is_none(), "{told:?}");

        let many: Vec<Value> = (0..=MOST_CALLS).map(|index| json!({"index": index, "name": "x"})).collect();
        let told = faults(&[Value::Array(many)]);
        assert!(told.len() == MOST_CALLS && told.iter().all(|fault| is(fault, "at most 128")), "{told:?}");

        let piece =
            |index: u64| json!({"index": index, "function": {"name": "x", "arguments": "x".repeat(LONGEST_CALLS / 2)}});
        let small = json!({"index": 2, "function": {"name": "x", "arguments": "{}"}});
        let told = faults(&[json!([small, piece(0)]), json!([piece(0)])]);
        assert!(is(&told[0], "1048576 bytes") && told[1].is_none(), "{told:?}");
    }
}
