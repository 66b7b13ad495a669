//! The tools `write_file` and `patch`: a file as a whole, or a place in one. What was there is replaced at once or not at all.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::encoding::Encoding;
use super::roots::{FileRules, blocking, told};
use super::{Tool, ToolCall, ToolError};

/// The largest file that is written or patched, in bytes.
const LARGEST: usize = 5 << 20;

/// The tool `write_file`.
pub struct WriteFile(Arc<FileRules>);

impl WriteFile {
    /// Writes within `rules`.
    pub fn new(rules: Arc<FileRules>) -> Self {
        Self(rules)
    }
}

#[async_trait]
impl Tool for WriteFile {
    fn name(&self) -> &str {
        "write_file"
    }

    fn description(&self) -> &str {
        "Writes a file as a whole, in UTF-8: one that is there is replaced, missing directories are made. For a change in a \
         file that is there use `patch`."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "The file, absolute or from the working directory." },
                "content": { "type": "string", "description": "All of its text." }
            },
            "required": ["path", "content"]
        })
    }

    fn has_effects(&self) -> bool {
        true
    }

    fn edits_files(&self) -> bool {
        true
    }

    async fn call(&self, call: &ToolCall<'_>) -> Result<Value, ToolError> {
        let (path, content) = (call.text("path")?.to_owned(), call.text("content")?.to_owned());
        let (rules, cwd) = (Arc::clone(&self.0), call.turn.cwd.clone());
        blocking(move || {
            let real = rules.wanted(&cwd, &path)?;
            if let Ok(metadata) = real.symlink_metadata() {
                rules.check_kind(&cwd, &path, &metadata)?;
            }
            let created = replace(&rules, &cwd, &path, &real, content.as_bytes())?;
            Ok(json!({ "path": real.display().to_string(), "bytes": content.len(), "created": created }))
        })
        .await
    }
}

/// The tool `patch`.
pub struct Patch(Arc<FileRules>);

impl Patch {
    /// Changes files within `rules`.
    pub fn new(rules: Arc<FileRules>) -> Self {
        Self(rules)
    }
}

#[async_trait]
impl Tool for Patch {
    fn name(&self) -> &str {
        "patch"
    }

    fn description(&self) -> &str {
        "Replaces `old_string` in a text file by `new_string`. It must stand there exactly once, unless `replace_all` is true. \
         The file keeps its encoding and its line ends."
    }

    fn parameters(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "The file, absolute or from the working directory." },
                "old_string": { "type": "string", "description": "The text to replace, exactly as it stands there." },
                "new_string": { "type": "string", "description": "What stands there afterwards." },
                "replace_all": { "type": "boolean", "description": "Whether every place is meant." }
            },
            "required": ["path", "old_string", "new_string"]
        })
    }

    fn has_effects(&self) -> bool {
        true
    }

    fn edits_files(&self) -> bool {
        true
    }

    async fn call(&self, call: &ToolCall<'_>) -> Result<Value, ToolError> {
        let path = call.text("path")?.to_owned();
        let (old, new) = (call.text("old_string")?.to_owned(), call.text("new_string")?.to_owned());
        let all = call.flag("replace_all", false)?;
        if old.is_empty() {
            return Err(ToolError::Failed("`old_string` is empty; write a new file with `write_file`".to_owned()));
        }
        let (rules, cwd) = (Arc::clone(&self.0), call.turn.cwd.clone());
        blocking(move || patch(&rules, &cwd, &path, &old, &new, all)).await
    }
}

