//! The tool `read_file`: a text file, or some of its lines. Read as far as needed, so that a huge file costs no memory.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::encoding::{Encoding, LOOKED_AT};
use super::roots::{FileRules, blocking, told};
use super::{Tool, ToolCall, ToolError};
use crate::redact::redact;

/// Lines that are given unless the call says.
const LINES: u64 = 2_000;
/// The longest line that is given as a whole, in bytes.
const LONGEST_LINE: usize = 8_000;
/// The largest file of an encoding that must be read as a whole.
const LARGEST_DECODED: u64 = 16 << 20;

/// The tool.
pub struct ReadFile(Arc<FileRules>);

impl ReadFile {
    /// Reads within `rules`.
    pub fn new(rules: Arc<FileRules>) -> Self {
        Self(rules)
    }
}

#[async_trait]
impl Tool for ReadFile {
    fn name(&self) -> &str {
        "read_file"
    }

    fn description(&self) -> &str {
        "Reads a text file: `limit` lines (2000 unless given) from line `offset` (from 1). Where there is more, `next_offset` \
         says where to go on."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "The file, absolute or from the working directory." },
                "offset": { "type": "integer", "minimum": 1, "description": "The first line." },
                "limit": { "type": "integer", "minimum": 1, "description": "How many lines." }
            },
            "required": ["path"]
        })
    }

    fn has_effects(&self) -> bool {
        false
    }

    async fn call(&self, call: &ToolCall<'_>) -> Result<Value, ToolError> {
        let path = call.text("path")?.to_owned();
        let offset = call.optional_number("offset")?.unwrap_or(1).max(1);
        let limit = call.optional_number("limit")?.unwrap_or(LINES).max(1);
        let (rules, cwd) = (Arc::clone(&self.0), call.turn.cwd.clone());
        blocking(move || read(&rules, &cwd, &path, offset, limit)).await
    }
}

fn read(rules: &FileRules, cwd: &Path, path: &str, offset: u64, limit: u64) -> Result<Value, ToolError> {
    let (file, metadata, _) = rules.open(cwd, path)?;
    let failed = |error: std::io::Error| ToolError::Failed(format!("{path}: {}", told(&error)));
    let mut reader = BufReader::with_capacity(64 << 10, file);
    let mut beginning = Vec::new();
    (&mut reader).take(LOOKED_AT as u64).read_to_end(&mut beginning).map_err(failed)?;
    let bytes = metadata.len();
    let Some(encoding) = Encoding::of(&beginning) else {
        return Err(ToolError::Failed(format!("{path} is no text file ({bytes} bytes); look at it with the terminal")));
    };
    let rest = beginning.as_slice().chain(reader);
    let mut lines: Box<dyn Iterator<Item = std::io::Result<String>>> = match encoding {
        Encoding::Utf16Le | Encoding::Utf16Be => {
            if bytes > LARGEST_DECODED {
                let why = "is too large to be read in its encoding; convert it to UTF-8 first";
                return Err(ToolError::Failed(format!("{path} ({bytes} bytes) {why}")));
            }
            let mut whole = Vec::new();
            rest.take(LARGEST_DECODED).read_to_end(&mut whole).map_err(failed)?;
            let text = encoding.decode(&whole).ok_or_else(|| ToolError::Failed(format!("{path} is no text file")))?;
            let lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
            Box::new(lines.into_iter().map(Ok))
        }
        _ => Box::new(Lines { reader: BufReader::new(rest), encoding, is_first: true }),
    };
    let mut content = String::new();
    let mut number = 0;
    let mut next_offset = None;
    for line in lines.by_ref() {
        number += 1;
        if number < offset {
            line.map_err(failed)?;
            continue;
        }
        let line = line.map_err(failed)?;
        if number >= offset.saturating_add(limit)
            || content.len() + line.len() > rules.output_bytes && !content.is_empty()
        {
            next_offset = Some(number);
            break;
        }
        content.push_str(&line);
    }
    if content.is_empty() && offset > 1 && number < offset {
        return Err(ToolError::Failed(format!("{path} has {number} lines, so there is no line {offset}")));
    }
    let mut result = Map::new();
    result.insert("content".to_owned(), redact(&content).into());
    if let Some(next_offset) = next_offset {
        result.insert("next_offset".to_owned(), next_offset.into());
    }
    if let Some(name) = encoding.name() {
        result.insert("encoding".to_owned(), name.into());
    }
    Ok(Value::Object(result))
}

/// The lines of a file with their ends; what is longer than [`LONGEST_LINE`] is passed over, and said so.
struct Lines<R> {
    reader: BufReader<R>,
    encoding: Encoding,
    is_first: bool,
}