fn patch(rules: &FileRules, cwd: &Path, path: &str, old: &str, new: &str, all: bool) -> Result<Value, ToolError> {
    let failed = |why: String| ToolError::Failed(format!("{path} {why}"));
    let (file, metadata, real) = rules.open(cwd, path)?;
    if metadata.len() > LARGEST as u64 {
        return Err(failed(format!("is too large to patch ({} bytes); use the terminal", metadata.len())));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST as u64 + 1).read_to_end(&mut bytes).map_err(|error| failed(told(&error)))?;
    let encoding = Encoding::of(&bytes);
    let text = encoding.and_then(|encoding| Some((encoding, encoding.decode(&bytes)?)));
    let Some((encoding, text)) = text else { return Err(failed("is no text file".to_owned())) };
    // A model writes \n, whatever the file has.
    let has_crlf = text.contains("\r\n") && !old.contains('\r');
    let ended = |text: &str| if has_crlf { text.replace("\r\n", "\n").replace('\n', "\r\n") } else { text.to_owned() };
    let (old, new) = (ended(old), ended(new));
    let places = text.matches(&old).count();
    match places {
        0 => return Err(failed(not_there(&text, &old))),
        1 => {}
        _ if all => {}
        _ => {
            return Err(failed(format!(
                "has `old_string` {places} times; add the lines around it, or set `replace_all`"
            )));
        }
    }
    let changed = text.replace(&old, &new);
    let Some(bytes) = encoding.encode(&changed) else {
        return Err(failed("is in Latin-1, which has not every character of `new_string`".to_owned()));
    };
    replace(rules, cwd, path, &real, &bytes)?;
    Ok(json!({ "path": real.display().to_string(), "replacements": places }))
}

/// What may have been meant.
fn not_there(text: &str, old: &str) -> String {
    let wanted = old.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let similar =
        |line: &&str| !wanted.is_empty() && (line.trim() == wanted || strsim::jaro(line.trim(), wanted) > 0.85);
    let near = text.lines().take(20_000).enumerate().find(|(_, line)| line.len() < 1_000 && similar(line));
    match near {
        Some((number, line)) => {
            format!("does not have `old_string`; line {} is similar: {}", number + 1, line.trim_end())
        }
        None => "does not have `old_string`; read the file first".to_owned(),
    }
}

/// Puts a file in place of what is there; whether there was nothing.
fn replace(rules: &FileRules, cwd: &Path, path: &str, real: &Path, bytes: &[u8]) -> Result<bool, ToolError> {
    let failed = |error: std::io::Error| ToolError::Failed(format!("{path}: {}", told(&error)));
    if bytes.len() > LARGEST {
        let why = "is the most that is written at once; write less, or use the terminal";
        return Err(ToolError::Failed(format!("{LARGEST} bytes {why}")));
    }
    let directory = real.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory).map_err(failed)?;
    // What was made or found may be another by now.
    let directory = directory.canonicalize().map_err(failed)?;
    let name = real.file_name().ok_or_else(|| ToolError::Failed(format!("{path} names no file")))?;
    let real = directory.join(name);
    rules.check(cwd, path, &real)?;
    let before = real.symlink_metadata().ok();
    let mut file = tempfile::Builder::new().prefix(".hookgate-").tempfile_in(&directory).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    let mode = before.as_ref().map_or_else(|| 0o666 & !umask(), |before| before.permissions().mode() & 0o7777);
    file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).map_err(failed)?;
    file.persist(&real).map_err(|error| failed(error.error))?;
    Ok(before.is_none())
}

/// What new files are not open to. Read without changing it, which would be for all threads.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::super::testing::{call, turn};
    use super::*;

    fn rules(dir: &Path) -> Arc<FileRules> {
        Arc::new(FileRules::new(vec![PathBuf::from(".")], &[], &dir.join("home"), 50_000).unwrap())
    }

    #[tokio::test]
    async fn a_file_is_written_at_once_and_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let (tool, turn) = (WriteFile::new(rules(dir.path())), turn(dir.path()));
        let written = call(&tool, &turn, json!({ "path": "a/b/c.txt", "content": "h\u{e9}" })).await.unwrap();
        let real = dir.path().canonicalize().unwrap().join("a/b/c.txt");
        assert_eq!(written, json!({ "path": real.display().to_string(), "bytes": 3, "created": true }));
        fs::set_permissions(&real, fs::Permissions::from_mode(0o750)).unwrap();
        let again = call(&tool, &turn, json!({ "path": "a/b/c.txt", "content": "x" })).await.unwrap();
        assert_eq!(again["created"], false);
        assert_eq!(fs::read_to_string(&real).unwrap(), "x");
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o750);
        assert_eq!(fs::read_dir(real.parent().unwrap()).unwrap().count(), 1, "nothing else is left there");
        let large = call(&tool, &turn, json!({ "path": "large", "content": "x".repeat(LARGEST + 1) })).await;
        assert!(large.unwrap_err().to_string().contains("the most that is written at once"));
        for path in ["../out.txt", "/etc/hookgate-test", "a", ""] {
            assert!(call(&tool, &turn, json!({ "path": path, "content": "x" })).await.is_err(), "{path:?}");
        }
    }

    #[tokio::test]
    async fn a_patch_changes_one_place_or_all() {
        let dir = tempfile::tempdir().unwrap();
        let (tool, turn) = (Patch::new(rules(dir.path())), turn(dir.path()));
        let file = dir.path().join("a.txt");
        let patch = async |old: &str, new: &str, all: bool| {
            let args = json!({ "path": "a.txt", "old_string": old, "new_string": new, "replace_all": all });
            call(&tool, &turn, args).await.map(|value| value["replacements"].clone()).map_err(|error| error.to_string())
        };
        fs::write(&file, "one\ntwo\ntwo\n").unwrap();
        assert_eq!(patch("one\n", "1\n", false).await, Ok(json!(1)));
        assert_eq!(
            patch("two", "2", false).await.unwrap_err(),
            "a.txt has `old_string` 2 times; add the lines around it, or set `replace_all`"
        );
        assert_eq!(patch("two", "2", true).await, Ok(json!(2)));
        assert_eq!(fs::read_to_string(&file).unwrap(), "1\n2\n2\n");
        assert_eq!(
            patch("three", "3", false).await.unwrap_err(),
            "a.txt does not have `old_string`; read the file first"
        );
        fs::write(&file, "let value = compute(1);\n").unwrap();
        let near = patch("let value = compute(2);", "", false).await.unwrap_err();
        assert_eq!(near, "a.txt does not have `old_string`; line 1 is similar: let value = compute(1);");
        assert!(patch("", "x", false).await.unwrap_err().contains("is empty"));
    }

    #[tokio::test]
    async fn line_ends_and_encodings_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (tool, turn) = (Patch::new(rules(dir.path())), turn(dir.path()));
        for (before, old, new, after) in [
            (&b"a\r\nb\r\n"[..], "a\nb", "x\ny", &b"x\r\ny\r\n"[..]),
            (b"\xff\xfea\0\n\0", "a", "b", b"\xff\xfeb\0\n\0"),
            (b"\xef\xbb\xbfa", "a", "b", b"\xef\xbb\xbfb"),
            (b"caf\xe9", "caf\u{e9}", "th\u{e9}", b"th\xe9"),
        ] {
            fs::write(dir.path().join("a.txt"), before).unwrap();
            call(&tool, &turn, json!({ "path": "a.txt", "old_string": old, "new_string": new })).await.unwrap();
            assert_eq!(fs::read(dir.path().join("a.txt")).unwrap(), after);
        }
        let args = json!({ "path": "a.txt", "old_string": "th", "new_string": "\u{20ac}" });
        assert!(call(&tool, &turn, args).await.unwrap_err().to_string().contains("Latin-1"));
        fs::write(dir.path().join("a.txt"), b"\0").unwrap();
        let args = json!({ "path": "a.txt", "old_string": "a", "new_string": "b" });
        assert!(call(&tool, &turn, args).await.unwrap_err().to_string().contains("no text file"));
    }
}