impl<R: std::io::Read> Iterator for Lines<R> {
    type Item = std::io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        let mut cut = 0_u64;
        loop {
            let buffer = match self.reader.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) => return Some(Err(error)),
            };
            if buffer.is_empty() {
                break;
            }
            let end = memchr::memchr(b'\n', buffer);
            let taken = end.map_or(buffer.len(), |end| end + 1);
            let room = LONGEST_LINE.saturating_sub(line.len()).min(taken);
            line.extend_from_slice(&buffer[..room]);
            cut += (taken - room) as u64;
            self.reader.consume(taken);
            if end.is_some() {
                break;
            }
        }
        if line.is_empty() && cut == 0 {
            return None;
        }
        if std::mem::take(&mut self.is_first)
            && self.encoding == Encoding::Utf8WithMark
            && line.starts_with(b"\xef\xbb\xbf")
        {
            line.drain(..3);
        }
        let mut text = match self.encoding {
            Encoding::Latin1 => line.iter().map(|byte| char::from(*byte)).collect(),
            _ => String::from_utf8_lossy(&line).into_owned(),
        };
        if cut > 0 {
            text.push_str(&format!(" [{cut} more bytes of this line]\n"));
        }
        Some(Ok(text))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::testing::{call, turn};
    use super::*;

    fn tool(dir: &Path, output_bytes: usize) -> ReadFile {
        ReadFile::new(Arc::new(FileRules::new(vec![PathBuf::from(".")], &[], &dir.join("home"), output_bytes).unwrap()))
    }

    #[tokio::test]
    async fn lines_are_read_from_where_the_call_says() {
        let dir = tempfile::tempdir().unwrap();
        let text: String = (1..=5_000).map(|n| format!("line {n}\n")).collect();
        std::fs::write(dir.path().join("a.txt"), &text).unwrap();
        let (tool, turn) = (tool(dir.path(), 50_000), turn(dir.path()));
        let all = call(&tool, &turn, json!({ "path": "a.txt" })).await.unwrap();
        assert_eq!(all["content"].as_str().unwrap().lines().count(), 2_000);
        assert_eq!(all["next_offset"], 2_001);
        let some = call(&tool, &turn, json!({ "path": "a.txt", "offset": "4999", "limit": 9 })).await.unwrap();
        assert_eq!(some, json!({ "content": "line 4999\nline 5000\n" }));
        let beyond = call(&tool, &turn, json!({ "path": "a.txt", "offset": 6_000 })).await.unwrap_err().to_string();
        assert_eq!(beyond, "a.txt has 5000 lines, so there is no line 6000");
        std::fs::write(dir.path().join("empty.txt"), "").unwrap();
        assert_eq!(call(&tool, &turn, json!({ "path": "empty.txt" })).await.unwrap(), json!({ "content": "" }));
    }

    #[tokio::test]
    async fn much_text_is_given_in_pieces_and_long_lines_are_cut() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.txt"), format!("{}\nend", "x".repeat(100_000))).unwrap();
        std::fs::write(dir.path().join("b.txt"), "0123456789\r\n".repeat(1_000)).unwrap();
        let (tool, turn) = (tool(dir.path(), 1_000), turn(dir.path()));
        let cut = call(&tool, &turn, json!({ "path": "a.txt" })).await.unwrap();
        assert!(cut["content"].as_str().unwrap().ends_with(" [92001 more bytes of this line]\n"), "{cut}");
        assert_eq!(cut["next_offset"], 2);
        let piece = call(&tool, &turn, json!({ "path": "b.txt" })).await.unwrap();
        assert_eq!((piece["content"].as_str().unwrap().len(), &piece["next_offset"]), (996, &json!(84)));
        assert!(piece["content"].as_str().unwrap().ends_with("\r\n"), "line ends stay");
    }

    #[tokio::test]
    async fn encodings_are_read_and_binaries_are_not() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in [
            ("utf16.txt", &b"\xff\xfeh\0i\0\n\0"[..]),
            ("mark.txt", b"\xef\xbb\xbfhi\n"),
            ("latin.txt", b"caf\xe9\n"),
            ("binary", b"\x7fELF\0\0"),
        ] {
            std::fs::write(dir.path().join(name), bytes).unwrap();
        }
        let (tool, turn) = (tool(dir.path(), 1_000), turn(dir.path()));
        let read = async |path: &str| call(&tool, &turn, json!({ "path": path })).await;
        assert_eq!(read("utf16.txt").await.unwrap(), json!({ "content": "hi\n", "encoding": "utf-16le" }));
        assert_eq!(read("mark.txt").await.unwrap(), json!({ "content": "hi\n" }));
        assert_eq!(read("latin.txt").await.unwrap(), json!({ "content": "caf\u{e9}\n", "encoding": "latin-1" }));
        assert!(read("binary").await.unwrap_err().to_string().contains("is no text file (6 bytes)"));
    }

    #[tokio::test]
    async fn a_huge_file_costs_no_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("huge.txt");
        std::fs::write(&path, "first\n".repeat(3_000)).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(10 << 30).unwrap();
        let (tool, turn) = (tool(dir.path(), 1_000), turn(dir.path()));
        let began = std::time::Instant::now();
        let read = call(&tool, &turn, json!({ "path": "huge.txt", "limit": 2 })).await.unwrap();
        assert_eq!(read["content"], "first\nfirst\n");
        assert!(began.elapsed().as_secs() < 2);
    }
}
